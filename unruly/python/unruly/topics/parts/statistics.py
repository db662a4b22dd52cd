"""How long the parts of requests took, and how many requests waited for a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.base.cells import bucket_matrix, percentiles_said
from unruly.base.context import lay_out
from unruly.base.ladder import LEVEL, PERCENTILES
from unruly.base.quantiles import quantiles_of
from unruly.stats import block_interval, share_interval
from unruly.stats.blocks import BLOCKS
from unruly.tables import fetch, inline
from unruly.tables import requests as request_tables
from unruly.tables import spans as span_tables
from unruly.topics.parts import tables as part_tables
from unruly.topics.parts.model import Layer, Opening, Parts

if TYPE_CHECKING:
    import ibis

    from unruly.base.context import Context
    from unruly.stats import Interval

SAID: Final = ("p50", "p99")
NO_BLOCKS: Final = "all of them began at once: there are no blocks of time"


def has_parts(context: Context) -> bool:
    """Return whether the trace of a run that measured something has spans."""
    return not context.empty and context.run.segments.get("spans", 0) > 0


def parts(context: Context) -> Parts | None:
    """Look at the parts of the requests of a run.

    Parameters
    ----------
    context : Context
        The run.

    Returns
    -------
    Parts or None
        None where no span is such a part.
    """
    context.progress("parts of requests")
    spans = span_tables.parts(context.run.spans, context.rows, retried=context.retried)
    layers = _layers(spans)
    return Parts(layers, _openings(context, spans)) if layers else None


def _layers(spans: ibis.Table) -> tuple[Layer, ...]:
    extents = fetch(part_tables.extents(spans))
    if extents.empty:
        return ()
    keys = ["cell", "layer"]
    places = lay_out(extents, keys, "first_ns", "last_ns", "", BLOCKS)
    places["number"] = places.groupby(keys, sort=True).ngroup().astype("int32")
    laid = places[["cell", "repeat", "layer", "number", "first_ns", "before_ns", "block_ns"]]
    placed = part_tables.placed(spans, inline(laid), BLOCKS)
    probabilities = [PERCENTILES[name] for name in SAID]
    frame = quantiles_of(placed, ["number"], probabilities, int(places["n"].sum()), ["response"])
    histogram = fetch(request_tables.block_histogram(placed, "response", "block"))
    named = {
        int(number): {"cell": own["cell"].iloc[0], "layer": own["layer"].iloc[0],
                      "total_ns": float(own["total_ns"].iloc[0])}
        for number, own in places.groupby("number")
    }  # fmt: skip
    found = []
    for row in frame.sort_values("number").to_dict("records"):
        place = named[int(row["number"])]
        own = histogram[histogram["number"] == row["number"]]
        columns = {name: own[name].to_numpy() for name in own.columns}
        found.append(_layer(place, row, bucket_matrix(columns, slice(None), "block")))
    order = span_tables.LAYERS.index
    return tuple(sorted(found, key=lambda it: (it.cell, order(it.layer))))


def _layer(place: dict[str, Any], row: dict[str, Any], counts: tuple[Any, Any]) -> Layer:
    n = int(row["n"])
    absent: dict[str, str] = {}
    values = dict(zip(SAID, map(float, row["response"]), strict=True))
    said = percentiles_said(values, n, 0, absent, "parts")
    intervals: dict[str, Interval | None] = dict.fromkeys(SAID)
    for name in SAID:
        estimate = said[name]
        if estimate is None:
            absent[f"{name}_interval"] = absent[name]
            continue
        if place["total_ns"] <= BLOCKS:
            absent[f"{name}_interval"] = NO_BLOCKS
            continue
        block = block_interval(*counts, PERCENTILES[name], estimate=estimate, level=LEVEL)
        intervals[name] = block.interval
        if block.interval is None:
            absent[f"{name}_interval"] = block.reason or NO_BLOCKS
    return Layer(
        str(place["cell"]), place["layer"], n,
        said["p50"], intervals["p50"], said["p99"], intervals["p99"],
        float(row["response_max"]), absent,
    )  # fmt: skip


def _openings(context: Context, spans: ibis.Table) -> tuple[Opening, ...]:
    places = context.places(BLOCKS)
    columns = ["cell", "repeat", "op", "first_ns", "before_ns", "block_ns"]
    frame = fetch(part_tables.waited(context.rows, spans, inline(places[columns]), BLOCKS))
    found = []
    for (cell, op), own in frame.groupby(["cell", "op"], sort=True):
        blocks = own["block"].to_numpy(dtype=np.int64)
        opened = np.bincount(blocks, own["opened"].to_numpy(dtype=np.float64), minlength=BLOCKS)
        whole = np.bincount(blocks, own["n"].to_numpy(dtype=np.float64), minlength=BLOCKS)
        share = share_interval(opened, whole, LEVEL)
        found.append(Opening(str(cell), str(op), int(whole.sum()), int(opened.sum()), share))
    return tuple(found)
