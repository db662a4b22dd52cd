"""``unruly export``: a run for other viewers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import add_engine, open_for, write_text

if TYPE_CHECKING:
    import argparse

    from unruly.verbs.shared import Verbs


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    given = verbs.add_parser("export", help="a run as .hlog, .hgrm, .csv or .json")
    given.add_argument("directory", metavar="DIR", help="the directory of a run")
    given.add_argument("-o", "--output", metavar="FILE", type=Path, required=True)
    given.add_argument("--format", metavar="NAME", help="default: by the file's name")
    given.add_argument("--op", help="one operation only (hlog, hgrm)")
    given.add_argument("--latency", default="response", help="response or service (hlog, hgrm)")
    add_engine(given)
    given.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    from unruly import analyse, summary  # noqa: PLC0415
    from unruly.output import export  # noqa: PLC0415

    form = export.format_of(options.output, options.format)
    run = open_for(options.directory, options)
    if form == "csv":
        write_text(options.output, "")
        export.write_rows(run, options.output)
    elif form == "json":
        write_text(
            options.output,
            json.dumps(summary(analyse(run, pictures=False)), indent=1, allow_nan=False) + "\n",
        )
    else:
        lines = export.hlog_lines if form == "hlog" else export.hgrm_lines
        write_text(options.output, "\n".join(lines(run, options.latency, options.op)) + "\n")
    print(f"{form} in {options.output}")
    return 0
