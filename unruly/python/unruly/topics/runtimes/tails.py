"""The tail of the copies between two runtimes, with intervals, and what a JVM makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from unruly.base.cells import bucket_matrix, percentiles_said
from unruly.base.ladder import LEVEL, PERCENTILES
from unruly.base.quantiles import quantiles_of
from unruly.stats import Interval, block_interval, interval_of_ratio, repeats_interval
from unruly.tables import fetch
from unruly.tables import requests as request_tables
from unruly.topics.runtimes.model import ANYBODY, JVM, NATIVE, RuntimeRatio, RuntimeTail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from unruly.topics.runtimes.model import Runtime
    from unruly.topics.runtimes.part import RuntimePart

SAID: Final = ("p50", "p99", "p99_9")
REPEATS_LEAST: Final = 3
"""With this many repeats a ratio is computed for each repeat; fewer are not enough data."""
RUNTIMES: Final[tuple[Runtime, ...]] = (NATIVE, JVM)
METHOD: Final = "p99s by blocks, variances recovered from the limits"


def tails_of(part: RuntimePart) -> tuple[list[RuntimeTail], list[RuntimeRatio]]:
    """Return the tails by pair of runtimes and by receiver alone, and the ratios of the latter."""
    histogram = _histogram(part)
    found: list[RuntimeTail] = []
    repeats: dict[int, dict[int, float]] = {}
    for key, answering in (("pair", 4), ("answer", 2)):
        repeats = _by_repeat(part, key)
        frame = quantiles_of(
            part.rows, [key], [PERCENTILES[it] for it in SAID], part.context.size, ["response"]
        )
        for row in frame.to_dict("records"):
            number = int(row[key])
            own = histogram[histogram[key] == number]
            columns = {name: own[name].to_numpy() for name in own.columns}
            buckets, counts = bucket_matrix(columns, slice(None), "block")
            asks = RUNTIMES[number // 2 % 2] if key == "pair" else ANYBODY
            who = part.cells[number // answering], asks, RUNTIMES[number % 2]
            found.append(_tail(who, row, (buckets, counts), repeats.get(number, {})))
    return found, _ratios(part, found, repeats)


def _histogram(part: RuntimePart) -> pd.DataFrame:
    """Counts by pair, answer, block and bucket; those of two pairs may stand one by one."""
    rows = part.rows.mutate(number=part.rows.pair)
    frame = fetch(request_tables.block_histogram(rows, "response", "block"))
    return frame.assign(pair=frame["number"], answer=frame["number"] // 4 * 2 + frame["number"] % 2)


def _by_repeat(part: RuntimePart, key: str) -> dict[int, dict[int, float]]:
    """The p99 of each repeat, by the number and the repeat; nothing of single ones."""
    legs = part.places[["cell", "repeat", "place"]].drop_duplicates("place")
    if not legs["cell"].duplicated().any():
        return {}
    repeat = dict(zip(legs["place"], legs["repeat"], strict=True))
    frame = quantiles_of(part.rows, [key, "place"], [0.99], part.context.size, ["response"])
    found: dict[int, dict[int, float]] = {}
    for row in frame.to_dict("records"):
        p99 = float(row["response"][0])
        value = p99 if np.isfinite(p99) else np.inf
        found.setdefault(int(row[key]), {})[int(repeat[row["place"]])] = value
    return found


def _tail(
    who: tuple[str, Literal[Runtime, "*"], Runtime],
    row: Mapping[str, Any],
    histogram: tuple[NDArray[Any], NDArray[Any]],
    repeats: Mapping[int, float],
) -> RuntimeTail:
    n, failed = int(row["n"]), int(row["failed"])
    absent: dict[str, str] = {}
    found = dict(zip(SAID, map(float, row["response"]), strict=True))
    said = percentiles_said(found, n, failed, absent, "copies", "copies that failed")
    over_repeats = None
    if len(repeats) > 1:
        over_repeats = repeats_interval(list(repeats.values()), LEVEL, log=True)
    else:
        absent["over_repeats"] = "there is one repeat"
    intervals: dict[str, Interval | None] = dict.fromkeys(SAID)
    for name in SAID:
        if said[name] is None:
            absent[f"{name}_interval"] = absent[name]
            continue
        block = block_interval(*histogram, PERCENTILES[name], estimate=said[name], level=LEVEL)
        intervals[name] = block.interval
        if block.interval is None:
            absent[f"{name}_interval"] = block.reason or "no blocks of time"
    return RuntimeTail(
        *who, n, failed,
        said["p50"], intervals["p50"],
        said["p99"], intervals["p99"],
        said["p99_9"], intervals["p99_9"],
        over_repeats, absent,
    )  # fmt: skip


def _ratios(
    part: RuntimePart, tails: Sequence[RuntimeTail], repeats: Mapping[int, Mapping[int, float]]
) -> list[RuntimeRatio]:
    """Compare what JVMs answered with what native agents of the same cell answered."""
    by_answer = {(it.cell, it.answers): it for it in tails if it.asks == ANYBODY}
    found = []
    for whole, cell in part.cells.items():
        pair = [by_answer.get((cell, runtime)) for runtime in RUNTIMES]
        native, jvm = pair
        if native is None or jvm is None or not native.p99 or not jvm.p99:
            continue
        own = [repeats.get(whole * 2 + place, {}) for place in range(len(RUNTIMES))]
        found.append(RuntimeRatio(cell, jvm.p99, native.p99, _ratio(native, jvm, own)))
    return found


def _ratio(
    native: RuntimeTail, jvm: RuntimeTail, repeats: Sequence[Mapping[int, float]]
) -> Interval:
    """JVM over native: over the repeats where there are enough of them, else by blocks."""
    both = sorted(set(repeats[0]) & set(repeats[1]))
    values = np.array([[own[it] for it in both] for own in repeats])
    if len(both) >= REPEATS_LEAST and np.isfinite(values).all() and (values > 0).all():
        return repeats_interval(values[1] / values[0], LEVEL, log=True)
    ratio, low, high = interval_of_ratio(_ends(native), _ends(jvm))
    known = [it.p99_interval for it in (native, jvm) if it.p99_interval]
    effective = min((it.n_effective or 0.0 for it in known), default=0.0)
    return Interval(ratio, low, high, LEVEL, native.n + jvm.n, effective, METHOD)


def _ends(tail: RuntimeTail) -> tuple[float, float | None, float | None]:
    """The p99 with its bounds; one at nothing bounds no ratio."""
    assert tail.p99 is not None
    interval = tail.p99_interval
    low, high = (interval.low, interval.high) if interval else (None, None)
    return tail.p99, low or None, high
