"""``unruly export``: a run for other viewers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import open_for, written

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
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
