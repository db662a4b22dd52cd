"""Which formats there are, and which one a file is in: by its content, never by its name.

To add a format: a file beside this one with a ``FORMAT``, and a line in `FORMATS`.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError, ParameterError
from unruly.ingest import (
    access_log,
    dstat,
    fio,
    fortio,
    gatling,
    gclog,
    ghz,
    hgrm,
    histostat,
    hlog,
    http_tables,
    jaeger,
    jmeter,
    json_rows,
    k6,
    latte,
    matrix,
    memtier,
    molotov,
    oha,
    otlp,
    pgbench,
    ping,
    sar,
    slow_logs,
    sockperf,
    stress,
    table,
    tool_histograms,
    vegeta,
    zipkin,
)
from unruly.ingest.summaries import summary_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.ingest.model import Format, Options
    from unruly.ingest.source import Sample, Source

FORMATS: Final[tuple[Format, ...]] = (
    gatling.FORMAT,
    jmeter.CSV,
    jmeter.XML,
    k6.CSV,
    k6.JSON,
    matrix.FORMAT,
    molotov.FORMAT,
    oha.FORMAT,
    pgbench.FORMAT,
    sockperf.FORMAT,
    vegeta.CSV,
    vegeta.JSON,
    access_log.NGINX_LOG,
    access_log.APACHE_LOG,
    access_log.HAPROXY_LOG,
    slow_logs.POSTGRES_LOG,
    slow_logs.SLOW_LOG,
    http_tables.AB_TSV,
    http_tables.HEY_CSV,
    http_tables.H2LOAD_LOG,
    ghz.FORMAT,
    ghz.CSV,
    fio.LOG,
    fio.JSON,
    ping.FORMAT,
    tool_histograms.WRK,
    tool_histograms.AUTOCANNON_JSON,
    tool_histograms.LOCUST,
    tool_histograms.SYSBENCH_TEXT,
    hlog.FORMAT,
    hgrm.FORMAT,
    histostat.FORMAT,
    stress.FORMAT,
    fortio.FORMAT,
    memtier.FORMAT,
    latte.FORMAT,
    gclog.FORMAT,
    sar.FORMAT,
    dstat.FORMAT,
    zipkin.FORMAT,
    jaeger.FORMAT,
    otlp.FORMAT,
    json_rows.FORMAT,
    table.FORMAT,
)


LETTERS_LEAST: Final = 8


def named(name: str, formats: tuple[Format, ...] = FORMATS) -> Format:
    """Return the format of this name.

    Raises
    ------
    ParameterError
        When there is none; with the nearest one.
    """
    names = [it.name for it in formats]
    if name in names:
        return formats[names.index(name)]
    near = get_close_matches(name, names, 1, 0.0)
    hint = f"--format {near[0] if near else names[0]}"
    raise ParameterError("--format", f"is {name!r}", f"one of {', '.join(names)}", hint)


def _recognises(form: Format, sample: Sample) -> bool:
    """Whether a format takes a file for its own. A field of another type is none of its files."""
    try:
        return form.recognises(sample)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False


def recognise(source: Source, options: Options, formats: tuple[Format, ...] = FORMATS) -> Format:
    """Return the one format that recognises the file, or that the user named.

    ``--value`` means a plain table: who names the column wants that one and not what a known
    format would take.

    Raises
    ------
    IngestError
        When the file is empty, or none or several recognise it.
    """
    if not source.sample.head.strip():
        raise IngestError(source.where, "is empty", "a file with data", "look at what wrote it")
    if options.format is not None:
        return named(options.format, formats)
    return _only(source, options, formats)


def refuse_idle_flags(
    found: Sequence[tuple[Source, Format]],
    options: Options,
    formats: tuple[Format, ...] = FORMATS,
) -> None:
    """Refuse a flag that none of the files takes: it would do nothing, silently.

    Raises
    ------
    IngestError
        With what the formats take.
    """
    taken = frozenset[str]().union(*(it.takes for _, it in found))
    ignored = sorted(options.given() - taken)
    if not ignored:
        return
    source, first = found[0]
    others = [it.name for it in formats if set(ignored) <= it.takes and it is not first]
    hint = f"leave it out, or --format {others[-1]}" if others else "leave it out"
    raise IngestError(
        source.where,
        f"{first.name} knows its own columns and units and takes no {', '.join(ignored)}",
        f"only {', '.join(sorted(taken)) or 'no such flag'}",
        hint,
    )


def _only(source: Source, options: Options, formats: tuple[Format, ...]) -> Format:
    sample = source.sample
    if options.value and not sample.binary:
        if json_rows.looks_like(sample):
            return json_rows.FORMAT
        return next(it for it in formats if it.fallback)
    for fallback in (False, True):
        summary = summary_of(sample) if fallback else None
        if summary is not None:
            wanted = "a file with requests or with counts of their durations"
            raise IngestError(source.where, summary.what, wanted, summary.hint)
        fit = [it for it in formats if it.fallback is fallback and _recognises(it, sample)]
        if len(fit) == 1:
            return fit[0]
        if fit:
            names = [it.name for it in fit]
            raise IngestError(
                source.where,
                f"could be {' or '.join(names)}",
                "one format",
                f"say which: --format {names[0]}",
            )
    known = ", ".join(it.name for it in formats)
    what = "holds no text that is known here" if sample.binary else "is in no format known here"
    raise IngestError(source.where, what, f"one of {known}", _guess(sample, formats))


def _guess(sample: Sample, formats: tuple[Format, ...]) -> str:
    """Return a hint: the format of whose words most letters stand in the head of the file.

    Half of its words must be there, and more letters than any table has by chance.
    """
    head = sample.text
    special = [it for it in formats if not it.fallback and it is not json_rows.FORMAT]
    there = {it.name: [word for word in it.words if word in head] for it in special}
    letters = {
        it.name: sum(map(len, there[it.name]))
        for it in special
        if len(there[it.name]) >= len(it.words) / 2
    }
    best = max(letters, key=lambda name: letters[name], default="")
    is_near = bool(best) and letters[best] >= LETTERS_LEAST
    if not is_near and json_rows.looks_like(sample):
        return "of JSON with an object for each request, name the field: --value PATH --unit ms"
    if sample.binary or not is_near:
        return "save it as a table with a header and name --value and --unit"
    return f"it looks most like {best}: --format {best} explains why it does not fit"
