"""From files to a run: recognise each file, read it, write its rows, report missing data.

Each of several files with latencies becomes a cell of its own (factor ``file``), because separate
measurements must not be mixed. Events and resources of other files are added to the cells that they
overlap in time, or to the only cell.
"""

from __future__ import annotations

import csv
import math
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unruly.errors import IngestError, UnrulyError
from unruly.ingest.capture import check_alone, is_capture, read_capture
from unruly.ingest.columns import (
    array,
    bounded,
    cell_name,
    cells_of,
    codes_of,
    is_scalar,
    plain_names,
    sound_rows,
)
from unruly.ingest.formats import recognise, refuse_idle_flags
from unruly.ingest.model import Events, Figures, Histograms, Requests, Resources, Spans
from unruly.ingest.source import STDIN, open_source
from unruly.ingest.tally import OPS_MAX, Tally, Tick
from unruly.ingest.writer import HOST, Names, RunWriter, free
from unruly.shown import Sheet, Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from unruly.ingest.model import Batch, Column, Format, Options
    from unruly.ingest.source import Source

UNPLANNED: Final = (
    "the source has no intended times: waiting before the send is not in these latencies"
)
TIMELESS: Final = (
    "the source has no times: rows are laid end to end in their order, so stability over time "
    "cannot be judged, and intervals rely on that order"
)
PAUSES: Final = (
    "no file has latencies: the pauses themselves are measured, each as a request of its own kind"
)
TELL_SECONDS: Final = 2.0
COUNTS_MAX: Final = 2.0**53
"""As a double counts no further."""
UNEXPECTED: Final = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    csv.Error, pa.ArrowException,
)  # fmt: skip
"""What a reader ends in when a field is not as the format has it."""
TOLD_MAX: Final = 200
"""Characters of a library's complaint."""
TICKS_SHOWN: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


@dataclass(frozen=True, repr=False)
class Imported(Shown):
    """What became of the files. ``unruly.open_run`` takes it as the path of the run."""

    directory: Path
    files: list[dict[str, Any]]
    """As they stand in the manifest, under ``provenance``."""
    rows: dict[str, int]
    """By table."""
    missing: list[str]

    def __fspath__(self) -> str:
        return str(self.directory)

    def _sheet(self) -> Sheet:
        rows = ", ".join(f"{count:,} {table}" for table, count in sorted(self.rows.items()))
        refused = sum(file["refused"] for file in self.files)
        return Sheet(
            f"{rows}; {refused:,} lines refused; at {self.directory}",
            ("file", "format", "lines", "refused"),
            [
                (it["name"], it["format"], f"{it['lines']:,}", f"{it['refused']:,}")
                for it in self.files
            ],
            "; ".join(self.missing),
        )


@dataclass
class File:
    """One file while it is imported."""

    source: Source
    format: Format
    factors: dict[str, str]
    tick: Tick = field(default_factory=Tick)
    cursor_ns: int = 0
    """Where the next row without a time is laid."""
    requests: int = 0
    before: int = 0
    """Requests of all files before this one."""

    @property
    def sources(self) -> list[Source]:
        """Its source, and the later ones of the same measurement."""
        return [self.source, *self.source.later]


