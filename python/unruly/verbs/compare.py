"""``unruly compare``: is B's tail different from A's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unruly.errors import UnrulyError
from unruly.verbs.shared import WIDTH, add_engine, open_for, print_json, terminal, written

if TYPE_CHECKING:
    import argparse

    from unruly.findings.comparison import Side
    from unruly.verbs.shared import Verbs


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    told = verbs.add_parser("compare", help="is B's tail different from A's, with confidence")
    told.add_argument(
        "sides",
        metavar="[NAME=]DIR",
        nargs="+",
        help="a run, or a directory of runs; the first is what the others are compared with",
    )
    told.add_argument("--factor", help="the levels of this factor inside one run")
    told.add_argument("--op", help="one operation only")
    told.add_argument("--latency", default="response", help="response (default) or service")
    told.add_argument(
        "--allowance", type=float, help="how much single runs of one system may differ (0.25)"
    )
    told.add_argument("--json", action="store_true", help="print JSON instead")
    told.add_argument("-o", "--output", metavar="FILE", type=Path, help="the picture, as HTML")
    told.add_argument("--width", type=int, help=WIDTH)
    add_engine(told)
    told.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    from unruly.findings import comparison  # noqa: PLC0415
    from unruly.output.comparison import compare_json, compare_text, exit_code  # noqa: PLC0415

    if options.factor:
        if len(options.sides) > 1:
            raise UnrulyError("--factor", "and several runs", "one run", "leave the others out")
        _, path = comparison.alias_of(options.sides[0])
        found = comparison.compare_levels(
            open_for(path, options), options.factor, latency=options.latency, op=options.op
        )
    else:
        found = comparison.compare(
            _sides(options.sides, options),
            latency=options.latency,
            op=options.op,
            allowance=comparison.ALLOWANCE if options.allowance is None else options.allowance,
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


def _sides(texts: list[str], options: argparse.Namespace) -> list[Side]:
    """A run, or every run in a directory, for each name; a name that comes twice joins its runs."""
    from unruly.findings.comparison import Side, alias_of  # noqa: PLC0415

    paths: dict[str, list[Path]] = {}
    for text in texts:
        name, path = alias_of(text)
        inside = sorted(it.parent for it in Path(path).glob("*/manifest.json"))
        whole = (Path(path) / "manifest.json").is_file() or not inside
        paths.setdefault(name, []).extend([Path(path)] if whole else inside)
    return [
        Side(name, tuple(open_for(it, options) for it in found)) for name, found in paths.items()
    ]
