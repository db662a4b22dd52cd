"""A run for other programs: HdrHistogram's log and distribution, CSV of the rows, the summary.

Failed requests have no latency: they are in none of the histograms, and the head of each file says
how many they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.errors import ExportError
from unruly.ingest.hdr import edges, encode
from unruly.tables import export as export_tables
from unruly.tables import fetch
from unruly.tables import requests as request_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd

    from unruly.run import Run

FORMATS: Final = ("hlog", "hgrm", "csv", "json")
HIGHEST_NS: Final = 2**53
MILLISECOND_NS: Final = 1e6
TICKS_PER_HALF_DISTANCE: Final = 5


def format_of(path: Path, asked: str | None) -> str:
    """Return the format that was asked for, else the one that the file's name ends in.

    Raises
    ------
    ExportError
        When neither names one.
    """
    named = asked or path.suffix.removeprefix(".")
    if named not in FORMATS:
        raise ExportError(
            path, f"names no format ({named!r})", f"one of {', '.join(FORMATS)}", "--format hlog"
        )
    return named


def check_choice(form: str, op: str | None, latency: str) -> None:
    """Refuse to choose from a format that holds all operations and latencies.

    Raises
    ------
    ExportError
        When something is chosen from the rows or the summary.
    """
    if form in {"csv", "json"} and (op is not None or latency != "response"):
        raise ExportError(
            "--op, --latency", f"are given with {form}", "hlog or hgrm, which hold a part",
            "leave them out",
        )  # fmt: skip


def write_rows(run: Run, path: Path) -> None:
    """Write every measured row as CSV; the rows go from the engine to the file.

    Raises
    ------
    ExportError
        When the run has no rows, only histograms.
    """
    _need_rows(run)
    rows = request_tables.measured(run.requests)
    run.engine.write_csv(export_tables.plain_rows(rows), path)


def hlog_lines(run: Run, latency: str, op: str | None = None) -> Iterator[str]:
    """Yield a HdrHistogram log (format 1.3, 3 digits, ns): a line for each second and op.

    Raises
    ------
    ExportError
        When nothing was answered, the op was not measured, or the run has histograms alone.
    """
    frame = _buckets(run, latency, op)
    start = int(frame["second"].min())
    yield "#[Logged with unruly]"
    yield "#[Histogram log format version 1.3]"
    yield f"#[StartTime: {start}.000 (seconds since epoch)]"
    yield f"#[BaseTime: {start}.000 (seconds since epoch)]"
    yield "#[TimeUnit: NANOSECONDS]"
    yield f"#[{_about(run, latency)}]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    tags = _tags(frame)
    for key, part in frame.groupby(["second", "cell", "op"]):
        second, cell, name = key
        text = encode(
            part["place"].to_numpy(dtype=np.int64),
            part["count"].to_numpy(dtype=np.int64),
            digits=export_tables.DIGITS,
            highest=HIGHEST_NS,
        )
        tag = tags[cell, name]
        most = float(part["most"].max()) / MILLISECOND_NS
        yield f"{tag}{second - start}.000,1.000,{most:.3f},{text}"


def hgrm_lines(run: Run, latency: str, op: str | None = None) -> Iterator[str]:
    """Yield the percentile distribution of all rows, in ms, as HdrHistogram prints it.

    Raises
    ------
    ExportError
        As of `hlog_lines`.
    """
    frame = _buckets(run, latency, op)
    sums = frame.groupby("place")[["count"]].sum()
    place = sums.index.to_numpy(dtype=np.int64)
    count = sums["count"].to_numpy(dtype=np.int64)
    low, high = edges(place, export_tables.DIGITS)
    top = np.where(high > low, high - 1, low) / MILLISECOND_NS
    upto, total = np.cumsum(count), int(count.sum())
    yield f"#[{_about(run, latency)}; values in ms]"
    yield "       Value     Percentile TotalCount 1/(1-Percentile)"
    yield ""
    for share in _ticks(total):
        at = min(int(np.searchsorted(upto, share * total * (1 - 1e-12))), place.size - 1)
        rest = "" if share == 1 else f" {1 / (1 - share):14.2f}"
        yield f"{top[at]:12.6f} {share:2.12f} {upto[at]:10d}{rest}"
    middle = (low + np.where(high > low, high, low)) / 2 / MILLISECOND_NS
    mean = float(middle @ count / total)
    spread = float(np.sqrt((middle - mean) ** 2 @ count / total))
    yield f"#[Mean    = {mean:12.3f}, StdDeviation   = {spread:12.3f}]"
    yield f"#[Max     = {top[-1]:12.3f}, Total count    = {total:12d}]"
    yield f"#[Buckets = {54:12d}, SubBuckets     = {export_tables.SUB_BUCKETS:12d}]"


def _ticks(total: int) -> Iterator[float]:
    """Percentiles that halve their distance to 1 every five steps, then 1."""
    share, halvings = 0.0, 0
    while (1 - share) * total >= 1:
        yield share
        while share >= 1 - 0.5 ** (halvings + 1):
            halvings += 1
        share += 0.5 ** (halvings + 1) / TICKS_PER_HALF_DISTANCE
    yield 1.0


def _need_rows(run: Run) -> None:
    if run.keeps_bins_alone:
        raise ExportError(
            run.path,
            "has histograms and no single requests",
            "a run that has its rows",
            "--format json writes its summary",
        )


def _buckets(run: Run, latency: str, op: str | None) -> pd.DataFrame:
    _need_rows(run)
    if latency not in request_tables.LATENCIES:
        wanted = " or ".join(request_tables.LATENCIES)
        raise ExportError(
            "--latency", f"is {latency!r}", wanted, f"--latency {request_tables.LATENCIES[0]}"
        )
    frame = fetch(export_tables.hdr_buckets(request_tables.measured(run.requests), latency))
    if op is not None:
        known = sorted(set(frame["op"]))
        frame = frame[frame["op"] == op]
        if frame.empty:
            raise ExportError("--op", f"is {op!r}", f"one of {', '.join(known)}", "leave it out")
    if frame.empty:
        raise ExportError(
            run.path, "no request was answered", "a run with latencies", "measure again"
        )
    return frame


def _tags(frame: pd.DataFrame) -> dict[tuple[Any, Any], str]:
    """A tag for each (cell, op); none where there is one of each."""
    pairs = list(dict.fromkeys(zip(frame["cell"], frame["op"], strict=True)))
    if len(pairs) == 1:
        return {pairs[0]: ""}
    several = len({cell for cell, _ in pairs}) > 1
    found = {}
    for cell, op in pairs:
        name = f"{cell}:{op}" if several else str(op)
        # a tag ends at a comma or a space
        found[cell, op] = "Tag=" + name.replace(",", "_").replace(" ", "_") + ","
    return found


def _about(run: Run, latency: str) -> str:
    copies = (run.manifest.get("counts") or {}).get("copies") or {}
    failed = int(copies.get("scheduled") or 0) - int(copies.get("ok") or 0)
    left_out = f"; {failed} copies that failed in the run are not in it" if failed > 0 else ""
    return f"{latency} time of run {run.id}{left_out}"
