"""``unruly report``: one HTML file of one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import (
    FINE_EXIT,
    finding_exit,
    open_for,
    print_slos,
    target_of,
    terminal,
    written,
)

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly.html import prepare  # noqa: PLC0415 - --help stays quick

    prepare()  # it works beside the imports, which take seconds
    from unruly import analyse, report, verdict  # noqa: PLC0415
    from unruly.base.comparison import alias_of  # noqa: PLC0415
    from unruly.output.summary import write_summary  # noqa: PLC0415

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
            print(verdict(analysis, width=width, colour=colour))
            print_slos(analysis, width)
    output = options.output or Path(named[0][1]) / "report.html"
    names = [name for name, _ in named]
    written(output, lambda: report(analyses, output, names=names, advice=options.advice))
    print(output)
    if not options.verdict:
        return FINE_EXIT
    return max(finding_exit(analysis) for analysis in analyses)
