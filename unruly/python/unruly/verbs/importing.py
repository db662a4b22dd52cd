"""``unruly import``: another tool's output becomes a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.errors import ParameterError
from unruly.verbs.shared import reading

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import import_file  # noqa: PLC0415

    if options.formats:
        from unruly.ingest.formats import listed  # noqa: PLC0415

        print(listed(), end="")
        return 0
    if not options.files:
        raise ParameterError(
            "unruly import", "names no file", "FILE...", "unruly import FILE -o DIR"
        )
    done = import_file(
        options.files,
        options.into or options.output,
        into=bool(options.into),
        **reading(options),
        factors=options.factor,
        tag=options.tag,
        services=options.service,
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
