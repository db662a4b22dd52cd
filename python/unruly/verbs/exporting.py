"""``unruly export``: a run for other viewers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import add_engine, open_for, written

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
    from unruly import export  # noqa: PLC0415
    from unruly.output.export import format_of  # noqa: PLC0415

    form = format_of(options.output, options.format)
    run = open_for(options.directory, options)
    written(
        options.output,
        lambda: export(run, options.output, format=form, op=options.op, latency=options.latency),
    )
    print(f"{form} in {options.output}")
    return 0
