"""``unruly gate``: a run held to limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import WIDTH, add_engine, open_for, print_json, terminal, write_text

if TYPE_CHECKING:
    import argparse

    from unruly.verbs.shared import Verbs


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    held = verbs.add_parser("gate", help="hold a run to limits; for CI")
    held.add_argument("directory", metavar="DIR", help="the directory of a run")
    held.add_argument("limits", metavar="LIMITS", type=Path, help="a TOML file of [[limit]]")
    held.add_argument("--strict", action="store_true", help="undecided counts as broken")
    held.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML as well")
    held.add_argument("--json", action="store_true", help="print JSON instead")
    held.add_argument("--width", type=int, help=WIDTH)
    add_engine(held)
    held.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
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
