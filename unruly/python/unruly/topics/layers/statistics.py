"""Which layer took the extra time of slow requests, from the spans that services exported.

A request is slow beyond the p99 of its (cell, op). With fewer than 600 requests the limit is the
p95, with fewer than 120 the p90. Its extra time in a layer is the layer's own
time in it, less the median of that layer over usual requests. The request belongs to the layer that
has most of its extra time. The method in full: unruly/docs/methods/layers.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from unruly.base.trace_ids import keys_of, second_halves
from unruly.stats import share_interval, slow_percentile
from unruly.tables import fetch, inline
from unruly.tables import layers as layer_tables
from unruly.tables.causes import cut
from unruly.tables.spans import REQUEST
from unruly.topics.layers.model import Blame, Layers, Received, ServiceLayer
from unruly.topics.layers.selves import NOBODY, laid, union, with_parents

if TYPE_CHECKING:
    from collections.abc import Sequence

    import ibis
    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.operation import CellSummary
    from unruly.topics.layers.model import RoleName

COUNTED: Final = "spans received"
KEYS_MOST: Final = 100
"""Most (cell, op) that are looked at: those with the largest p99."""
SLOW_MOST: Final = 5_000
USUAL_MOST: Final = 10_000
"""Both over all (cell, op) together; each has `EACH_LEAST` of both at least."""
EACH_LEAST: Final = 200
SLOW_LEAST: Final = 5
USUAL_LEAST: Final = 20
"""Fewer do not give usual times."""
LAYERS_MOST: Final = 30
"""Layers that a (cell, op) reports."""
BLOCKS: Final = 30
OUTSIDE: Final = ("", "", "outside")
SLOWEST_SPANS: Final = 60
SLOWEST_COLUMNS: Final = ["service", "layer", "role", "began", "ended", "depth"]
_NUMBERED: Final = ["op", "intended_ns", "response", "slow", "scatter", "number"]
_LAYER: Final = ["service", "layer", "role"]
_COUNT: Final = re.compile(r"(\w+) (\d+)")


def has_layers(context: Context) -> bool:
    """Return whether somebody exported spans, or was to do so."""
    if context.empty or context.run.watched:
        return False
    return _has_spans(context) or _received(context) is not None


def _has_spans(context: Context) -> bool:
    if context.run.segments.get("spans", 0) == 0:
        return False
    own = layer_tables.of_services(context.run.spans)
    return bool(len(fetch(own.limit(1).select("layer"))))


def _received(context: Context) -> Received | None:
    """The numbers of the spans that came to a run, over all of its trials."""
    events = context.run.events
    told = fetch(events.filter(events.kind == COUNTED).select("cell", "detail"))
    if told.empty:
        return None
    counts = [
        {name: int(value) for name, value in _COUNT.findall(str(it))} for it in told["detail"]
    ]
    names = ("received", "kept", "foreign", "damaged", "early", "late", "refused")
    sums = {name: sum(it.get(name, 0) for it in counts) for name in names}
    level = max(it.get("level", 0) for it in counts)
    address = context.run.plan.cell(str(told["cell"].iloc[0])).spans
    return Received(**sums, level=level, address=address)


def layers(context: Context, summaries: Sequence[CellSummary]) -> Layers:
    """Look for the layers that made requests slow.

    Parameters
    ----------
    context : Context
        The run.
    summaries : sequence of CellSummary
        Their percentiles of the response time are the limits beyond which a request is slow.
    """
    context.progress("layers")
    whole = [
        it for it in summaries if it.latency == "response" and it.op != "*" and it.kept == "rows"
    ]
    received = _received(context)
    nothing = pd.DataFrame(columns=SLOWEST_COLUMNS)
    if not whole or not _has_spans(context):
        return Layers((), 0, received, nothing)
    worst = sorted(whole, key=lambda it: (-(it.p99 or 0.0), it.cell, it.op))[:KEYS_MOST]
    known = {(it.cell, it.op): _limit(it) for it in worst}
    limits = {key: limit for key, limit in known.items() if limit is not None}
    rows = [_unknown(it) for it in worst if known[it.cell, it.op] is None]
    left_out = len(whole) - len(worst)
    if not limits:
        return Layers(tuple(rows), left_out, received, nothing)
    table = inline([{"cell": c, "op": o, "limit_ns": it} for (c, o), it in limits.items()])
    traced = layer_tables.traced(context.run.spans, context.rows, table)
    counts, requests = _requests(context, traced, table, received)
    # the spans of a run may all be of its warm-up
    spans = _spans(context, requests) if len(requests) else nothing
    found = []
    for (cell, op), limit in limits.items():
        own = requests[(requests["cell"] == cell) & (requests["op"] == op)]
        found.append(_blame((cell, op), limit, counts.get((cell, op), (0, 0)), own, spans))
    slowest = fetch(layer_tables.slowest(traced)).assign(number=0)
    if slowest.empty:
        return Layers((*found, *rows), left_out, received, nothing)
    longest = _slowest(_spans(context, slowest))
    op, took = str(slowest["op"].iloc[0]), float(slowest["response"].iloc[0])
    return Layers((*found, *rows), left_out, received, longest, op, took)


def _limit(it: CellSummary) -> float | None:
    """The response time beyond which a request is slow; None if it is not known."""
    name = slow_percentile(it.n - it.failed)
    return None if name is None else {"p90": it.p90, "p95": it.p95, "p99": it.p99}[name]


def _unknown(it: CellSummary) -> Blame:
    name = slow_percentile(it.n - it.failed)
    few = f"{it.n - it.failed} requests are too few for a limit beyond which one is slow"
    why = it.absent.get(name, f"the {name} is not known") if name else few
    return Blame(it.cell, it.op, None, 0, 0, 0, 0, None, (), {"layers": why})


def _requests(
    context: Context, traced: ibis.Table, limits: ibis.Table, received: Received | None
) -> tuple[dict[tuple[str, str], tuple[int, int]], pd.DataFrame]:
    """How many are slow, how many of these have spans, and a sample of those with spans.

    The sample has slow requests and usual ones, numbered. In a run whose receiver did not keep
    every trace both are of those that chance chose: the slowest that were kept besides are a
    choice by what made them slow.
    """
    slow = fetch(layer_tables.slow_counts(context.rows, limits))
    sizes = fetch(layer_tables.traced_counts(traced))
    with_spans = {(str(c), str(o)): int(n) for c, o, _, n in sizes.itertuples(index=False)}
    counts = {
        (str(c), str(o)): (int(n), with_spans.get((str(c), str(o)), 0))
        for c, o, n in slow.itertuples(index=False)
    }
    if sizes.empty:
        return counts, pd.DataFrame(columns=[*REQUEST, *_NUMBERED])
    wanted = max(EACH_LEAST, USUAL_MOST // len(sizes))
    most = max(EACH_LEAST, SLOW_MOST // len(sizes))
    # few of those kept as slow are among the usual ones: twice as many leave enough
    cuts = [
        {"cell": str(c), "op": str(o), "cut": cut(2 * wanted, int(n))}
        for c, o, n, _ in sizes.itertuples(index=False)
    ]
    found = fetch(layer_tables.picked(traced, inline(cuts)))
    if received is not None and received.level:
        found = found[_chosen(context, found, received)]
    place = found.groupby(["cell", "op", "slow"]).cumcount()
    found = found[place < np.where(found["slow"], most, wanted)]
    return counts, found.reset_index(drop=True).rename_axis("number").reset_index()


def _chosen(context: Context, rows: pd.DataFrame, received: Received) -> NDArray[np.bool_]:
    """Return which requests chance chose, so that they stand for all: not those kept as slow."""
    keys = keys_of(context)
    chosen = np.zeros(len(rows), bool)
    mask = np.uint64((1 << received.level) - 1)
    places = rows.groupby(["cell", "repeat", "client"]).indices
    for (cell, repeat, client), at in places.items():
        key = keys.get((str(cell), int(repeat), int(client)))
        if key is not None:
            numbers = rows["request"].to_numpy(dtype=np.uint64)[at]
            chosen[at] = (second_halves(key, numbers) & mask) == 0
    return chosen


def _spans(context: Context, requests: pd.DataFrame) -> pd.DataFrame:
    """The spans of these requests: when each was open, its own time, and its role."""
    spans = fetch(layer_tables.spans_of(context.run.spans, inline(requests[[*REQUEST, "number"]])))
    spans = laid(with_parents(spans), requests)
    return spans.assign(role=_roles(spans))


def _roles(spans: pd.DataFrame) -> NDArray[np.object_]:
    """Whose the own time of each span is.

    A call whose service has spans took itself only the time between the two. Calls of one name
    have one role: of one in a hundred the span of the service may be lost.
    """
    above = spans["above"].to_numpy(dtype=np.int64)
    has_parent = np.flatnonzero(above != NOBODY)
    service = pd.factorize(spans["service"])[0]
    serves = spans["kind"].isin(["server", "consumer"]).to_numpy()[has_parent]
    crosses = serves | (service[has_parent] != service[above[has_parent]])
    answered = np.zeros(len(spans), bool)
    answered[above[has_parent[crosses]]] = True
    calls = spans["kind"].isin(["client", "producer"])
    names = [spans["service"], spans["layer"], calls]
    often = pd.Series(answered, index=spans.index).groupby(names).transform("mean") >= 0.5
    return np.where(calls, np.where(often, "between", "call"), "own").astype(object)


def _blame(
    key: tuple[str, str],
    limit: float,
    counts: tuple[int, int],
    requests: pd.DataFrame,
    spans: pd.DataFrame,
) -> Blame:
    """Give each slow request of one (cell, op) to the layer that has most of its extra time."""
    is_slow = requests["slow"].to_numpy(dtype=bool)
    late, usual = requests[is_slow], requests[~is_slow]
    middle = float(usual["response"].median()) if len(usual) else None
    why = _too_few(counts[0], len(late), len(usual))
    if why is not None:
        return Blame(*key, limit, *counts, len(late), len(usual), middle, (), {"layers": why})
    own = spans[spans["number"].isin(requests["number"])]
    times = _times(own, requests)
    is_late = times["number"].isin(late["number"])
    medians = _medians(times[~is_late], len(usual))
    counted = times[is_late].merge(medians, on=_LAYER, how="left").fillna({"usual_ns": 0.0})
    counted["extra"] = (counted["self_ns"] - counted["usual_ns"]).clip(lower=0.0)
    longest = counted.loc[counted.groupby("number")["extra"].idxmax()]
    owners = longest[longest["extra"] > 0].set_index("number")
    found = _layers(counted, times[~is_late], owners, late, len(usual))
    return Blame(*key, limit, *counts, len(late), len(usual), middle, found)


def _too_few(slow: int, read: int, usual: int) -> str | None:
    if slow < SLOW_LEAST:
        return f"{slow} requests were slower than the limit; {SLOW_LEAST} are needed"
    if read < SLOW_LEAST:
        return f"{read} of {slow} slow requests have spans by chance; {SLOW_LEAST} are needed"
    if usual < USUAL_LEAST:
        return f"{usual} usual requests have spans by chance; {USUAL_LEAST} are needed"
    return None


def _times(spans: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """The own time of each layer in each request: number, service, layer, role, self_ns, calls."""
    grouped = spans.groupby(["number", *_LAYER], sort=True)["self_ns"]
    times = grouped.agg(self_ns="sum", calls="size").reset_index()
    return pd.concat([times, _outside(spans, requests)], ignore_index=True)


def _outside(spans: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """The time of each request in which no span was open, by the spans that have no parent."""
    roots = spans[spans["depth"] == 0]
    place = pd.Series(np.arange(len(requests)), index=requests["number"].to_numpy())
    parent = place[roots["number"].to_numpy()].to_numpy(dtype=np.int64)
    open_ns = union(parent, roots[["began", "ended"]].to_numpy(dtype=np.int64), len(requests))
    lasted = requests["response"].to_numpy(dtype=np.float64)
    service, layer, role = OUTSIDE
    return pd.DataFrame(
        {
            "number": requests["number"].to_numpy(), "service": service, "layer": layer,
            "role": role, "self_ns": np.maximum(lasted - open_ns, 0.0), "calls": 0,
        }
    )  # fmt: skip


def _medians(times: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return the median own time of each layer over `n` requests; one without it counts as 0."""

    def middle(values: pd.Series[float]) -> float:
        present = np.sort(values.to_numpy(dtype=np.float64))
        zeros = n - len(present)
        low, high = (n - 1) // 2 - zeros, n // 2 - zeros
        return float(sum(present[it] if it >= 0 else 0.0 for it in (low, high)) / 2)

    found = times.groupby(_LAYER, sort=True)["self_ns"].agg(middle)
    return found.rename("usual_ns").reset_index()


