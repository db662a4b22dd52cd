"""Histograms of Prometheus and OpenMetrics as text: counts between two scrapes, as bins.

A histogram is a counter for each bucket, from when the process began. The requests between two
scrapes are the difference of their counters. Scrapes stand in one file, one after another, or in
several files. A counter that fell was set back, since the process began anew.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.by_line import LINE_MOST
from unruly.ingest.model import UNITS_NS, Format, Histograms, Options
from unruly.ingest.outcomes import OK, Outcomes, status_of
from unruly.ingest.percentiles import Bins
from unruly.ingest.tabular import outcomes_of
from unruly.ingest.tally import OPS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

SAMPLE: Final = re.compile(
    r'(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+'
    r"(?P<value>\S+)(?:[ \t]+(?P<time>-?\d+(?:\.\d+)?))?[ \t]*(?:#.*)?$"
)
LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
BEGINS: Final = re.compile(r"# (?:HELP|TYPE|UNIT) [a-zA-Z_:][\w:]* ")
END: Final = "# EOF"
UNITS: Final = {
    "seconds": "s", "milliseconds": "ms", "ms": "ms", "microseconds": "us", "us": "us",
    "nanoseconds": "ns", "ns": "ns",
}  # fmt: skip
MILLISECONDS_FROM: Final = 1e11
"""Prometheus writes times in milliseconds, OpenMetrics in seconds: these would be in 5138."""
SERIES_MOST: Final = 100_000
SINCE_BEGIN: Final = (
    "one scrape: the counts are those since the process began, and nothing is known over time"
)
NO_TIMES: Final = (
    "the scrapes have no times: the difference of the first and the last is one span, and nothing "
    "is known over time"
)
RESET: Final = (
    "a counter was set back between two scrapes: the requests before that since the scrape are "
    "missing"
)
FAILED: Final = "no label was named that says which requests failed: all count as successes"
UNBOUNDED: Final = (
    "the file has no sum for some requests above the last bucket: nothing bounds them, and they "
    "were counted as failures"
)
HINT: Final = (
    "choose another histogram; `unruly drive` measures the service, and `unruly watch` what others "
    "ask of it"
)


@dataclass
class Series:
    """The counters of one histogram with one set of labels, at one moment."""

    counts: dict[float, float] = field(default_factory=dict)
    """By upper edge; cumulative."""
    total: float | None = None
    """The sum of the values."""

    def since(self, before: Series | None) -> tuple[Series, bool]:
        """Return the increase since an earlier moment, and whether a counter was set back."""
        if before is None:
            return self, False
        if any(count < before.counts.get(edge, 0.0) for edge, count in self.counts.items()):
            return self, True
        grown = {it: count - before.counts.get(it, 0.0) for it, count in self.counts.items()}
        known = self.total is not None and before.total is not None
        return Series(grown, (self.total or 0) - (before.total or 0) if known else None), False

    def add(self, other: Series) -> None:
        """Add an increase."""
        known = not self.counts or self.total is not None
        for edge, count in other.counts.items():
            self.counts[edge] = self.counts.get(edge, 0.0) + count
        known = known and other.total is not None
        self.total = (self.total or 0.0) + (other.total or 0.0) if known else None


Key = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""


@dataclass
class Scrape:
    """The histograms of one moment."""

    series: dict[Key, Series] = field(default_factory=dict)
    time_ns: int | None = None


def _recognises(sample: Sample) -> bool:
    lines = [it[:LINE_MOST] for it in sample.lines if it.strip()][:200]
    begins = bool(lines) and BEGINS.match(lines[0]) is not None
    if not begins and b"_bucket{" not in sample.head:
        return False
    fits = sum(it.startswith("#") or SAMPLE.match(it) is not None for it in lines)
    return len(lines) > 1 and fits >= 0.9 * len(lines)


def _scrapes(source: Source) -> Iterator[Scrape]:
    """Yield each scrape of a file: a new one begins where a counter occurs again."""
    now = Scrape()
    for number, whole in source.lines():
        line = whole.strip()[:LINE_MOST]
        if line.startswith("#"):
            if line == END and now.series:
                yield now
                now = Scrape()
            continue
        try:
            found = _sample(line)
        except ValueError as error:
            source.complaints.lines += 1
            source.complaints.refuse(number, str(error))
            continue
        if found is None:
            continue
        key, edge, value, time_ns = found
        if edge is not None:
            source.complaints.lines += 1
            if edge in now.series.get(key, Series()).counts:
                yield now
                now = Scrape()
        held = now.series.setdefault(key, Series())
        if edge is None:
            held.total = value
        else:
            held.counts[edge] = value
        now.time_ns = time_ns if time_ns is not None else now.time_ns
        if len(now.series) > SERIES_MOST:
            raise IngestError(
                source.where,
                f"has more than {SERIES_MOST:,} histograms",
                "those of a few operations",
                "leave the others out",
            )
    if now.series:
        yield now


def _sample(line: str) -> tuple[Key, float | None, float, int | None] | None:
    """Return series, upper edge, value and time of a bucket; the edge is None for a sum.

    Other samples give None.

    Raises
    ------
    ValueError
        When the line is no sample, or a bucket without a number.
    """
    match = SAMPLE.match(line)
    if match is None:
        raise ValueError("no sample in the form of Prometheus")
    name, labels = match["name"], dict(LABEL.findall(match["labels"] or ""))
    edge = None
    value = float(match["value"])
    if name.endswith("_bucket") and "le" in labels:
        edge = float(labels.pop("le"))
        if math.isnan(edge) or not 0 <= value < math.inf:
            raise ValueError("a bucket without a number")
    elif not name.endswith("_sum") or not math.isfinite(value):
        return None
    key = (name.removesuffix("_bucket").removesuffix("_sum"), tuple(sorted(labels.items())))
    if not match["time"]:
        return key, edge, value, None
    at = float(match["time"])
    return key, edge, value, round(at * (1e6 if abs(at) >= MILLISECONDS_FROM else 1e9))


def _unit(name: str) -> str | None:
    """The unit that stands at the end of a name."""
    return UNITS.get(name.rsplit("_", 1)[-1])


def _chosen(source: Source, options: Options, scrapes: list[Scrape]) -> dict[str, float]:
    """Return the histograms of durations, and the nanoseconds in the unit of each.

    Raises
    ------
    IngestError
        When there is none.
    """
    names = sorted({
        key[0] for scrape in scrapes for key, series in scrape.series.items() if series.counts
    })  # fmt: skip
    if not names:
        raise IngestError(
            source.where, "has counters and no histogram", "NAME_bucket{le=...}", HINT
        )
    if options.value is not None:
        if options.value not in names:
            raise IngestError(
                source.where, f"has no histogram {options.value!r}", "one of " + ", ".join(names),
                f"--value {names[0]}",
            )  # fmt: skip
        unit = options.unit or _unit(options.value)
        return {options.value: UNITS_NS[unit] if unit else options.unit_ns(source.where)}
    found = {it: float(UNITS_NS[unit]) for it in names if (unit := _unit(it)) is not None}
    if not found and len(names) == 1:
        return {names[0]: options.unit_ns(source.where)}
    for it in names:
        if it not in found:
            source.lacks(f"the histogram {it} names no unit of time, and was left out")
    if not found:
        raise IngestError(
            source.where, "has no histogram with a unit of time in its name",
            "--value with one of " + ", ".join(names), f"--value {names[0]} --unit ms",
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class _Reader:
    """Makes bins of increases."""

    source: Source
    options: Options
    outcomes: Outcomes
    units: dict[str, float]
    ops: dict[Key, str] = field(default_factory=dict)

    def op(self, key: Key) -> str:
        """Name the operation of a series: by ``--op``, else by all its labels."""
        if key not in self.ops:
            name, labels = key
            if self.options.op is not None:
                self.ops[key] = dict(labels).get(self.options.op, "")
            else:
                said = " ".join(f"{label}={value}" for label, value in labels)
                parts = [name] if len(self.units) > 1 or not said else []
                self.ops[key] = " ".join([*parts, said] if said else parts)
            if len(set(self.ops.values())) > OPS_MAX:
                raise IngestError(
                    self.source.where, f"more than {OPS_MAX:,} operations", "a few labels",
                    "choose a label of few values with --op",
                )  # fmt: skip
        return self.ops[key]

    def failed(self, labels: dict[str, str]) -> bool:
        """Whether the requests of a series failed, as ``--status`` and ``--failed-if`` say."""
        for it in self.outcomes.conditions:
            text = labels.get(it.column, "")
            holds = it.holds(text)
            if holds is None and text:
                raise IngestError(
                    self.source.where, f"{it.column} is {text!r}, which is no number",
                    f"a number to compare by {it}", f"--failed-if '{it.column}={text}'",
                )  # fmt: skip
            if holds:
                return True
        if self.outcomes.status is None:
            return False
        text = labels.get(self.outcomes.status, "")
        status = status_of(text)
        if status is None:
            raise IngestError(
                self.source.where,
                f"{self.outcomes.status} is {text!r}, which can mean a success or a failure",
                "statuses of HTTP, or words such as ok and error",
                f"--failed-if '{self.outcomes.status}={text}'",
            )
        return status != OK

    def bins(self, key: Key, grown: Series) -> Iterator[tuple[float, float, float]]:
        """Yield (low, high, count) in ns of the requests between two scrapes."""
        unit = self.units[key[0]]
        if self.failed(dict(key[1])):
            if count := max(grown.counts.values()):
                yield math.inf, math.inf, count
            return
        low, below, rest = 0.0, 0.0, grown.total
        for edge in sorted(grown.counts):
            # buckets of one scrape are not read at one instant: a later one may lag behind
            count = max(grown.counts[edge] - below, 0.0)
            below += count
            if edge < math.inf:
                high = max(edge, low)
                if count:
                    yield low * unit, high * unit, count
                rest = rest - low * count if rest is not None else None
                low = high
            elif count and rest is None:
                self.source.lacks(UNBOUNDED)
                yield math.inf, math.inf, count
            elif count and rest is not None:
                # the sum bounds the largest: all others are at least as long as their bins begin
                yield low * unit, max(rest - low * (count - 1), low) * unit, count


def _read(source: Source, options: Options) -> Iterator[Histograms]:
    scrapes = [it for part in (source, *source.later) for it in _scrapes(part)]
    units = _chosen(source, options, scrapes)
    shown = [unit for unit, ns in UNITS_NS.items() if ns in units.values()]
    source.unit = shown[0] if len(shown) == 1 else None
    reader = _Reader(source, options, outcomes_of(options), units)
    for column in [options.op, *reader.outcomes.columns]:
        labels = {label for scrape in scrapes for _, pairs in scrape.series for label, _ in pairs}
        if column is not None and column not in labels:
            raise IngestError(
                source.where, f"has no label {column!r}",
                f"one of {', '.join(sorted(labels)) or 'no label'}", "leave the flag out",
            )  # fmt: skip
    if not reader.outcomes.columns:
        source.lacks(FAILED)
    if len(scrapes) == 1:
        source.lacks(SINCE_BEGIN)
        scrapes = [Scrape(time_ns=None), Scrape(scrapes[0].series)]
    elif any(it.time_ns is None for it in scrapes):
        source.lacks(NO_TIMES)
    bins = Bins()
    for (began, ended), increases in _increases(source, scrapes):
        for key, grown in increases.items():
            if key[0] in units and grown.counts:
                bins.add(reader.op(key), (began, ended), reader.bins(key, grown))
    if not bins.count:
        raise IngestError(
            source.where, "counts nothing between its scrapes", "a process with requests",
            "scrape again after some requests",
        )  # fmt: skip
    yield bins.batch()


def _increases(
    source: Source, scrapes: list[Scrape]
) -> Iterator[tuple[tuple[int, int], dict[Key, Series]]]:
    """Yield each span and the increases in it; without times the whole is one span."""
    timed = all(it.time_ns is not None for it in scrapes)
    whole: dict[Key, Series] = {}
    for before, after in pairwise(scrapes):
        increases = {}
        for key, series in after.series.items():
            increases[key], was_reset = series.since(before.series.get(key))
            if was_reset:
                source.lacks(RESET)
        if not timed:
            for key, grown in increases.items():
                whole.setdefault(key, Series()).add(grown)
            continue
        began, ended = before.time_ns or 0, after.time_ns or 0
        if ended < began:
            raise IngestError(
                source.where, "has a scrape that is older than the one before it",
                "scrapes in the order of their times", "name the files in that order",
            )  # fmt: skip
        yield (began, ended), increases
    if not timed:
        yield (0, 1), whole


FORMAT: Final = Format(
    "prometheus",
    "histograms of Prometheus or OpenMetrics as text, one scrape or several",
    "latencies",
    ("# TYPE ", "_bucket{", 'le="'),
    _recognises,
    _read,
    frozenset({"--value", "--unit", "--op", "--status", "--failed-if"}),
    series=True,
)
