"""What the percentiles in the files of other tools are worth: facts about each operation."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.errors import ParameterError
from unruly.ingest.importer import import_files
from unruly.progress import Progress
from unruly.run import open_run
from unruly.stats import quantile
from unruly.stats.bins import bin_quantile
from unruly.stats.claims import FEWEST, can_show_omission, claims, omission
from unruly.tables import fetch
from unruly.tables.requests import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from unruly.ingest.model import Options
    from unruly.run import Run
    from unruly.stats.claims import Claims, Omission

ROWS_MOST: Final = 5_000_000
"""More requests of a file are left out, and the audit says so."""
OPS_MOST: Final = 50
SECOND_NS: Final = 1_000_000_000
NO_ORDER: Final = (
    "the file keeps counts of latencies and not their order, so nothing shows whether its slow "
    "requests came together"
)
SORTED: Final = "its rows are sorted by latency, so nothing shows which of them came together"
SORTED_FORMATS: Final = frozenset({"ab"})
"""``ab -g`` sorts its rows, and its times are whole seconds."""
COARSE: Final = "most of its latencies are 0: the clock of the tool is too coarse"
RUN_LEAST_NS: Final = 10 * SECOND_NS
"""No shorter run is advised: it sees little of a system, however many requests it has."""
FEW: Final = f"it has fewer than {FEWEST} requests"
USUAL_MOST: Final = 400
"""The requests of a picture that are not slow."""
STRETCHES: Final = 200
SLOW_MOST: Final = 800
"""The slow requests of a picture; and the failed ones."""


@dataclass(frozen=True)
class Points:
    """Requests of one operation for a picture: the slow ones, and a sample of the others.

    A request is slow if it took longer than the percentile. If there are too many of them, the
    slowest one of each stretch of the file is kept, and an even sample of the rest.
    """

    at: tuple[float, ...]
    """Time since the first request (ns), or the number of the request if the file has no times."""
    latency_ns: tuple[float, ...]
    """``inf`` for a failed request."""
    slow: tuple[bool, ...]
    timed: bool
    end: float
    """The last request of the file, as in `at`."""
    left_out: int
    """Slow and failed requests that the picture lacks."""


@dataclass(frozen=True)
class Audited:
    """One operation of one file."""

    file: str
    format: str
    cell: str
    repeat: int
    """Which repeat of its cell; 0 for a file of another tool."""
    op: str
    p: float
    n: int
    failed: int
    duration_ns: float | None
    """From the first request to the last one; None where the file has no times."""
    estimate: float | None
    """The percentile (ns), where it is known."""
    claims: Claims | None
    """None where `why` says why."""
    why: str
    omission: Omission | None
    scheduled: bool
    """The file has scheduled times: its latencies include the wait before the send."""
    seen: bool
    """Its times can show requests that were not sent."""
    left_out: int
    """Requests of the file beyond `ROWS_MOST`."""
    ops_left_out: int
    """Operations of the file beyond `OPS_MOST`."""
    points: Points | None = field(default=None, repr=False)
    """None if the order of the requests is not known, or their latencies are too coarse."""
    covered: bool = False
    """Slow requests were open nearly all the time, so nothing shows how many are usual."""

    @property
    def needed_ns(self) -> float | None:
        """About the run length that gives any bounds; None where it is not known."""
        if self.claims is None or self.duration_ns is None or self.claims.own.abstained is None:
            return None
        factor = self.claims.own.needed_factor
        return max(RUN_LEAST_NS, self.duration_ns * factor) if np.isfinite(factor) else None

    @property
    def as_narrow_ns(self) -> float | None:
        """About the run length that gives bounds as narrow as those of independent requests."""
        if self.claims is None or self.duration_ns is None or self.claims.own.abstained:
            return None
        return max(RUN_LEAST_NS, self.duration_ns * max(1.0, self.claims.own.design_effect))


def audit_files(
    paths: Sequence[str | os.PathLike[str]], options: Options, p: float = 0.99
) -> list[Audited]:
    """Judge what a percentile of each file is worth.

    Parameters
    ----------
    paths : sequence of path-like
        Files in any format that can be imported, or run directories.
    options : Options
        As for an import.
    p : float
        In (0, 1).

    Returns
    -------
    list of Audited
        Every operation of every file, the most frequent one of a file first.

    Raises
    ------
    IngestError, RunError
        A file cannot be read, or is none.
    ParameterError
        `p` is not inside (0, 1).
    """
    if not 0 < p < 1:
        raise ParameterError("--percentile", f"is {100 * p:g}", "above 0 and below 100", "99")
    found = []
    progress = Progress()
    places = [Path(it) for it in paths]
    names = [it.name for it in places]
    for path in places:
        name = path.name if names.count(path.name) == 1 else str(path)
        progress(f"{name}: reading")
        if (path / "manifest.json").is_file():
            if given := options.given():
                raise ParameterError(
                    min(given), f"stands beside {name}, which is a run", "a file of another tool",
                    "leave it out: a run says what its columns are",
                )  # fmt: skip
            found += _audit(open_run(path), name, "unruly", p)
            continue
        with tempfile.TemporaryDirectory(prefix="unruly-audit-") as folder:
            imported = import_files([str(path)], Path(folder, "run"), options, progress)
            form = str(imported.files[0]["format"])
            found += _audit(open_run(imported.directory), name, form, p)
    progress("")
    if not found:
        raise ParameterError(
            "FILE", f"{', '.join(names)} has no request", "requests with their latencies",
            "unruly verdict says what a run without requests has",
        )  # fmt: skip
    return found


def _audit(run: Run, name: str, form: str, p: float) -> list[Audited]:
    if run.segments["histograms"] and not run.segments["requests"]:
        return _of_bins(run, name, form, p)
    rows = counted(run.requests)
    kept = rows.select(
        "cell", "repeat", "op", "intended_ns", "sent_ns", "request", "response", "send_lag"
    ).order_by("intended_ns", "request")
    total = int(fetch(rows.agg(n=rows.count()))["n"].iloc[0])
    frame = fetch(kept.limit(ROWS_MOST))
    left_out = max(0, total - ROWS_MOST)
    groups = sorted(frame.groupby(["cell", "repeat", "op"], sort=True), key=lambda it: -len(it[1]))
    return [
        _of_rows(run, name, form, p, key, group, (left_out, max(0, len(groups) - OPS_MOST)))
        for key, group in groups[:OPS_MOST]
    ]  # fmt: skip


def _of_rows(
    run: Run,
    name: str,
    form: str,
    p: float,
    key: Any,
    group: pd.DataFrame,
    left_out: tuple[int, int],
) -> Audited:
    cell, repeat, op = key
    values = group["response"].to_numpy(np.float64)
    started = group["intended_ns"].to_numpy(np.int64)
    timeless = str(cell) in run.timeless
    scheduled = bool((group["send_lag"].fillna(0) > 0).any())
    # within a second nobody knows which request came first
    whole_seconds = bool((started % SECOND_NS == 0).all())
    seen = not (timeless or scheduled or whole_seconds) and values.size >= FEWEST
    since = started - started[0]
    covered = seen and not can_show_omission(since, values, p)
    seen = seen and not covered
    judged, why = _judged(values, p)
    if judged and (form in SORTED_FORMATS or _is_sorted(values)):
        judged, why = None, SORTED
    span = float(started[-1] - started[0])
    return Audited(
        name, form, str(cell), int(repeat), str(op), p, values.size, int(np.isinf(values).sum()),
        None if timeless or span <= 0 else span,
        _estimate(values, p), judged, why,
        omission(since, values, p) if seen else None, scheduled, seen, *left_out,
        None if why in (SORTED, COARSE) else _points(started, values, p, timed=not timeless),
        covered,
    )  # fmt: skip


def _points(
    started: NDArray[np.int64], values: NDArray[np.float64], p: float, *, timed: bool
) -> Points | None:
    """Return the requests that a picture shows; None if none of them succeeded."""
    good = np.isfinite(values)
    if not good.any():
        return None
    limit = _estimate(values, p)
    slow = good & (values > limit) if limit is not None else np.zeros(values.size, bool)
    usual = np.flatnonzero(good & ~slow)
    kept = np.concatenate([
        _evenly(usual, USUAL_MOST), _thinned(np.flatnonzero(slow), values),
        _thinned(np.flatnonzero(~good), values),
    ])  # fmt: skip
    kept.sort()
    at = (started - started[0]).astype(np.float64) if timed else np.arange(values.size, dtype=float)
    shown = slow[kept] | ~good[kept]
    return Points(
        tuple(at[kept].tolist()), tuple(values[kept].tolist()), tuple(slow[kept].tolist()),
        timed, float(at[-1]), int((slow | ~good).sum() - shown.sum()),
    )  # fmt: skip


def _evenly(places: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return all places, or an even sample if they are many."""
    if places.size <= most:
        return places
    return places[np.linspace(0, places.size - 1, most).astype(np.int64)]