def _layers(
    late_times: pd.DataFrame,
    usual_times: pd.DataFrame,
    owners: pd.DataFrame,
    late: pd.DataFrame,
    usual: int,
) -> tuple[ServiceLayer, ...]:
    begins = late["intended_ns"].to_numpy(dtype=np.int64)
    length = max(1, int(begins.max()) - int(begins.min()) + 1)
    # a wrong clock makes lengths whose product with the blocks no 64 bits hold
    blocks = pd.Series((begins - begins.min()) // -(-length // BLOCKS), index=late["number"])
    totals = np.bincount(blocks, minlength=BLOCKS)
    usual_calls = usual_times.groupby(_LAYER)["calls"].sum()
    found = []
    for (service, name, role), own in late_times.groupby(_LAYER, sort=True):
        layer = (str(service), str(name), str(role))
        mine = owners[(owners[_LAYER] == list(layer)).all(axis=1)].index
        hits = np.bincount(blocks[mine].to_numpy(dtype=np.int64), minlength=BLOCKS)
        found.append(
            ServiceLayer(
                layer[0],
                layer[1],
                _role(layer[2]),
                share_interval(hits, totals),
                len(mine),
                float(own["usual_ns"].iloc[0]),
                float(own["self_ns"].sum()) / len(late),
                float(usual_calls.get(layer, 0)) / usual,
                float(own["calls"].sum()) / len(late),
            )
        )
    found.sort(key=lambda it: (-it.requests, -(it.slow_ns - it.usual_ns)))
    return tuple(found[:LAYERS_MOST])


def _role(word: str) -> RoleName:
    roles: dict[str, RoleName] = {
        "own": "own", "call": "call", "between": "between", "outside": "outside",
    }  # fmt: skip
    return roles[word]


def _slowest(spans: pd.DataFrame) -> pd.DataFrame:
    """The longest spans of a request, in the order in which they began."""
    known = spans[spans["depth"] != NOBODY]
    known = known.assign(lasted=known["ended"] - known["began"])
    longest = known.nlargest(SLOWEST_SPANS, "lasted").sort_values(["began", "depth"])
    return longest[SLOWEST_COLUMNS].reset_index(drop=True)
