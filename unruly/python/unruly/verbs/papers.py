"""``unruly papers``: what the five studies found, judged by runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import open_for, write_text

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import analyse, papers  # noqa: PLC0415

    if options.check:
        found = papers.check()
        print(found.text)
        return 1 if found.different else 0
    record = papers.kept()
    if options.directories:
        runs = [
            analyse(open_for(directory, options), pictures=False, causes=False)
            for directory in options.directories
        ]
        record = papers.remember(runs)
    text = papers.page(record)
    if options.output:
        write_text(options.output, text)
        print(options.output)
    else:
        print(text, end="")
    return 0
