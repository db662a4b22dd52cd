"""``python -m unruly VERB``: parse, call, print; the binary ``unruly`` hands its verbs to this."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from unruly.errors import UnrulyError

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR_EXIT = 2
ADVICE_ROWS_MAX = 2_000_000
"""Of larger runs a report holds advice only when asked: it would take as long as all the rest."""


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return 0 when it was done and 2 after an error, with the message on stderr."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UnrulyError as error:
        print(f"unruly: {error}", file=sys.stderr)
        return ERROR_EXIT
    except BrokenPipeError:
        # whoever read has enough; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unruly",
        description="Verbs that analyse a run.",
        epilog="Exit codes: 0 fine, 1 a finding (a limit broken), 2 an error.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    told = verbs.add_parser("verdict", help="what can be promised, how unruly, why: one screen")
    told.add_argument("directory", metavar="DIR", help="the directory of a run")
    told.add_argument("--json", action="store_true", help="print summary.json instead")
    told.add_argument("--width", type=int, help="columns (default: the terminal's, else 100)")
    told.set_defaults(run=_verdict)
    pictured = verbs.add_parser("report", help="the same with pictures: one HTML file")
    pictured.add_argument("directories", metavar="DIR", nargs="+", help="directories of runs")
    pictured.add_argument("-o", "--output", type=Path, help="default: report.html in the first DIR")
    pictured.add_argument(
        "--advice", action="store_true", help="with the pictures of `advise` however many rows"
    )
    pictured.set_defaults(run=_report)
    held = verbs.add_parser("gate", help="hold a run to limits; for CI")
    held.add_argument("directory", metavar="DIR", help="the directory of a run")
    held.add_argument("limits", metavar="LIMITS", type=Path, help="a TOML file of [[limit]]")
    held.add_argument("--strict", action="store_true", help="undecided counts as broken")
    held.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML as well")
    held.add_argument("--json", action="store_true", help="print JSON instead")
    held.add_argument("--width", type=int, help="columns (default: the terminal's, else 100)")
    held.set_defaults(run=_gate)
    _add_advise(verbs)
    return parser


def _add_advise(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
        "--timeout", metavar="T", nargs="+", default=[], help="such as 40ms; asked about first"
    )
    advised.add_argument("--width", type=int, help="columns (default: the terminal's, else 100)")
    advised.set_defaults(run=_advise)


def _advise(options: argparse.Namespace) -> int:
    from unruly import advise, analyse, open_run  # noqa: PLC0415
    from unruly.advise import advice_json, advise_text  # noqa: PLC0415
    from unruly.findings.sla import duration_ns, read_sla  # noqa: PLC0415
    from unruly.stats import DEFAULT_SLA  # noqa: PLC0415

    sla = read_sla(options.sla) if options.sla else DEFAULT_SLA
    timeouts = [duration_ns("--timeout", "T", text) for text in options.timeout]
    run = open_run(options.directory)
    analysis = analyse(run)
    advice = advise(
        run,
        sla=sla,
        sla_name=options.sla.name if options.sla else "the default table",
        faults=options.faults,
        confidence=options.confidence,
        timeouts_ns=timeouts,
        trustworthy=analysis.trustworthy,
    )
    if options.output:
        from unruly.report import write_advice  # noqa: PLC0415

        _written(options.output, lambda: write_advice(analysis, advice, options.output))
    if options.json:
        print(json.dumps(advice_json(advice), indent=1, allow_nan=False))
        return 0
    width, colour = _terminal(options.width)
    print(advise_text(advice, analysis.doubts, width=width, colour=colour))
    return 0


def _gate(options: argparse.Namespace) -> int:
    from unruly import analyse, open_run  # noqa: PLC0415
    from unruly.findings.limits import judge, read_limits  # noqa: PLC0415
    from unruly.gate import exit_code, gate_json, gate_text, junit  # noqa: PLC0415

    limits = read_limits(options.limits)
    analysis = analyse(open_run(options.directory))
    outcomes = judge(analysis, limits)
    if options.junit:
        _write(options.junit, junit(analysis, outcomes, strict=options.strict))
    if options.json:
        print(json.dumps(gate_json(analysis, outcomes), indent=1, allow_nan=False))
    else:
        width, colour = _terminal(options.width)
        print(gate_text(analysis, outcomes, width=width, colour=colour))
    return exit_code(analysis, outcomes, strict=options.strict)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnrulyError(
            path,
            f"cannot be written: {error.strerror}",
            "a file in a directory that exists",
            "choose another",
        ) from error


def _terminal(asked: int | None) -> tuple[int, bool]:
    """Columns, and whether to colour."""
    terminal = sys.stdout.isatty()
    width = asked or (shutil.get_terminal_size((100, 40)).columns if terminal else 100)
    return width, terminal and "NO_COLOR" not in os.environ


def _verdict(options: argparse.Namespace) -> int:
    from unruly import analyse, open_run, summary, verdict  # noqa: PLC0415 - --help stays quick
    from unruly.summary import write_summary  # noqa: PLC0415

    analysis = analyse(open_run(options.directory))
    write_summary(analysis)
    if options.json:
        print(json.dumps(summary(analysis), indent=1, allow_nan=False))
        return 0
    width, colour = _terminal(options.width)
    print(verdict(analysis, width=width, colour=colour))
    return 0


def _report(options: argparse.Namespace) -> int:
    from unruly import advise, analyse, open_run  # noqa: PLC0415
    from unruly.report import write_report  # noqa: PLC0415
    from unruly.summary import write_summary  # noqa: PLC0415

    analyses = [analyse(open_run(directory)) for directory in options.directories]
    for analysis in analyses:
        write_summary(analysis)
    output = options.output or Path(options.directories[0]) / "report.html"
    advice = [
        advise(analysis.run, trustworthy=analysis.trustworthy)
        if analysis.cells and (options.advice or analysis.conservation.rows <= ADVICE_ROWS_MAX)
        else None
        for analysis in analyses
    ]
    print(_written(output, lambda: write_report(analyses, output, advice)))
    return 0


def _written(output: Path, write: Callable[[], Path]) -> Path:
    try:
        return write()
    except OSError as error:
        raise UnrulyError(
            output,
            f"cannot be written: {error.strerror}",
            "a file in a directory that exists",
            "choose another with -o",
        ) from error


if __name__ == "__main__":
    sys.exit(main())
