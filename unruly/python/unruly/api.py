"""What the verbs do, as functions for a program or a notebook.

Each takes a run as `unruly.open_run` or `unruly.analyse` returns it, or the path of its directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from unruly.auditing import Audited, audit_files
from unruly.base import comparison
from unruly.base.analysis import Analysis
from unruly.base.comparison import Comparison, Side
from unruly.base.judging import judge
from unruly.base.limits import Limit, read_limits
from unruly.errors import ComparisonError, ParameterError
from unruly.ingest import Imported, Options, import_files, join_files
from unruly.ingest.log_format import with_format
from unruly.output.export import check_choice, format_of, hgrm_lines, hlog_lines, write_rows
from unruly.output.gate import exit_code, gate_text
from unruly.output.summary import summary
from unruly.progress import Progress
from unruly.run import Run, open_run
from unruly.shown import Sheet, Shown
from unruly.topics.advice.statistics import advise
from unruly.topics.analyse import analyse

if TYPE_CHECKING:
    from unruly.base.judging import Outcome
    from unruly.topics.advice.model import Advice

RunLike: TypeAlias = "Run | Analysis | str | os.PathLike[str]"
"""An opened run, an analysis, or the path of a run's directory."""
Name: TypeAlias = "str | os.PathLike[str]"
OUTCOMES: Final = ("broken", "undecided", "held")
"""From the worst on."""
ADVICE_ROWS_MAX: Final = 2_000_000
"""Of larger runs a report holds advice only when asked: it would take as long as all the rest."""


