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

    from unruly.findings.comparison import Side
    from unruly.run import Run

ERROR_EXIT = 2
INTERACTIONS = "of a matrix: analysis of variance with those of every two factors"
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
    told.add_argument("--interactions", action="store_true", help=INTERACTIONS)
    _add_engine(told)
    told.set_defaults(run=_verdict)
    pictured = verbs.add_parser("report", help="the same with pictures: one HTML file")
    pictured.add_argument("directories", metavar="DIR", nargs="+", help="directories of runs")
    pictured.add_argument("-o", "--output", type=Path, help="default: report.html in the first DIR")
    pictured.add_argument(
        "--advice", action="store_true", help="with the pictures of `advise` however many rows"
    )
    pictured.add_argument("--interactions", action="store_true", help=INTERACTIONS)
    _add_engine(pictured)
    pictured.set_defaults(run=_report)
    held = verbs.add_parser("gate", help="hold a run to limits; for CI")
    held.add_argument("directory", metavar="DIR", help="the directory of a run")
    held.add_argument("limits", metavar="LIMITS", type=Path, help="a TOML file of [[limit]]")
    held.add_argument("--strict", action="store_true", help="undecided counts as broken")
    held.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML as well")
    held.add_argument("--json", action="store_true", help="print JSON instead")
    held.add_argument("--width", type=int, help="columns (default: the terminal's, else 100)")
    _add_engine(held)
    held.set_defaults(run=_gate)
    _add_import(verbs)
    _add_export(verbs)
    _add_compare(verbs)
    _add_papers(verbs)
    _add_advise(verbs)
    return parser


def _add_engine(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--engine",
        metavar="NAME",
        default="duckdb",
        help="what computes: duckdb (default), spark://HOST:PORT or local[N]",
    )
    verb.add_argument("--memory", metavar="SIZE", help="what it may hold, such as 3GB")


def _open(directory: str | os.PathLike[str], options: argparse.Namespace) -> Run:
    from unruly import open_run  # noqa: PLC0415

    return open_run(directory, engine=options.engine, memory=options.memory)


