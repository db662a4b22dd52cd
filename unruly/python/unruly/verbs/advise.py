"""``unruly advise``: timeouts, replicas, profit, hedges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.verbs.shared import open_for, print_json, terminal, written

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    from unruly import advise, analyse  # noqa: PLC0415
    from unruly.base.sla import duration_ns, read_sla  # noqa: PLC0415
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
