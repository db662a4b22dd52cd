"""``unruly gate``: a run held to limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import open_for, print_json, terminal, write_text

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import gate  # noqa: PLC0415
    from unruly.output.gate import gate_json, gate_text, junit  # noqa: PLC0415

    held = gate(open_for(options.directory, options), options.limits)
    analysis, outcomes = held.analysis, held.outcomes
    if options.junit:
        write_text(options.junit, junit(analysis, outcomes, strict=options.strict))
    if options.json:
        print_json(gate_json(analysis, outcomes))
    else:
        width, colour = terminal(options.width)
        print(gate_text(analysis, outcomes, width=width, colour=colour))
    return held.exit_code(strict=options.strict)