def _add_papers(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = verbs.add_parser("papers", help="findings of the five papers, judged by runs")
    told.add_argument("directories", metavar="RUN", nargs="*", help="runs to judge them by")
    told.add_argument("-o", "--output", metavar="FILE", type=Path, help="default: print it")
    _add_engine(told)
    told.set_defaults(run=_papers)


def _papers(options: argparse.Namespace) -> int:
    from unruly import analyse, papers  # noqa: PLC0415

    verdicts = papers.kept()
    if options.directories:
        runs = [analyse(_open(directory, options)) for directory in options.directories]
        verdicts = papers.remember(runs)
    text = papers.page(verdicts)
    if options.output:
        _write(options.output, text)
        print(options.output)
    else:
        print(text, end="")
    return 0


def _add_compare(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = verbs.add_parser("compare", help="is B's tail different from A's, with confidence")
    told.add_argument(
        "sides",
        metavar="[NAME=]DIR",
        nargs="+",
        help="a run, or a directory of runs; the first is what the others are compared with",
    )
    told.add_argument("--factor", help="the levels of this factor inside one run")
    told.add_argument("--op", help="one operation only")
    told.add_argument("--latency", default="response", help="response (default) or service")
    told.add_argument(
        "--allowance", type=float, help="how much single runs of one system may differ (0.25)"
    )
    told.add_argument("--json", action="store_true", help="print JSON instead")
    told.add_argument("-o", "--output", metavar="FILE", type=Path, help="the picture, as HTML")
    told.add_argument("--width", type=int, help="columns (default: the terminal's, else 100)")
    _add_engine(told)
    told.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    from unruly.compare import compare_json, compare_text, exit_code  # noqa: PLC0415
    from unruly.findings import comparison  # noqa: PLC0415

    if options.factor:
        if len(options.sides) > 1:
            raise UnrulyError("--factor", "and several runs", "one run", "leave the others out")
        _, path = comparison.alias_of(options.sides[0])
        found = comparison.compare_levels(
            _open(path, options), options.factor, latency=options.latency, op=options.op
        )
    else:
        found = comparison.compare(
            _sides(options.sides, options),
            latency=options.latency,
            op=options.op,
            allowance=comparison.ALLOWANCE if options.allowance is None else options.allowance,
        )
    if options.output:
        from unruly.report import comparison_sections, write_sections  # noqa: PLC0415

        names = list(dict.fromkeys(name for it in found.results for name in (it.a, it.b)))
        written = write_sections(
            f"{' and '.join(names[1:])} against {names[0]}",
            comparison_sections(found),
            options.output,
        )
    if options.json:
        print(json.dumps(compare_json(found), indent=1, allow_nan=False))
    else:
        width, colour = _terminal(options.width)
        print(compare_text(found, width=width, colour=colour))
        if options.output:
            print(written)
    return exit_code(found)


def _sides(texts: list[str], options: argparse.Namespace) -> list[Side]:
    """A run, or every run in a directory, for each name; a name that comes twice joins its runs."""
    from unruly.findings.comparison import Side, alias_of  # noqa: PLC0415

    paths: dict[str, list[Path]] = {}
    for text in texts:
        name, path = alias_of(text)
        inside = sorted(it.parent for it in Path(path).glob("*/manifest.json"))
        whole = (Path(path) / "manifest.json").is_file() or not inside
        paths.setdefault(name, []).extend([Path(path)] if whole else inside)
    return [Side(name, tuple(_open(it, options) for it in found)) for name, found in paths.items()]


def _add_export(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    given = verbs.add_parser("export", help="a run as .hlog, .hgrm, .csv or .json")
    given.add_argument("directory", metavar="DIR", help="the directory of a run")
    given.add_argument("-o", "--output", metavar="FILE", type=Path, required=True)
    given.add_argument("--format", metavar="NAME", help="default: by the file's name")
    given.add_argument("--op", help="one operation only (hlog, hgrm)")
    given.add_argument("--latency", default="response", help="response or service (hlog, hgrm)")
    _add_engine(given)
    given.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    from unruly import analyse, export, summary  # noqa: PLC0415

    form = export.format_of(options.output, options.format)
    run = _open(options.directory, options)
    if form == "csv":
        _write(options.output, "")
        export.write_rows(run, options.output)
    elif form == "json":
        _write(options.output, json.dumps(summary(analyse(run)), indent=1, allow_nan=False) + "\n")
    else:
        lines = export.hlog_lines if form == "hlog" else export.hgrm_lines
        _write(options.output, "\n".join(lines(run, options.latency, options.op)) + "\n")
    print(f"{form} in {options.output}")
    return 0


def _add_import(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    brought = verbs.add_parser("import", help="another tool's output becomes a run")
    brought.add_argument(
        "files", metavar="FILE", nargs="+", help="recognised by content; - is stdin"
    )
    place = brought.add_mutually_exclusive_group(required=True)
    place.add_argument("-o", "--output", metavar="DIR", type=Path, help="the run to make")
    place.add_argument(
        "--into", metavar="RUN", type=Path, help="lay collector logs or host samples beside a run"
    )
    brought.add_argument("--value", metavar="COLUMN", help="of the latencies, in a plain table")
    brought.add_argument("--unit", metavar="UNIT", help="of the latencies: ns, us, ms or s")
    brought.add_argument("--time", metavar="COLUMN", help="of the start times; none: do without")
    brought.add_argument("--time-unit", metavar="UNIT", help="where times are numbers")
    brought.add_argument("--op", metavar="COLUMN", help="that names the operation")
    brought.add_argument(
        "--factor", metavar="COLUMN", action="append", default=[], help="that makes cells; again"
    )
    brought.add_argument("--format", metavar="NAME", help="do not recognise: it is this one")
    brought.add_argument("--tag", help="the environment that was measured (default: imported)")
    brought.set_defaults(run=_import)


def _import(options: argparse.Namespace) -> int:
    from unruly.ingest import Options, import_files, join_files  # noqa: PLC0415
    from unruly.progress import Progress  # noqa: PLC0415

    progress = Progress()
    bring = join_files if options.into else import_files
    done = bring(
        options.files,
        options.into or options.output,
        Options(
            value=options.value,
            unit=options.unit,
            time=options.time,
            time_unit=options.time_unit,
            op=options.op,
            factors=tuple(options.factor),
            format=options.format,
            tag=options.tag,
        ),
        progress,
    )
    progress("")
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
    advised.add_argument("--width", type=int, help="columns (default: the terminal's, else 100)")
    _add_engine(advised)
    advised.set_defaults(run=_advise)


def _advise(options: argparse.Namespace) -> int:
    from unruly import advise, analyse  # noqa: PLC0415
    from unruly.advise import advice_json, advise_text  # noqa: PLC0415
    from unruly.findings.sla import duration_ns, read_sla  # noqa: PLC0415
    from unruly.stats import DEFAULT_SLA  # noqa: PLC0415

    sla = read_sla(options.sla) if options.sla else DEFAULT_SLA
    timeouts = [duration_ns("--timeout", "T", text) for text in options.timeout]
    run = _open(options.directory, options)
    analysis = analyse(run)
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
        from unruly.report import write_advice  # noqa: PLC0415

        _written(options.output, lambda: write_advice(analysis, advice, options.output))
    if options.json:
        print(json.dumps(advice_json(advice), indent=1, allow_nan=False))
        return 0
    width, colour = _terminal(options.width)
    print(advise_text(advice, analysis.doubts, width=width, colour=colour))
    return 0


def _gate(options: argparse.Namespace) -> int:
    from unruly import analyse  # noqa: PLC0415
    from unruly.findings.judging import judge  # noqa: PLC0415
    from unruly.findings.limits import read_limits  # noqa: PLC0415
    from unruly.gate import exit_code, gate_json, gate_text, junit  # noqa: PLC0415

    limits = read_limits(options.limits)
    analysis = analyse(_open(options.directory, options), pictures=False)
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
    from unruly import analyse, summary, verdict  # noqa: PLC0415 - --help stays quick
    from unruly.summary import write_summary  # noqa: PLC0415

    analysis = analyse(
        _open(options.directory, options), pictures=False, interactions=options.interactions
    )
    write_summary(analysis)
    if options.json:
        print(json.dumps(summary(analysis), indent=1, allow_nan=False))
        return 0
    width, colour = _terminal(options.width)
    print(verdict(analysis, width=width, colour=colour))
    return 0


def _report(options: argparse.Namespace) -> int:
    from unruly import advise, analyse  # noqa: PLC0415
    from unruly.report import prepare, write_report  # noqa: PLC0415
    from unruly.summary import write_summary  # noqa: PLC0415

    prepare()
    analyses = [
        analyse(_open(directory, options), interactions=options.interactions)
        for directory in options.directories
    ]
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
