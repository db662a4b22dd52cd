"""``unruly runs``: the runs in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import print_json, terminal

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly.listing import runs_in  # noqa: PLC0415
    from unruly.output.listing import runs_json, runs_text  # noqa: PLC0415

    found = runs_in(*(options.directories or ["."]))
    if options.json:
        print_json(runs_json(found))
        return 0
    width, _ = terminal(options.width)
    print(runs_text(found, width=width))
    return 0
