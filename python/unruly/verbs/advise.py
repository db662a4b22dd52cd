"""``unruly advise``: timeouts, replicas, profit, hedges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unruly.verbs.shared import WIDTH, add_engine, open_for, print_json, terminal, written

if TYPE_CHECKING:
    import argparse

    from unruly.verbs.shared import Verbs


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    advised = verbs.add_parser("advise", help="timeouts, replicas, profit, hedges: what to choose")
    advised.add_argument("directory", metavar="DIR", help="the directory of a run")
    advised.add_argument("--json", action="store_true", help="print JSON instead")
    advised.add_argument("-o", "--output", type=Path, help="write a page with pictures as well")
    advised.add_argument("--sla", metavar="FILE", type=Path, help="a TOML file of [[step]]")
    advised.add_argument(
        "--faults", metavar="F", type=int, default=1, help="crashes to survive (default 1)"
    )
    advised.add_argument(
        "--confidence", metavar="C", type=float, default=0.99,
        help="share of windows in which slow peers may be no more (default 0.99)",
    )  # fmt: skip
    advised.add_argument(
        "--crashed", metavar="SHARE", type=float, default=9e-4,
        help="of replicas that have crashed, for XFT (default 0.0009)",
    )  # fmt: skip
    advised.add_argument(
        "--byzantine", metavar="SHARE", type=float, default=1e-4,
        help="of replicas that are faulty otherwise, for XFT (default 0.0001)",
    )  # fmt: skip
    advised.add_argument(
        "--timeout", metavar="T", nargs="+", default=[], help="such as 40ms; asked about first"
    )
    advised.add_argument("--width", type=int, help=WIDTH)
    add_engine(advised)
    advised.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    from unruly import advise, analyse  # noqa: PLC0415
    from unruly.findings.sla import duration_ns, read_sla  # noqa: PLC0415
    from unruly.output.advice import advice_json, advise_text  # noqa: PLC0415
    from unruly.stats import DEFAULT_SLA  # noqa: PLC0415

    sla = read_sla(options.sla) if options.sla else DEFAULT_SLA
    timeouts = [duration_ns("--timeout", "T", text) for text in options.timeout]
    run = open_for(options.directory, options)
    analysis = analyse(run, pictures=bool(options.output), causes=False)
    advice = advise(
        run,
        sla=sla,
        sla_name=options.sla.name if options.sla else "the default table",
        faults=options.faults,
        confidence=options.confidence,
        timeouts_ns=timeouts,
        crashed=options.crashed,
        byzantine=options.byzantine,
        trustworthy=analysis.trustworthy,
    )
    if options.output:
        from unruly.html import write_advice  # noqa: PLC0415

        written(options.output, lambda: write_advice(analysis, advice, options.output))
    if options.json:
        print_json(advice_json(advice))
        return 0
    width, colour = terminal(options.width)
    print(advise_text(advice, analysis.doubts, width=width, colour=colour))
    return 0
