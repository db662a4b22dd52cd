"""``unruly import``: another tool's output becomes a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from unruly.verbs.shared import Verbs


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    brought = verbs.add_parser("import", help="another tool's output becomes a run")
    brought.add_argument(
        "files", metavar="FILE", nargs="+", help="recognised by content; - is stdin"
    )
    place = brought.add_mutually_exclusive_group(required=True)
    place.add_argument("-o", "--output", metavar="DIR", type=Path, help="the run to make")
    place.add_argument(
        "--into", metavar="RUN", type=Path, help="lay collector logs or host samples beside a run"
    )
    brought.add_argument("--value", metavar="COLUMN", help="of the latencies, in a plain table")
    brought.add_argument("--unit", metavar="UNIT", help="of the latencies: ns, us, ms or s")
    brought.add_argument("--time", metavar="COLUMN", help="of the start times; none: do without")
    brought.add_argument("--time-unit", metavar="UNIT", help="where times are numbers")
    brought.add_argument("--op", metavar="COLUMN", help="that names the operation")
    brought.add_argument(
        "--factor", metavar="COLUMN", action="append", default=[], help="that makes cells; again"
    )
    brought.add_argument("--format", metavar="NAME", help="do not recognise: it is this one")
    brought.add_argument("--tag", help="the environment that was measured (default: imported)")
    brought.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    from unruly import import_file  # noqa: PLC0415

    done = import_file(
        options.files,
        options.into or options.output,
        into=bool(options.into),
        value=options.value,
        unit=options.unit,
        time=options.time,
        time_unit=options.time_unit,
        op=options.op,
        factors=options.factor,
        format=options.format,
        tag=options.tag,
    )
    for file in done.files:
        unit = f" in {file['unit']}" if file["unit"] else ""
        print(
            f"{file['name']}: {file['format']}{unit}, {file['lines']:,} read, "
            f"{file['refused']:,} refused"
        )
        for first in file["first_refused"]:
            print(f"  line {first['line']}: {first['reason']}")
    for sentence in done.missing:
        print(f"missing: {sentence}")
    rows = ", ".join(f"{count:,} {table}" for table, count in sorted(done.rows.items()))
    refused = sum(file["refused"] for file in done.files)
    formats = ", ".join(dict.fromkeys(file["format"] for file in done.files))
    print(
        f"imported {formats}: {rows}, {refused:,} lines refused; "
        f"next: unruly report {done.directory}"
    )
    return 0