@dataclass(frozen=True, repr=False)
class Gate(Shown):
    """A run held to limits, as `unruly.gate` returns it. ``print(gate)`` prints every limit.

    Attributes
    ----------
    analysis : Analysis
        The analysis of the run.
    outcomes : tuple of Outcome
        One for each limit and each operation that it is about: ``limit``, ``cell``, ``op``,
        ``outcome`` (``"held"``, ``"broken"`` or ``"undecided"``), ``estimate``, ``low``, ``high``
        and a sentence. Latencies are in ns.
    """

    analysis: Analysis
    outcomes: tuple[Outcome, ...]

    @property
    def outcome(self) -> str:
        """``"spoiled"`` when the run cannot be trusted, else the worst outcome of a limit."""
        if not self.analysis.trustworthy:
            return "spoiled"
        found = {it.outcome for it in self.outcomes}
        return next((name for name in OUTCOMES if name in found), "held")

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the exit code of ``unruly gate``; with `strict` undecided counts as broken."""
        return exit_code(self.analysis, self.outcomes, strict=strict)

    def __str__(self) -> str:
        return gate_text(self.analysis, self.outcomes)

    def _sheet(self) -> Sheet:
        rows = [(it.limit.name, it.op, it.outcome, it.sentence) for it in self.outcomes]
        name = self.analysis.run.name
        counts = ", ".join(
            f"{sum(it.outcome == name for it in self.outcomes)} {name}" for name in OUTCOMES
        )
        return Sheet(
            f"{name}: {self.outcome}; {counts}", ("limit", "operation", "outcome", "why"), rows
        )


def compare(
    *runs: RunLike | Sequence[RunLike],
    names: Sequence[str] | None = None,
    factor: str | None = None,
    latency: str = "response",
    op: str | None = None,
    allowance: float = comparison.ALLOWANCE,
) -> Comparison:
    """Compare latencies: are the other runs slower or faster than the first.

    Parameters
    ----------
    *runs : Run, Analysis, path-like, or a sequence of them
        Each argument is one side: a run, several runs of the same system, or a directory of runs.
        The first side is the one that the others are compared with.
    names : sequence of str, optional
        The names of the sides. By default the last part of each path.
    factor : str, optional
        Compare the levels of this factor inside one run instead.
    latency : str
        ``"response"`` (from the scheduled time) or ``"service"`` (from the moment of sending).
    op : str, optional
        One operation only.
    allowance : float
        For one run of each side: the share by which two runs of one system may differ. A single
        run cannot show how much runs differ by chance. 0.25 by default.

    Returns
    -------
    Comparison
        ``results`` has one entry for each operation: its ``outcome`` (``"different"``, ``"not
        shown"`` or ``"undecided"``), a sentence, and for each quantile both values (ns) and their
        ratio with its interval. ``print(unruly.compare_text(comparison))`` prints all of it.

    Raises
    ------
    ComparisonError
        Fewer than two sides, nothing that both have, or names that do not fit.
    RunError
        A path is not a run.

    Examples
    --------
    >>> import unruly
    >>> found = unruly.compare("runs/demo", "runs/demo", names=["before", "after"], op="disk")
    >>> found.different, found.results[0].outcome
    (False, 'not shown')
    """
    if factor is not None:
        if len(runs) != 1:
            raise ComparisonError(
                "factor", f"and several runs, {len(runs)}", "one run", "leave the others out"
            )
        if allowance != comparison.ALLOWANCE:
            raise ComparisonError(
                "allowance", "and a factor", "one of them",
                "the levels of one run have no allowance: their repeats show how much runs differ",
            )  # fmt: skip
        (run,) = _runs_of(runs[0])
        return comparison.compare_levels(run, factor, latency=latency, op=op)
    sides = [_runs_of(side) for side in runs]
    called = list(names) if names is not None else [held[0].path.name for held in sides]
    if len(called) != len(sides):
        raise ComparisonError("names", f"are {len(called)}", f"{len(sides)}", "a name for each run")
    if len(set(called)) < len(called):
        raise ComparisonError(
            "names", f"are not unique: {', '.join(called)}", hint='names=["before", "after"]'
        )
    return comparison.compare(
        [Side(name, held) for name, held in zip(called, sides, strict=True)],
        latency=latency,
        op=op,
        allowance=allowance,
    )


def gate(run: RunLike, limits: Name | Sequence[Limit]) -> Gate:
    """Hold a run to limits: each is held, broken or undecided, with 95 % confidence.

    Parameters
    ----------
    run : Run, Analysis or path-like
        The run to judge. An analysis is used as it is; else one is made without pictures.
    limits : path-like, or a sequence of Limit
        A TOML file of ``[[limit]]`` tables, or limits made by ``unruly.Limit``, whose ``at_most``
        is in ns for a latency.

    Returns
    -------
    Gate
        ``print(gate)`` prints a line for each limit; ``outcome`` is the worst of them.

    Raises
    ------
    LimitError
        The file cannot be read, or a limit is about an operation that the run does not have.
    RunError
        The path is not a run.

    Examples
    --------
    >>> import unruly
    >>> limit = unruly.Limit("fast enough", "p99", at_most=50e6, op="disk")
    >>> unruly.gate("runs/demo", [limit]).outcome
    'held'
    """
    wanted = read_limits(Path(limits)) if isinstance(limits, str | os.PathLike) else list(limits)
    analysis = run if isinstance(run, Analysis) else None
    if analysis is None:
        analysis = analyse(_opened(run), pictures=False, causes=False)
    return Gate(analysis, tuple(judge(analysis, wanted)))


def import_file(
    path: Name | Sequence[Name],
    out: Name,
    *,
    into: bool = False,
    value: str | None = None,
    unit: str | None = None,
    time: str | None = None,
    time_unit: str | None = None,
    op: str | None = None,
    factors: Sequence[str] = (),
    format: str | None = None,
    tag: str | None = None,
    services: Sequence[str] = (),
    time_is: str | None = None,
    status: str | None = None,
    failed_if: Sequence[str] = (),
    regex: str | None = None,
    log_format: str | None = None,
) -> Imported:
    r"""Make a run of another tool's output. The format is recognised by the content.

    Parameters
    ----------
    path : path-like, or a sequence of them
        One file, or several that become one run. ``"-"`` is standard input.
    out : path-like
        The directory of the run to make. It must not exist, or be empty.
    into : bool
        `out` is a run that exists: put collector logs or host samples beside it.
    value, unit : str, optional
        The column of the latencies in a plain table, and their unit: ns, us, ms or s.
    time, time_unit : str, optional
        The column of the times (``"none"``: the table has none), and their unit.
    op : str, optional
        The column that names the operation.
    factors : sequence of str
        Columns whose values make cells.
    format : str, optional
        The name of the format, when it shall not be recognised.
    tag : str, optional
        The environment that was measured.
    services : sequence of str
        Services of a capture of packets, such as ``"web=tcp://10.0.0.2:443"``; by default those
        that its connections lead to.
    time_is : str, optional
        Which moment of a row its time is: ``"start"`` (the default) or ``"end"``.
    status : str, optional
        The column of the status. HTTP statuses from 400 on, and words such as ``error``, are
        failures.
    failed_if : sequence of str
        Conditions of which each makes a row a failure, such as ``"status>=400"`` or ``"error!="``.
    regex : str, optional
        A pattern for each line. Its named groups are the columns: ``value`` is needed, and
        ``time``, ``op`` and ``status`` are used where they are.
    log_format : str, optional
        The format string of nginx or Apache httpd that wrote the lines.

    Returns
    -------
    Imported
        What was read, and what the source did not have. ``unruly.open_run`` takes it as a path.

    Raises
    ------
    IngestError
        A file is not recognised, cannot be read, or more than 1 % of its lines cannot; or the
        directory is taken. Nothing is left behind.
    ParameterError
        An option is out of its range.

    Examples
    --------
    >>> import unruly
    >>> from pathlib import Path
    >>> _ = Path("latencies.csv").write_text("elapsed_ms\n" + "12\n15\n11\n" * 100)
    >>> imported = unruly.import_file(
    ...     "latencies.csv", "runs/imported", value="elapsed_ms", unit="ms", time="none"
    ... )
    >>> imported.rows
    {'requests': 300}
    >>> unruly.open_run(imported).status
    'imported'
    """
    files = [path] if isinstance(path, str | os.PathLike) else list(path)
    progress = Progress()
    if into and tag is not None:
        raise ParameterError("tag", "is of a new run", "a run that has one already", "leave it out")
    bring = join_files if into else import_files
    options = Options(
        value=value,
        unit=unit,
        time=time,
        time_unit=time_unit,
        op=op,
        factors=tuple(factors),
        format=format,
        tag=tag,
        services=tuple(services),
        time_is=time_is,
        status=status,
        failed_if=tuple(failed_if),
        regex=regex,
    )
    options = with_format(log_format, options) if log_format else options
    done = bring([os.fspath(it) for it in files], Path(out), options, progress)
    progress("")
    return done


def audit(
    path: Name | Sequence[Name],
    *,
    percentile: float = 99,
    value: str | None = None,
    unit: str | None = None,
    time: str | None = None,
    time_unit: str | None = None,
    time_is: str | None = None,
    op: str | None = None,
    status: str | None = None,
    failed_if: Sequence[str] = (),
    regex: str | None = None,
    log_format: str | None = None,
    format: str | None = None,
) -> list[Audited]:
    r"""Judge what a percentile in the files of other tools is worth.

    Parameters
    ----------
    path : path-like, or a sequence of them
        Files in any format that `import_file` reads, or run directories.
    percentile : float
        Between 0 and 100.
    value, unit, time, time_unit, time_is, op, status, failed_if, regex, log_format, format
        As of `import_file`.

    Returns
    -------
    list of Audited
        One for each operation of each file: its percentile, the bounds that tools for independent
        requests would give, how often such bounds hold, and the bounds that the file supports.
        Times are in ns; None is what the file cannot say. There is no NaN.

    Raises
    ------
    IngestError, RunError
        A file is not recognised or cannot be read.
    ParameterError
        `percentile` or an option is out of its range.

    Notes
    -----
    Do not use it for a file whose rows are sorted by latency and have no times.

    Examples
    --------
    >>> import unruly
    >>> from pathlib import Path
    >>> _ = Path("took.csv").write_text("elapsed_ms\n" + "12\n15\n11\n13\n" * 100)
    >>> (found,) = unruly.audit("took.csv", time="none")
    >>> found.n, found.estimate
    (400, 15000000.0)
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    options = Options(
        value=value,
        unit=unit,
        time=time,
        time_unit=time_unit,
        time_is=time_is,
        op=op,
        status=status,
        failed_if=tuple(failed_if),
        regex=regex,
        format=format,
    )
    options = with_format(log_format, options) if log_format else options
    return audit_files(paths, options, percentile / 100)


def export(
    run: RunLike,
    path: Name,
    *,
    format: str | None = None,
    op: str | None = None,
    latency: str = "response",
) -> Path:
    """Write the measured requests of a run for another program.

    Parameters
    ----------
    run : Run, Analysis or path-like
        The run to write.
    path : path-like
        The file to write.
    format : str, optional
        ``"hlog"`` or ``"hgrm"`` (HdrHistogram's log and its percentiles), ``"csv"`` (every request)
        or ``"json"`` (the summary). By default the end of the file's name.
    op : str, optional
        One operation only; of ``hlog`` and ``hgrm``.
    latency : str
        ``"response"`` or ``"service"``; of ``hlog`` and ``hgrm``.

    Returns
    -------
    pathlib.Path
        The file that was written.

    Raises
    ------
    ExportError
        No such format, operation or latency, or no request was answered.
    OSError
        The file cannot be written.

    Notes
    -----
    Failed requests have no latency: they are in no histogram, whose first lines give their number.
    Latencies are in ns in ``hlog``, ``csv`` and ``json``, and in ms in ``hgrm``.

    Examples
    --------
    >>> import unruly
    >>> unruly.export("runs/demo", "disk.hgrm", op="disk").name
    'disk.hgrm'
    """
    file, opened = Path(path), _opened(run)
    form = format_of(file, format)
    check_choice(form, op, latency)
    if form == "csv":
        file.write_text("", encoding="utf-8")
        write_rows(opened, file)
        return file
    if form == "json":
        analysis = run if isinstance(run, Analysis) else analyse(opened, pictures=False)
        text = json.dumps(summary(analysis), indent=1, allow_nan=False)
    else:
        text = "\n".join((hlog_lines if form == "hlog" else hgrm_lines)(opened, latency, op))
    file.write_text(text + "\n", encoding="utf-8")
    return file


def report(
    runs: RunLike | Sequence[RunLike],
    out: Name | None = None,
    *,
    names: Sequence[str] = (),
    advice: bool = False,
) -> Path:
    """Write the report of one run, or of several that are compared: one HTML file.

    Parameters
    ----------
    runs : Run, Analysis, path-like, or a sequence of them
        An analysis is used as it is; others are analysed first. Several runs are compared with the
        first.
    out : path-like, optional
        The file to write; its directory is made. By default ``report.html`` in the first run.
    names : sequence of str, optional
        What several runs are called. By default the environment or the plan of each.
    advice : bool
        With the figures of `unruly.advise` for any run. By default only a small run of a group that
        can be trusted has them.

    Returns
    -------
    pathlib.Path
        The file that was written. It opens in a browser without a network.

    Raises
    ------
    RunError
        A path is not a run.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import unruly
    >>> unruly.report("runs/demo", "page.html").name
    'page.html'
    """
    from unruly.html import prepare  # noqa: PLC0415 - only a page needs it

    prepare()  # it bundles what draws the figures while the runs are analysed
    from unruly.html import write_report  # noqa: PLC0415 - it imports Altair

    several = isinstance(runs, Sequence) and not isinstance(runs, str)
    held: list[RunLike] = list(runs) if several else [runs]  # type: ignore[arg-type, list-item]
    analyses = [it if isinstance(it, Analysis) else analyse(_opened(it)) for it in held]
    return write_report(
        analyses,
        Path(out) if out is not None else analyses[0].run.path / "report.html",
        [_advice(analysis, asked=advice) for analysis in analyses],
        names=names,
        comparison=_compared(names or [it.run.name for it in analyses], analyses),
    )


def _advice(analysis: Analysis, *, asked: bool) -> Advice | None:
    """Return the advice that belongs on the page.

    Timeouts, replicas and hedges concern a group whose members observe each other. A run of clients
    and servers gets this advice only if `asked`.
    """
    if not analysis.cells:
        return None
    trustworthy = analysis.trustworthy
    if asked:
        return advise(analysis.run, trustworthy=trustworthy)
    small = analysis.conservation.rows <= ADVICE_ROWS_MAX
    if not (small and trustworthy and analysis.meshed):
        return None
    found = advise(analysis.run, trustworthy=trustworthy)
    # the page has no table of prices, so the profit of requests is not known
    return replace(found, profit=replace(found.profit, rows=(), absent=()))


def _compared(names: Sequence[str], analyses: Sequence[Analysis]) -> Comparison | None:
    """Return whether the others differ from the first; None where they have nothing in common."""
    if len(analyses) < 2:
        return None
    sides = [Side(name, (it.run,)) for name, it in zip(names, analyses, strict=True)]
    try:
        return comparison.compare(sides)
    except ComparisonError:
        return None


def runs_in(path: Name) -> list[Path]:
    """Return the directories of runs at a path: itself, or every run directly inside it."""
    root = Path(path)
    inside = sorted(it.parent for it in root.glob("*/manifest.json"))
    return [root] if (root / "manifest.json").is_file() or not inside else inside


def _opened(run: RunLike) -> Run:
    if isinstance(run, Analysis):
        return run.run
    return run if isinstance(run, Run) else open_run(run)


def _runs_of(side: Any) -> tuple[Run, ...]:
    """The runs of one side of a comparison."""
    if isinstance(side, str | os.PathLike):
        return tuple(open_run(it) for it in runs_in(side))
    several = side if isinstance(side, Sequence) else [side]
    if not several:
        raise ComparisonError("compare", "a side has no run", "one or more", "leave it out")
    return tuple(_opened(it) for it in several)
