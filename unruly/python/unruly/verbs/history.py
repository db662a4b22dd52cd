"""``unruly history``: a percentile over the runs in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import print_json, terminal

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly.history import history_of  # noqa: PLC0415
    from unruly.output.history import history_json, history_text  # noqa: PLC0415

    found = history_of(*(options.directories or ["."]), percentile=options.percentile)
    if options.json:
        print_json(history_json(found))
        return 0
    width, _ = terminal(options.width)
    print(history_text(found, width=width))
    return 0