def _thinned(places: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return all places, or the slowest of each stretch of the file and a sample of the others."""
    if places.size <= SLOW_MOST:
        return places
    stretch = places * STRETCHES // values.size
    ranked = places[np.lexsort((values[places], stretch))]
    slowest = ranked[np.diff(np.sort(stretch), append=STRETCHES) > 0]
    return np.union1d(slowest, _evenly(places, SLOW_MOST - STRETCHES))


def _is_sorted(values: NDArray[np.float64]) -> bool:
    return bool((values[1:] >= values[:-1]).all() and values[-1] > values[0])


def _judged(values: NDArray[np.float64], p: float) -> tuple[Claims | None, str]:
    """Return the claims about some latencies, or why there are none."""
    if values.size < FEWEST:
        return None, FEW
    if _estimate(values, p) == 0:
        return None, COARSE
    return claims(values, p), ""


def _estimate(values: NDArray[np.float64], p: float) -> float | None:
    found = quantile(np.sort(values), p)
    return found if np.isfinite(found) else None


def _of_bins(run: Run, name: str, form: str, p: float) -> list[Audited]:
    """Return the operations of a file that kept no single values."""
    bins = fetch(run.histograms.select("cell", "op", "low_ns", "high_ns", "count"))
    found = []
    groups = list(bins.groupby(["cell", "op"], sort=True))
    ops_left_out = max(0, len(groups) - OPS_MOST)
    for (cell, op), group in groups:
        low, high, counts = (
            group[it].to_numpy(np.float64) for it in ("low_ns", "high_ns", "count")
        )
        n = round(counts.sum())
        failed = round(counts[np.isinf(high)].sum())
        # as the verdict has it: at the edge of its bin where the tool printed this percentile
        estimate = bin_quantile(low, high, counts, p).value
        found.append(
            Audited(
                name, form, str(cell), 0, str(op), p, n, failed, None, estimate, None, NO_ORDER,
                None, scheduled=False, seen=False, left_out=0, ops_left_out=ops_left_out,
            )
        )  # fmt: skip
    return sorted(found, key=lambda it: -it.n)[:OPS_MOST]
