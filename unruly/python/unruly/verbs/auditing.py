"""``unruly audit``: what the percentiles of other tools' files are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import FINE_EXIT, print_json, reading, terminal, written

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    if options.output:
        from unruly.html import prepare  # noqa: PLC0415 - --help stays quick

        prepare()  # it works beside the imports, which take seconds
    from unruly import audit  # noqa: PLC0415
    from unruly.output.audit import audit_json, audit_text  # noqa: PLC0415

    found = audit(
        options.files,
        percentile=options.percentile,
        **reading(options),
    )
    if options.output:
        from unruly.html import write_audit  # noqa: PLC0415

        written(options.output, lambda: write_audit(found, options.output))
    if options.json:
        print_json(audit_json(found))
        return FINE_EXIT
    width, _ = terminal(options.width)
    print(audit_text(found, width=min(width, 100)))
    if options.output:
        print(options.output)
    return FINE_EXIT
