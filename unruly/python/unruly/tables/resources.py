"""Expressions over ``resources``: samplers' own lag, hosts, and replies paired with samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.columns import TABLES
from unruly.tables.requests import bin_start, bins_touched

if TYPE_CHECKING:
    from ibis.expr.types import Table

_NOT_METRICS: Final = frozenset(
    {
        "cell",
        "repeat",
        "host",
        "process",
        "watched",
        "started_ns",
        "ended_ns",
        "sampler_lag_ns",
        "sampler_cost_ns",
    }
)
METRICS: Final = tuple(name for name, _, _ in TABLES["resources"] if name not in _NOT_METRICS)
SAMPLES_MAX: Final = 20_000


def samplers(resources: Table) -> Table:
    """How late the samplers woke, and how long a sample lasts: one row."""
    lag = resources.sampler_lag_ns.cast("float64")
    return resources.agg(
        n=resources.count(),
        lag=lag.quantile([0.5, 0.9, 0.99, 0.999]),
        lag_max=lag.max(),
        period_ns=(resources.ended_ns - resources.started_ns).median(),
    )


def hosts(resources: Table) -> Table:
    """Steal and pressure of the hosts: one row, each figure of the host where it is highest.

    The mean over hosts would hide one busy host among idle ones.
    """
    rows = resources.filter(resources.watched.isnull())
    length = (rows.ended_ns - rows.started_ns).cast("float64").nullif(0.0)
    each = rows.group_by("host").agg(
        steal_mean=rows.cpu_steal_share.mean(),
        steal_max=rows.cpu_steal_share.max(),
        psi_cpu=(rows.psi_cpu_some_ns / length).mean(),
        psi_io=(rows.psi_io_some_ns / length).mean(),
        psi_memory=(rows.psi_memory_some_ns / length).mean(),
    )
    return each.agg(**{name: each[name].max() for name in each.columns if name != "host"})


def processes(resources: Table) -> Table:
    """Each watched process: its share of a CPU, of time waiting for one, and its memory."""
    rows = resources.filter(resources.watched.notnull())
    length = (rows.ended_ns - rows.started_ns).cast("float64").nullif(0.0)
    return (
        rows.group_by(process=rows.watched)
        .agg(
            run_queue_wait_share=(rows.run_queue_wait_ns / length).mean(),
            cpu_share=((rows.user_ns + rows.system_ns) / length).mean(),
            rss_bytes_max=rows.rss_bytes.max(),
            samples=rows.count(),
        )
        .order_by("process")
    )


def used(resources: Table, spans: Table) -> Table:
    """Return the cores that each watched process used: cell, process, cores.

    Parameters
    ----------
    spans : Table
        cell, repeat, ``from_ns``, ``until_ns``: only samples within these times count.
    """
    rows = resources.filter(resources.watched.notnull()).join(spans, ["cell", "repeat"])
    rows = rows.filter((rows.started_ns >= rows.from_ns) & (rows.ended_ns <= rows.until_ns))
    found = rows.group_by("cell", process=rows.watched).agg(
        used_ns=(rows.user_ns + rows.system_ns).sum().cast("float64"),
        sampled_ns=(rows.ended_ns - rows.started_ns).sum().cast("float64").nullif(0.0),
    )
    shared = found.mutate(cores=found.used_ns / found.sampled_ns)
    return shared.filter(shared.cores.notnull()).select("cell", "process", "cores")


def throttled(resources: Table) -> Table:
    """Return how long a CPU limit held each watched process back: cell, repeat, process, ns."""
    rows = resources.filter(resources.watched.notnull())
    return rows.group_by("cell", "repeat", process=rows.watched).agg(
        throttled_ns=rows.cgroup_throttled_ns.sum().fill_null(0)
    )


def held_back(resources: Table) -> Table:
    """Return the processes that a CPU limit held back in a cell, over its repeats.

    Returns
    -------
    Table
        cell, process, throttled_ns (the sum), share (of the time in the samples).
    """
    # a process that two programs sample has its limit in the rows of one
    limited = resources.cgroup_throttled_ns.notnull()
    rows = resources.filter(resources.watched.notnull() & limited)
    length = rows.ended_ns - rows.started_ns
    found = rows.group_by("cell", process=rows.watched).agg(
        throttled_ns=rows.cgroup_throttled_ns.sum().cast("int64"),
        sampled_ns=length.sum().cast("float64").nullif(0.0),
    )
    found = found.filter(found.throttled_ns > 0)
    shared = found.mutate(share=found.throttled_ns / found.sampled_ns)
    return shared.drop("sampled_ns").order_by("cell", "process")


def samples(resources: Table, receivers: Table, scope: str) -> Table:
    """The samples that can be a receiver's, with the span of time that is nearest to each.

    Parameters
    ----------
    receivers : Table
        cell, repeat, server, process, host.
    scope : {"host", "process"}
        Rows of the receiver's host, or of the process itself.

    Returns
    -------
    Table
        sample (its number), cell, repeat, server, started_ns, ended_ns, from_ns, until_ns and the
        metrics. A stamp t is nearest to the sample where from_ns <= t < until_ns: boundaries lie
        midway between the middles of neighbours, and reach at most one sample's length beyond the
        sample itself.
    """
    if scope == "host":
        rows = resources.filter(resources.watched.isnull())
        joined = rows.join(receivers, ["cell", "repeat", "host"])
    else:
        rows = resources.filter(resources.watched.notnull())
        joined = rows.join(
            receivers,
            [
                rows.cell == receivers.cell,
                rows.repeat == receivers.repeat,
                rows.watched == receivers.process,
            ],
        )
    joined = joined.select("cell", "repeat", "server", "started_ns", "ended_ns", *METRICS)
    length = joined.ended_ns - joined.started_ns
    number = ibis.row_number().over(order_by=["cell", "repeat", "server", "started_ns"])
    # halves of differences: a sum of two wall clocks is not exact in every engine's division
    middle = joined.started_ns + length // 2
    joined = joined.mutate(sample=number, middle_ns=middle, length_ns=length)
    order = ibis.window(group_by=["cell", "repeat", "server"], order_by="middle_ns")
    before, after = joined.middle_ns.lag().over(order), joined.middle_ns.lead().over(order)
    reach_before = joined.started_ns - joined.length_ns
    reach_after = joined.ended_ns + joined.length_ns
    midway_before = before + (joined.middle_ns - before) // 2
    midway_after = joined.middle_ns + (after - joined.middle_ns) // 2
    return joined.mutate(
        from_ns=ibis.greatest(midway_before, reach_before).fill_null(reach_before),
        until_ns=ibis.least(midway_after, reach_after).fill_null(reach_after),
    )


def spans(sampled: Table) -> Table:
    """What pairing needs of the samples: whose they are, and when."""
    return sampled.select(
        "sample", "cell", "repeat", "server", "started_ns", "ended_ns", "from_ns", "until_ns"
    )


def in_bins(sampled: Table, bin_ns: int) -> Table:
    """Cut the spans into bins of this length, so that joining with them is one of equals."""
    near = sampled.filter(sampled.until_ns > sampled.from_ns)
    return near.mutate(bin=bins_touched(near.from_ns, near.until_ns, bin_ns))


def paired(rows: Table, near: Table, bin_ns: int) -> Table:
    """Sums over the replies nearest to each sample, for each op.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.measured` gives them.
    near, bin_ns : Table, int
        Spans in bins of this length, as `in_bins` gives them.

    Returns
    -------
    Table
        sample, op, n, log (sum of the log of service, ns), raw (sum, ns), distance_ns (largest
        distance from a stamp to its sample).
    """
    good = rows.filter(rows.service != float("inf"))
    stamp = good.server_received_ns.fill_null(good.received_ns)
    replies = good.select("cell", "repeat", "op", "server", "service", stamp_ns=stamp)
    replies = replies.mutate(bin=bin_start(replies.stamp_ns, bin_ns))
    joined = replies.join(near, ["cell", "repeat", "server", "bin"])
    joined = joined.filter(
        (joined.stamp_ns >= joined.from_ns) & (joined.stamp_ns < joined.until_ns)
    )
    distance = ibis.greatest(
        joined.started_ns - joined.stamp_ns, joined.stamp_ns - joined.ended_ns, 0
    )
    return joined.group_by("sample", "op").agg(
        n=joined.count(),
        log=joined.service.clip(lower=1.0).ln().sum(),
        raw=joined.service.sum(),
        distance_ns=distance.max(),
    )


def with_metrics(sums: Table, levels: Table, sampled: Table) -> Table:
    """Each (receiver, sample) with the replies nearest to it, and all its metrics.

    Parameters
    ----------
    sums : Table
        As `paired` gives them.
    levels : Table
        ``log_mean`` of the service latency of each (cell, op): it is taken away, so that workloads
        of different cost can be pooled.
    sampled : Table
        As `samples` gives them.

    Returns
    -------
    Table
        cell, repeat, server, started_ns, n, latency (mean of the log, less the level), raw (mean,
        ns), distance_ns, length_ns, and the metrics.
    """
    keys = ("cell", "repeat", "server", "started_ns")
    named = sums.join(sampled.select("sample", *keys), "sample").join(levels, ["cell", "op"])
    n = named["n"].sum()
    pairs = named.group_by(*keys).agg(
        n=n,
        latency=(named["log"] - named["n"] * named.log_mean).sum() / n,
        raw=named.raw.sum() / n,
        distance_ns=named.distance_ns.max(),
    )
    return pairs.join(sampled.select(*keys, "length_ns", *METRICS), keys).order_by(*keys)
