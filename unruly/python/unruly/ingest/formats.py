"""Which formats there are, and which one a file is in: by its content, never by its name.

To add a format: a file beside this one with a ``FORMAT``, and a line in `FORMATS`.
"""

from __future__ import annotations

from difflib import SequenceMatcher
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
    llm_tools,
    matrix,
    memtier,
    molotov,
    oha,
    otlp,
    pgbench,
    ping,
    prometheus,
    proxy_json,
    proxy_logs,
    regex,
    sar,
    slow_logs,
    sockperf,
    stress,
    table,
    tool_histograms,
    vegeta,
    zipkin,
)
from unruly.ingest.sniff import sniff
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
    proxy_logs.ENVOY_LOG,
    proxy_logs.ALB_LOG,
    proxy_logs.TRAEFIK_LOG,
    proxy_json.TRAEFIK,
    proxy_json.CADDY,
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
    tool_histograms.BOMBARDIER,
    tool_histograms.LOCUST,
    tool_histograms.SYSBENCH_TEXT,
    prometheus.FORMAT,
    hlog.FORMAT,
    hgrm.FORMAT,
    histostat.FORMAT,
    stress.FORMAT,
    fortio.FORMAT,
    memtier.FORMAT,
    latte.FORMAT,
    llm_tools.GUIDELLM,
    llm_tools.VLLM,
    llm_tools.AIPERF,
    gclog.FORMAT,
    sar.FORMAT,
    dstat.FORMAT,
    zipkin.FORMAT,
    jaeger.FORMAT,
    otlp.FORMAT,
    json_rows.FORMAT,
    regex.FORMAT,
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
    near = max(names, key=lambda it: max(_likeness(name, it), _likeness(name, it.split("-")[0])))
    hint = f"--format {near}; unruly import --formats lists all"
    raise ParameterError("--format", f"is {name!r}", f"one of {', '.join(names)}", hint)


def _likeness(left: str, right: str) -> float:
    return SequenceMatcher(None, left, right).ratio()


def _recognises(form: Format, sample: Sample) -> bool:
    """Whether a format takes a file for its own. A field of another type is none of its files."""
    try:
        return form.recognises(sample)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False


def listed(formats: tuple[Format, ...] = FORMATS) -> str:
    """Return the formats that can be imported: a line for each, with its name and what it is."""
    width = max(len(it.name) for it in formats)
    return "".join(f"{it.name:{width}}  {it.gist}\n" for it in sorted(formats, key=_name))


def _name(form: Format) -> str:
    return form.name


def recognise(
    source: Source,
    options: Options,
    formats: tuple[Format, ...] = FORMATS,
    *,
    alone: bool = True,
) -> Format:
    """Return the one format that recognises the file, or that the user named.

    ``--value`` means a plain table: a user who names the column wants that one and not what a
    known format would take. With other files (not ``alone``), ``--value``, ``--regex`` and
    ``--format`` are not of a log of events or resources, and ``--value`` is not of a file without
    such a column.

    Raises
    ------
    IngestError
        When the file is empty, or none or several recognise it.
    """
    if not source.sample.head.strip():
        raise IngestError(source.where, "is empty", "a file with data", "look at what wrote it")
    if options.format is not None:
        asked = named(options.format, formats)
        return asked if alone else _context(source.sample, formats) or asked
    if options.regex is not None:
        return (None if alone else _context(source.sample, formats)) or regex.FORMAT
    if options.value and not source.sample.binary:
        found = None if alone else _known(source.sample, options.value, formats)
        # a format may have a use of its own for --value
        own = _fitting(source.sample, [it for it in formats if "--value" in it.takes])
        return found or own or _plain(source.sample, formats)
    return _only(source, formats)


def _plain(sample: Sample, formats: tuple[Format, ...]) -> Format:
    """Return the format of rows of which the user names the columns."""
    if json_rows.looks_like(sample):
        return json_rows.FORMAT
    return next(it for it in formats if it.fallback)


def _fitting(sample: Sample, formats: Sequence[Format]) -> Format | None:
    """Return the only one of the formats that recognises a file; None if none or several do."""
    fit = [it for it in formats if not it.fallback and _recognises(it, sample)]
    return fit[0] if len(fit) == 1 else None


def _context(sample: Sample, formats: tuple[Format, ...]) -> Format | None:
    """Return the format of a log of events or resources; None for another file."""
    return _fitting(sample, [it for it in formats if it.gives == "context"])


def _known(sample: Sample, value: str, formats: tuple[Format, ...]) -> Format | None:
    """Return the format of a file that is not meant by ``--value``; None if it is."""
    context = _context(sample, formats)
    if context is not None:
        return context
    if json_rows.looks_like(sample):
        has_value = json_rows.has_field(sample, value)
    else:
        found = sniff(sample, value)
        has_value = found is not None and value in found.layout.names
    return None if has_value else _fitting(sample, formats)


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


def _only(source: Source, formats: tuple[Format, ...]) -> Format:
    sample = source.sample
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
    special = [
        it for it in formats if not it.fallback and it not in (json_rows.FORMAT, regex.FORMAT)
    ]
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
