"""``unruly verdict``: one screen, or the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import (
    open_for,
    print_json,
    print_slos,
    target_of,
    terminal,
)

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import analyse, summary, verdict  # noqa: PLC0415 - --help stays quick
    from unruly.output.summary import write_summary  # noqa: PLC0415

    analysis = analyse(
        open_for(options.directory, options),
        pictures=False,
        interactions=options.interactions,
        target=target_of(options),
    )
    write_summary(analysis)
    if options.json:
        print_json(summary(analysis))
        return 0
    width, colour = terminal(options.width)
    print(verdict(analysis, width=width, colour=colour))
    print_slos(analysis, width)
    return 0
