"""``unruly history``: a percentile over the runs in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.errors import ParameterError
from unruly.verbs.shared import print_json, terminal, written

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    if options.output:
        from unruly.html import prepare  # noqa: PLC0415 - --help stays quick

        prepare()  # it works beside the imports, which take seconds
    from unruly.history import history_of  # noqa: PLC0415
    from unruly.output.history import history_json, history_text  # noqa: PLC0415

    directories = options.directories or ["."]
    found = history_of(*directories, percentile=options.percentile)
    if options.output:
        from unruly.html import write_history  # noqa: PLC0415

        if not found:
            raise ParameterError(
                "directories", "hold no analysed run", "some to draw", "unruly runs lists them"
            )
        written(options.output, lambda: write_history(found, options.output))
    if options.json:
        print_json(history_json(found))
        return 0
    width, _ = terminal(options.width)
    print(history_text(found, width=width))
    if options.output:
        print(options.output)
    return 0
