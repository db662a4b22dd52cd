"""Expressions over ``requests``: each takes a lazy table and returns a lazy table.

A request that is not ok ranks as +infinity in every quantile. Every result is ordered, since
engines return groups in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibis.expr.types import FloatingValue, IntegerValue, Table, Value

LATENCIES: Final = ("response", "service")
INFINITY: Final = float("inf")
BUCKET_WIDTH: Final = 0.005
FAILED_BUCKET: Final = 1_000_000


def measured(requests: Table) -> Table:
    """Rows that count: without the warm-up, with both latencies (ns; +inf when not ok).

    Adds ``ok``, ``response``, ``service``, ``send_lag`` (ns, null when never sent).
    """
    ok = requests.status == "ok"

    def latency(since: Value) -> Value:
        known = ok & requests.received_ns.notnull() & since.notnull()
        return ibis.ifelse(known, (requests.received_ns - since).cast("float64"), INFINITY)

    return requests.filter(requests.phase != "warmup").mutate(
        ok=ok,
        response=latency(requests.intended_ns),
        service=latency(requests.sent_ns),
        send_lag=requests.sent_ns - requests.intended_ns,
    )


def extents(rows: Table) -> Table:
    """First and last intended send, and last stamp, of each (cell, repeat, op)."""
    return (
        rows.group_by("cell", "repeat", "op")
        .agg(
            n=rows.count(),
            first_ns=rows.intended_ns.min(),
            last_ns=rows.intended_ns.max(),
            end_ns=ibis.greatest(rows.intended_ns, rows.received_ns.fill_null(0)).max(),
            senders=rows.client.nunique(),
            receivers=rows.server.nunique(),
            retried=(rows.attempt > 0).any(),
        )
        .order_by("cell", "repeat", "op")
    )


def statuses(requests: Table) -> Table:
    """Rows and answered rows of each status, the warm-up included: what conservation counts."""
    return (
        requests.group_by("status")
        .agg(n=requests.count(), answered=requests.answered.sum())
        .order_by("status")
    )


def all_ops(rows: Table) -> Table:
    """The same rows under the op ``"*"``."""
    return rows.mutate(op=ibis.literal("*"))


def moments(rows: Table, *keys: str) -> Table:
    """Count, failures, and mean, sd (ddof 1), min, max of the ok rows, of both latencies."""
    figures: dict[str, Value] = {"n": rows.count(), "failed": (~rows.ok).sum()}
    for name in LATENCIES:
        column = rows[name]
        good = column != INFINITY
        figures |= {
            f"{name}_known": good.sum(),
            f"{name}_mean": column.mean(where=good),
            f"{name}_sd": column.std(where=good, how="sample"),
            f"{name}_min": column.min(where=good),
            f"{name}_max": column.max(where=good),
            f"{name}_log_mean": column.clip(lower=1.0).ln().mean(where=good),
        }
    return rows.group_by(*keys).agg(**figures).order_by(*keys)


def quantiles(rows: Table, keys: Sequence[str], probabilities: Sequence[float]) -> Table:
    """Exact quantiles (type 7, failed rows as +inf) of both latencies, as lists.

    NaN or inf where the rank falls among the failed.
    """
    wanted = list(probabilities)
    figures: dict[str, Value] = {"n": rows.count(), "failed": (~rows.ok).sum()}
    for name in LATENCIES:
        figures[name] = rows[name].quantile(wanted)
        figures[f"{name}_max"] = rows[name].max(where=rows[name] != INFINITY)
    return rows.group_by(*keys).agg(**figures).order_by(*keys)


def tail_counts(rows: Table, limits: Table) -> Table:
    """Count rows beyond limits known by now: 10 x the mean, mean + 3 sd, the p99.

    Parameters
    ----------
    rows : Table
        As `measured` gives them.
    limits : Table
        cell, op and for each latency ``<latency>_ten``, ``<latency>_three``; ``response_p99``; and
        the same under ``whole_``: the limits of the cell over all its ops.
    """
    joined = rows.join(limits, ["cell", "op"])
    beyond = joined.response > joined.response_p99
    explained = beyond & joined.ok & (joined.send_lag > 0.5 * joined.response)
    figures: dict[str, Value] = {"tail": beyond.sum(), "tail_explained": explained.sum()}
    for name in LATENCIES:
        # a failed row is infinite: beyond no limit that was set, since then there is no mean
        known = joined[name] != INFINITY
        for whole in ("", "whole_"):
            for limit in ("ten", "three"):
                above = joined[name] > joined[f"{whole}{name}_{limit}"]
                figures[f"{whole}{name}_over_{limit}"] = (above & known).sum()
    return joined.group_by("cell", "op").agg(**figures).order_by("cell", "op")


def bucket(latency: FloatingValue) -> IntegerValue:
    """Logarithmic 0.5 % bucket of a latency; failed rows in a bucket of their own."""
    failed = latency == INFINITY
    log = ibis.ifelse(failed, 1.0, latency.clip(lower=1.0)).ln()
    index = (log / ibis.literal(1 + BUCKET_WIDTH).ln()).floor().cast("int32")
    return ibis.ifelse(failed, FAILED_BUCKET, index)


def block_histogram(rows: Table, places: Table, latency: str, blocks: int) -> Table:
    """Histogram of a latency in equal blocks of measured time.

    Parameters
    ----------
    places : Table
        For each (cell, repeat, op): ``first_ns``, ``before_ns`` (measured time of earlier repeats)
        and ``block_ns``, and the same as ``cell_*`` for all ops together.

    Returns
    -------
    Table
        cell, op, block, cell_block, bucket, count.
    """
    joined = rows.join(places, ["cell", "repeat", "op"])

    def block(first: Value, before: Value, length: Value) -> Value:
        place = ((joined.intended_ns - first + before) / length).floor().cast("int32")
        return place.clip(lower=0, upper=blocks - 1)

    return (
        joined.select(
            "cell",
            "op",
            block=block(joined.first_ns, joined.before_ns, joined.block_ns),
            cell_block=block(joined.cell_first_ns, joined.cell_before_ns, joined.cell_block_ns),
            bucket=bucket(joined[latency]),
        )
        .group_by("cell", "op", "block", "cell_block", "bucket")
        .agg(count=lambda t: t.count())
        .order_by("cell", "op", "block", "cell_block", "bucket")
    )


def timeline(rows: Table, first_ns: int, bin_ns: int) -> Table:
    """Response in bins of time, for each op: n, failed, p50, p99, max (of ok rows)."""
    binned = rows.mutate(bin=((rows.intended_ns - first_ns) // bin_ns).cast("int32"))
    good = binned.response != INFINITY
    return (
        binned.group_by("op", "bin")
        .agg(
            n=binned.count(),
            failed=(~binned.ok).sum(),
            quantiles=binned.response.quantile([0.5, 0.99]),
            max=binned.response.max(where=good),
        )
        .order_by("op", "bin")
    )


def slowest(rows: Table, limit: int) -> Table:
    """The slowest ok rows by response."""
    return (
        rows.filter(rows.response != INFINITY)
        .select(*_OUTLIER_COLUMNS)
        .order_by(ibis.desc("response"), "intended_ns", "client", "request", "server")
        .limit(limit)
    )


def failed(rows: Table, limit: int) -> Table:
    """The first failed rows."""
    return (
        rows.filter(~rows.ok)
        .select(*_OUTLIER_COLUMNS)
        .order_by("intended_ns", "client", "request", "server")
        .limit(limit)
    )


_OUTLIER_COLUMNS: Final = (
    "intended_ns",
    "cell",
    "repeat",
    "op",
    "client",
    "server",
    "request",
    "attempt",
    "response",
    "service",
    "send_lag",
    "status",
)


def pair_windows(
    rows: Table, starts: Table, window_ns: int, probabilities: Sequence[float]
) -> Table:
    """Response quantiles of each (cell, repeat, window, op, client, server).

    Parameters
    ----------
    starts : Table
        ``origin_ns`` of each (cell, repeat): windows count from there.
    """
    joined = rows.join(starts, ["cell", "repeat"])
    windowed = joined.mutate(
        window=((joined.intended_ns - joined.origin_ns) // window_ns).cast("int32")
    )
    keys = ("cell", "repeat", "window", "op", "client", "server")
    return (
        windowed.group_by(*keys)
        .agg(
            n=windowed.count(),
            failed=(~windowed.ok).sum(),
            quantiles=windowed.response.quantile(list(probabilities)),
        )
        .order_by(*keys)
    )


def self_distrust(rows: Table) -> Table:
    """Send lag, and how many ok rows carry kernel stamps: one row."""
    lag = rows.send_lag.cast("float64")
    return rows.agg(
        n=rows.count(),
        ok=rows.ok.sum(),
        lag=lag.quantile([0.5, 0.9, 0.99, 0.999]),
        lag_max=lag.max(),
        stamped=(rows.ok & rows.kernel_received_ns.notnull()).sum(),
        server_stamped=(rows.ok & rows.server_kernel_received_ns.notnull()).sum(),
    )
