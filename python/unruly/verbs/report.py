"""``unruly report``: one HTML file of one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import (
    INTERACTIONS,
    TARGET,
    add_engine,
    open_for,
    target_of,
    terminal,
    written,
)

if TYPE_CHECKING:
    import argparse

    from unruly.verbs.shared import Verbs

ADVICE_ROWS_MAX = 2_000_000
"""Of larger runs a report holds advice only when asked: it would take as long as all the rest."""


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    pictured = verbs.add_parser("report", help="the same with pictures: one HTML file")
    pictured.add_argument("directories", metavar="DIR", nargs="+", help="directories of runs")
    pictured.add_argument("-o", "--output", type=Path, help="default: report.html in the first DIR")
    pictured.add_argument(
        "--advice", action="store_true", help="with the pictures of `advise` however many rows"
    )
    pictured.add_argument(
        "--verdict", action="store_true", help="print the verdict of each first, as `verdict` does"
    )
    pictured.add_argument("--target", metavar="SHARE:TIME", help=TARGET)
    pictured.add_argument("--interactions", action="store_true", help=INTERACTIONS)
    add_engine(pictured)
    pictured.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    from unruly import advise, analyse, verdict  # noqa: PLC0415
    from unruly.html import prepare, write_report  # noqa: PLC0415
    from unruly.output.summary import write_summary  # noqa: PLC0415

    prepare()
    analyses = [
        analyse(
            open_for(directory, options),
            interactions=options.interactions,
            target=target_of(options),
        )
        for directory in options.directories
    ]
    for analysis in analyses:
        write_summary(analysis)
        if options.verdict:
            width, colour = terminal(None)
            print(verdict(analysis, width=width, colour=colour), flush=True)
    output = options.output or Path(options.directories[0]) / "report.html"
    advice = [
        advise(analysis.run, trustworthy=analysis.trustworthy)
        if analysis.cells and (options.advice or analysis.conservation.rows <= ADVICE_ROWS_MAX)
        else None
        for analysis in analyses
    ]
    print(written(output, lambda: write_report(analyses, output, advice)))
    return 0