def import_files(
    paths: Sequence[str],
    directory: Path,
    options: Options,
    progress: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Import files as one run.

    Parameters
    ----------
    paths : sequence of str
        Files in any of `formats.FORMATS`; ``-`` is standard input.
    directory : Path
        The directory of the run; must not exist, or be empty.
    options : Options
        The user's options for these files.
    progress : callable, optional
        Called from time to time with the current step as text.

    Returns
    -------
    Imported

    Raises
    ------
    IngestError
        A file is not recognised, cannot be read, or over 1 % of its lines cannot; the directory
        is taken. Nothing is left behind.
    ParameterError
        An option is out of its range.
    """
    free(directory)
    if len(set(paths)) < len(paths):
        twice = next(path for path, times in Counter(paths).items() if times > 1)
        raise IngestError(twice, "is named twice", "each file once", "leave one out")
    if any(is_capture(path) for path in paths):
        return _import_capture(paths, directory, options)
    with ExitStack() as stack:
        files = opened(paths, options, stack)
        first = files[0].source.name
        name = first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"
        run = f"imported-{time.time_ns():x}"
        tag = options.tag or "imported"
        with RunWriter(directory, run=run, name=name, tag=tag) as writer:
            work = Work(writer, options, progress)
            work.pauses = all(it.format.gives != "latencies" for it in files)
            # events and resources last: they are laid beside cells that are known by then
            for file in sorted(files, key=lambda it: it.format.gives != "latencies"):
                work.read(file)
            if not work.tally.figures and not work.tally.rows.get("histograms"):
                raise IngestError(
                    files[0].source.where,
                    "holds samples of a host and no latencies",
                    "a file of latencies beside it",
                    "name one too, or lay it beside a run with --into RUN",
                )
            missing = work.missing(files)
            about = [it for file in files for it in provenance(file)]
            writer.finish(work.manifest(about, missing))
            return Imported(directory, about, work.tally.rows, missing)


def _import_capture(paths: Sequence[str], directory: Path, options: Options) -> Imported:
    check_alone(paths, options)
    name, tag = Path(paths[0]).name, options.tag or "imported"
    with RunWriter(directory, run=f"imported-{time.time_ns():x}", name=name, tag=tag) as writer:
        found = read_capture(paths[0], writer, options)
        writer.finish({
            **{key: found[key] for key in ("started_ns", "ended_ns", "missing")},
            "planned_ns": found["ended_ns"] - found["started_ns"],
            "processes": [],
            "counts": Tally().counts(),
            "timeless": [],
            "provenance": [found["provenance"]],
            "imported": [],
        })  # fmt: skip
        rows = {"turnarounds": int(found["rows"])}
        return Imported(directory, [found["provenance"]], rows, found["missing"])


def opened(paths: Sequence[str], options: Options, stack: ExitStack) -> list[File]:
    """Open and recognise files; the stack closes them."""
    names = [("stdin" if path == STDIN else Path(path).name) for path in paths]
    files = []
    for place, path in enumerate(paths):
        times = names[:place].count(names[place])
        source = open_source(path, f"{names[place]}#{times + 1}" if times else names[place])
        stack.callback(source.close)
        files.append((source, recognise(source, options, alone=len(paths) == 1)))
    refuse_idle_flags(files, options)
    files = _together(files)
    several = sum(found.gives == "latencies" for _, found in files) > 1
    return [
        File(source, found, {"file": source.name} if several else {}) for source, found in files
    ]


def _together(files: list[tuple[Source, Format]]) -> list[tuple[Source, Format]]:
    """Put the files of one measurement (`Format.series`) into the first of them."""
    first: dict[str, Source] = {}
    kept = []
    for source, found in files:
        if found.series and found.name in first:
            first[found.name].later.append(source)
        else:
            first[found.name] = source
            kept.append((source, found))
    return kept


class Work:
    """Batches become rows."""

    def __init__(
        self, writer: RunWriter, options: Options, progress: Callable[[str], None]
    ) -> None:
        self.writer, self.options, self.progress = writer, options, progress
        self.tally = Tally()
        self.pauses = False
        """Nothing but events: they are measured themselves."""
        self.strict = False
        """What overlaps no cell in time is an error."""
        self.names: dict[str, Names] = {}
        self.timeless: set[str] = set()
        self.told_at = time.monotonic()

    def read(self, file: File) -> None:
        """Read one file to its end.

        Raises
        ------
        IngestError
            When it is not as the tool writes it, nothing in it can be imported, or over 1 % of its
            lines cannot.
        """
        try:
            self._read(file)
        except UnrulyError:
            raise
        except UNEXPECTED as error:
            # A field that is missing, of another type or out of range: no reader looks for each.
            said = " ".join(str(error).split())[:TOLD_MAX]
            raise IngestError(
                file.source.where,
                f"does not read as {file.format.name}: {type(error).__name__}: {said}",
                "a file as that tool writes it",
                "copy it again, whole; if it is, report this with the file",
            ) from error

    def _read(self, file: File) -> None:
        source, seen = file.source, 0
        file.before = self.tally.rows.get("requests", 0)
        for batch in file.format.read(source, self.options):
            if hasattr(batch, "op"):
                batch = replace(batch, op=plain_names(batch.op))  # noqa: PLW2901 - the same, printable
            seen += self._take(file, batch)
            source.complaints.check(ended=False)
            if time.monotonic() - self.told_at > TELL_SECONDS:
                self.told_at = time.monotonic()
                self.progress(f"{source.name}: {seen:,} rows, {source.size / 1e6:,.0f} MB")
        for part in file.sources:
            part.drain()
            part.complaints.check(ended=True)
        if not seen:
            raise IngestError(
                source.where,
                f"no rows: recognised as {file.format.name}, but nothing in it can be imported",
                "at least one value",
                "is it only a header, or were all requests left out?",
            )
        if file.tick.coarse_ns:
            source.lacks(f"the clock ticks in steps of {_tick(file.tick.coarse_ns)}")

    def _take(self, file: File, batch: Batch) -> int:
        match batch:
            case Requests():
                return self._requests(file, batch)
            case Histograms():
                return self._histograms(file, batch)
            case Spans():
                return self._spans(file, batch)
            case Events() | Resources():
                return self._context(file, batch)
            case Figures():
                cell = self.writer.cell({**file.factors, **batch.factors}, file.source.where)
                values = {name: it for name, it in batch.values.items() if math.isfinite(it)}
                for name in sorted(batch.values.keys() - values.keys()):
                    file.source.lacks(f"its {name} of {batch.op} is no finite number")
                self.tally.told.setdefault((cell, batch.op), {}).update(values)
                return 0
            case _:
                assert_never(batch)

    def _requests(self, file: File, batch: Requests) -> int:
        columns, rows = sound_rows(batch, file.source.complaints)
        if not rows:
            return 0
        duration = array(columns["duration_ns"], rows, pa.int64())
        lengths = np.asarray(pc.fill_null(duration, 0))
        started = self._started(file, columns, lengths)
        if columns["intended_ns"] is None:
            file.source.lacks(UNPLANNED)
            intended = started
        else:
            intended = pc.coalesce(array(columns["intended_ns"], rows, pa.int64()), started)
        status = array(columns["status"], rows, pa.string())
        answered = np.asarray(pc.equal(status, "ok")).astype(bool)
        file.tick.add(lengths[answered])
        client = columns["client"] if columns["client"] is not None else file.source.name
        request = columns["request"]
        if request is None:
            request = np.arange(file.requests, file.requests + rows)
        elif not is_scalar(request):
            request = np.asarray(request)
        cells = self._cells(file, columns["factors"], rows)
        if columns["started_ns"] is None:
            self.timeless.update(pc.unique(cells).to_pylist())
        made = {
            "cell": cells,
            "phase": "measure",
            "process": file.source.name,
            "op": array(columns["op"], rows, pa.string()),
            "client": self._numbers("client", client, rows, file),
            "server": self._numbers("server", columns["server"], rows, file),
            "request": request + file.before,
            "attempt": bounded(columns["attempt"], rows, pa.uint8()),
            "connection": bounded(columns["connection"], rows, pa.uint32()),
            "key": columns["key"],
            "intended_ns": intended,
            "sent_ns": started,
            "received_ns": pc.add(started, duration),
            "server_received_ns": columns["server_received_ns"],
            "server_sent_ns": columns["server_sent_ns"],
            "sent_bytes": bounded(columns["sent_bytes"], rows, pa.uint32()),
            "received_bytes": bounded(columns["received_bytes"], rows, pa.uint32()),
            "status": status,
            "answered": pa.array(answered),
        }
        file.requests += rows
        self.writer.add("requests", made, rows)
        self.tally.add_requests(made)
        self._count("requests", rows)
        if len(self.tally.figures) > OPS_MAX:
            raise IngestError(
                file.source.where,
                f"more than {OPS_MAX:,} operations",
                "a few kinds of requests",
                "choose a column of few values with --op, or a constant one",
            )
        return rows

    def _started(self, file: File, columns: Mapping[str, Any], lengths: Any) -> pa.Array:
        if columns["started_ns"] is not None:
            return array(columns["started_ns"], len(lengths), pa.int64())
        file.source.lacks(TIMELESS)
        if file.cursor_ns + float(lengths.sum(dtype=np.float64)) > 2**62:
            raise IngestError(
                file.source.where,
                "its durations add up to more than 146 years",
                "latencies",
                "is --unit right, and is --value the column of the latencies?",
            )
        ends = file.cursor_ns + np.cumsum(lengths)
        file.cursor_ns = int(ends[-1])
        return pa.array(ends - lengths)

    def _histograms(self, file: File, batch: Histograms) -> int:
        rows = _length(batch.count, batch.low_ns, batch.started_ns)
        cells = self._cells(file, batch.factors, rows)
        times = {
            name: array(getattr(batch, name), rows, pa.int64())
            for name in ("started_ns", "ended_ns")
        }
        bins = {
            "low_ns": array(batch.low_ns, rows, pa.float64()),
            "high_ns": array(batch.high_ns, rows, pa.float64()),
            "count": array(batch.count, rows, pa.float64()),
        }
        _check_bins(file.source.where, bins)
        made = {
            "cell": cells,
            "process": file.source.name,
            "op": batch.op,
            **times,
            **bins,
        }
        self.writer.add("histograms", made, rows)
        self.tally.add_times(cells, times["started_ns"], times["ended_ns"])
        self._count("histograms", rows)
        return rows

    def _spans(self, file: File, batch: Spans) -> int:
        rows = _length(batch.started_ns, batch.request)
        client = batch.client if batch.client is not None else file.source.name
        made = {
            "cell": self._cells(file, batch.factors, rows),
            "process": file.source.name,
            "client": self._numbers("client", client, rows, file),
            "server": self._numbers("server", batch.server, rows, file),
            "request": np.asarray(batch.request) + file.before,
            "attempt": batch.attempt,
            "layer": plain_names(batch.layer),
            "started_ns": batch.started_ns,
            "ended_ns": batch.ended_ns,
            "span_id": batch.span_id,
            "parent_id": batch.parent_id,
            "service": plain_names(batch.service),
            "kind": batch.kind,
            "failed": batch.failed,
        }
        self.writer.add("spans", made, rows)
        return self._count("spans", rows)

    def _context(self, file: File, batch: Events | Resources) -> int:
        rows = _length(batch.started_ns)
        if self.pauses and isinstance(batch, Resources):
            # made of the very pauses that are measured: a correlate of themselves
            return rows
        started = np.asarray(array(batch.started_ns, rows, pa.int64()))
        ended = array(batch.ended_ns, rows, pa.int64())
        last = np.asarray(pc.coalesce(ended, pa.array(started)))
        made: dict[str, Any] = {
            "process": file.source.name,
            "started_ns": started,
            "ended_ns": ended,
        }
        if isinstance(batch, Events):
            table = "events"
            made |= {"kind": batch.kind, "detail": batch.detail}
            if self.pauses and batch.pauses and ended.null_count == 0:
                file.source.lacks(PAUSES)
                lengths = pc.subtract(ended, pa.array(started))
                op = batch.kind if batch.detail is None else batch.detail
                self._requests(file, Requests(lengths, started, op, intended_ns=started))
        else:
            table = "resources"
            made |= {"watched": batch.watched, "sampler_lag_ns": 0, "sampler_cost_ns": 0}
            made |= batch.columns
        for cell in self._beside(file, int(started.min()), int(last.max())):
            self.writer.add(table, {**made, "cell": cell}, rows)
            self._count(table, rows)
        return rows

    def _beside(self, file: File, first: int, last: int) -> list[str]:
        """Cells that events and resources of this time belong to."""
        known = self.tally.extents
        overlapped = [
            cell for cell, (start, end) in known.items() if start <= last and first <= end
        ]
        if overlapped or not known:
            return overlapped or [self.writer.cell({}, file.source.where)]
        if self.strict:
            raise IngestError(
                file.source.where,
                "its times overlap none of the run's",
                "a time of day in it, and the same clock",
                "log with times (-Xlog:gc*:file:time; sadf -d; dstat -T)",
            )
        file.source.lacks("part of its times overlap none of the latencies")
        return list(known) if len(known) == 1 else []

    def _cells(self, file: File, factors: Mapping[str, Column], rows: int) -> pa.Array:
        found, place = cells_of(factors, rows)
        names = [self.writer.cell({**file.factors, **it}, file.source.where) for it in found]
        return pa.array(names).take(pa.array(place))

    def _numbers(self, kind: str, names: Column, rows: int, file: File) -> pa.Array:
        texts, codes = codes_of(names, rows)
        known = self.names.setdefault(kind, Names(file.source.where))
        numbers = pa.array([known.number(text) for text in texts], pa.uint16())
        return numbers.take(pa.array(codes))

    def _count(self, table: str, rows: int) -> int:
        self.tally.rows[table] = self.tally.rows.get(table, 0) + rows
        return rows

    def missing(self, files: list[File]) -> list[str]:
        """A sentence for each thing that a source does not have; with its name if they differ."""
        said = Counter(
            sentence for file in files for sentence in dict.fromkeys(file.source.missing)
        )
        sentences = [sentence for sentence, times in said.items() if times == len(files)]
        for file in files:
            own = [it for it in file.source.missing if said[it] < len(files)]
            sentences += [f"{file.source.name}: {sentence}" for sentence in own]
            for source in file.sources:
                refused = source.complaints.refused
                if refused:
                    lines = "line" if refused == 1 else "lines"
                    sentences.append(f"{source.name}: {refused:,} {lines} could not be read")
        return sentences

    def manifest(self, files: list[dict[str, Any]], missing: list[str]) -> dict[str, Any]:
        """What the manifest says of this import."""
        extents = self.tally.extents.values()
        started = min((first for first, _ in extents), default=0)
        ended = max((last for _, last in extents), default=0)
        names = {
            kind: {number: name for name, number in known.numbers.items()}
            for kind, known in self.names.items()
        }
        processes = [
            {
                "name": names["client" if kind == "drive" else "server"][number],
                "kind": kind,
                "id": number,
                "cell": cell,
                "repeat": 0,
                "host": HOST,
                "pid": None,
                "runtime": "imported",
                "exit": None,
                "counts": None,
            }
            for cell, kind, number in self.tally.nodes
        ]
        return {
            "started_ns": started,
            "ended_ns": ended,
            "planned_ns": ended - started,
            "missing": missing,
            "processes": processes,
            "counts": self.tally.counts(),
            "timeless": sorted(self.timeless),
            "provenance": files,
            "imported": self.tally.known(),
        }


def _length(*columns: Column) -> int:
    return next((len(column) for column in columns if not is_scalar(column)), 1)


def provenance(file: File) -> list[dict[str, Any]]:
    """Return where rows came from, as the manifest keeps it: an entry for each source."""
    return [
        {
            "name": source.name,
            "cell": cell_name(file.factors),
            "bytes": source.size,
            "sha256": source.sha256,
            "format": file.format.name,
            "unit": file.source.unit,
            "lines": source.complaints.lines,
            "refused": source.complaints.refused,
            "first_refused": [
                {"line": line, "reason": reason} for line, reason in source.complaints.first
            ],
        }
        for source in file.sources
    ]


def _tick(step_ns: int) -> str:
    for size, unit in TICKS_SHOWN:
        if step_ns % size == 0:
            return f"{step_ns // size:,} {unit}"
    return f"{step_ns:,} ns"


def _check_bins(where: str, bins: dict[str, pa.Array]) -> None:
    """Refuse bins that no histogram has: a value that is no number, or counts below 0."""
    low, high, count = (np.asarray(pc.fill_null(it, np.nan)) for it in bins.values())
    # those that failed lie at infinity
    failed = (low == np.inf) & (high == np.inf)
    known = (low >= 0) & (low <= high) & (high < np.inf)
    good = (known | failed) & (count >= 0) & (count < COUNTS_MAX)
    for place in np.flatnonzero(~good)[:1]:
        raise IngestError(
            where,
            f"has {count[place]:g} values from {low[place]:g} to {high[place]:g} ns",
            "counts and latencies of 0 or more, all finite",
            "copy it again, whole",
        )
