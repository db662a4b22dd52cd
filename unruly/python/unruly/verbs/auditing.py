"""``unruly audit``: what the percentiles of other tools' files are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import print_json, reading, terminal

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import audit  # noqa: PLC0415
    from unruly.output.audit import audit_json, audit_text  # noqa: PLC0415

    found = audit(
        options.files,
        percentile=options.percentile,
        **reading(options),
    )
    if options.json:
        print_json(audit_json(found))
        return 0
    width, _ = terminal(options.width)
    print(audit_text(found, width=min(width, 100)))
    return 0
