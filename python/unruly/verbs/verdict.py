"""``unruly verdict``: one screen, or the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import (
    INTERACTIONS,
    TARGET,
    WIDTH,
    add_engine,
    open_for,
    print_json,
    target_of,
    terminal,
)

if TYPE_CHECKING:
    import argparse

    from unruly.verbs.shared import Verbs


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    told = verbs.add_parser("verdict", help="what can be promised, how unruly, why: one screen")
    told.add_argument("directory", metavar="DIR", help="the directory of a run")
    told.add_argument("--json", action="store_true", help="print summary.json instead")
    told.add_argument("--width", type=int, help=WIDTH)
    told.add_argument("--target", metavar="SHARE:TIME", help=TARGET)
    told.add_argument("--interactions", action="store_true", help=INTERACTIONS)
    add_engine(told)
    told.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
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
    return 0
