"""``unruly papers``: what the five studies found, judged by runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import add_engine, open_for, write_text

if TYPE_CHECKING:
    import argparse

    from unruly.verbs.shared import Verbs


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    told = verbs.add_parser("papers", help="findings of the five papers, judged by runs")
    told.add_argument("directories", metavar="RUN", nargs="*", help="runs to judge them by")
    told.add_argument("-o", "--output", metavar="FILE", type=Path, help="default: print it")
    add_engine(told)
    told.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    from unruly import analyse, papers  # noqa: PLC0415

    verdicts = papers.kept()
    if options.directories:
        runs = [
            analyse(open_for(directory, options), pictures=False, causes=False)
            for directory in options.directories
        ]
        verdicts = papers.remember(runs)
    text = papers.page(verdicts)
    if options.output:
        write_text(options.output, text)
        print(options.output)
    else:
        print(text, end="")
    return 0
