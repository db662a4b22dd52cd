"""``unruly report``: one HTML file of one or several runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import (
    FINE_EXIT,
    finding_exit,
    open_for,
    target_of,
    terminal,
    written,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from unruly.findings.advice_model import Advice
    from unruly.findings.comparison import Comparison
    from unruly.findings.model import Analysis

ADVICE_ROWS_MAX = 2_000_000
"""Of larger runs a report holds advice only when asked: it would take as long as all the rest."""


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import analyse, verdict  # noqa: PLC0415
    from unruly.findings.comparison import alias_of  # noqa: PLC0415
    from unruly.html import prepare, write_report  # noqa: PLC0415
    from unruly.output.summary import write_summary  # noqa: PLC0415

    prepare()
    named = [alias_of(text) for text in options.directories]
    analyses = [
        analyse(
            open_for(directory, options),
            interactions=options.interactions,
            target=target_of(options),
        )
        for _, directory in named
    ]
    for analysis in analyses:
        write_summary(analysis)
        if options.verdict:
            width, colour = terminal(None)
            print(verdict(analysis, width=width, colour=colour), flush=True)
    output = options.output or Path(named[0][1]) / "report.html"
    names = [name for name, _ in named]
    advice = [_advice(analysis, asked=options.advice) for analysis in analyses]
    comparison = _comparison(names, analyses)
    written(
        output,
        lambda: write_report(analyses, output, advice, names=names, comparison=comparison),
    )
    print(output)
    if not options.verdict:
        return FINE_EXIT
    return max(finding_exit(analysis) for analysis in analyses)


def _advice(analysis: Analysis, *, asked: bool) -> Advice | None:
    """Return the advice that belongs on the page.

    Timeouts, replicas and hedges are questions of a group. Of clients and servers they are
    answered only when somebody asks.
    """
    from unruly import advise  # noqa: PLC0415

    if not analysis.cells:
        return None
    trustworthy = analysis.trustworthy
    if asked:
        return advise(analysis.run, trustworthy=trustworthy)
    small = analysis.conservation.rows <= ADVICE_ROWS_MAX
    if not (small and trustworthy and analysis.meshed):
        return None
    found = advise(analysis.run, trustworthy=trustworthy)
    # what requests earn is not known unless somebody gives a table of prices
    return replace(found, profit=replace(found.profit, rows=(), absent=()))


def _comparison(names: Sequence[str], analyses: Sequence[Analysis]) -> Comparison | None:
    """Return whether the others differ from the first; None where they have nothing in common."""
    from unruly.errors import ComparisonError  # noqa: PLC0415
    from unruly.findings.comparison import Side, compare  # noqa: PLC0415

    if len(analyses) < 2:
        return None
    try:
        return compare([Side(name, (it.run,)) for name, it in zip(names, analyses, strict=True)])
    except ComparisonError:
        return None
