"""``unruly compare``: is B's tail different from A's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import open_for, print_json, terminal, written

if TYPE_CHECKING:
    import argparse

    from unruly.run import Run


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import compare  # noqa: PLC0415
    from unruly.base.comparison import ALLOWANCE  # noqa: PLC0415
    from unruly.output.comparison import compare_json, compare_text, exit_code  # noqa: PLC0415

    sides = _sides(options.sides, options)
    found = compare(
        *sides.values(),
        names=list(sides),
        factor=options.factor,
        latency=options.latency,
        op=options.op,
        allowance=ALLOWANCE if options.allowance is None else options.allowance,
    )
    if options.output:
        from unruly.html import comparison_sections, write_sections  # noqa: PLC0415

        names = list(dict.fromkeys(name for it in found.results for name in (it.a, it.b)))
        headline = f"{' and '.join(names[1:])} against {names[0]}"
        page = comparison_sections(found)
        written(options.output, lambda: write_sections(headline, page, options.output))
    if options.json:
        print_json(compare_json(found))
    else:
        width, colour = terminal(options.width)
        print(compare_text(found, width=width, colour=colour))
        if options.output:
            print(options.output)
    return exit_code(found)


def _sides(texts: list[str], options: argparse.Namespace) -> dict[str, list[Run]]:
    """Return the runs of each name; a name that comes twice joins its runs."""
    from unruly.api import runs_in  # noqa: PLC0415
    from unruly.base.comparison import alias_of  # noqa: PLC0415

    sides: dict[str, list[Run]] = {}
    named = [(*alias_of(text), text) for text in texts]
    short = {(name, path) for name, path, text in named if path == text}
    names = [name for name, _ in short]
    for own, path, text in named:
        # runs/old/1 and runs/new/1 have one last part, and are two sides
        name = text if path == text and names.count(own) > 1 else own
        sides.setdefault(name, []).extend(open_for(it, options) for it in runs_in(path))
    return sides
