"""Expressions that find when nothing was answered: good requests by bin, failures in a span."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis

from unruly.tables.steadiness import within

if TYPE_CHECKING:
    from ibis.expr.types import Table


def by_status(rows: Table) -> Table:
    """Count the measured rows of each status: status, n."""
    return rows.group_by("status").agg(n=rows.count()).order_by("status")


def in_bins(rows: Table, places: Table) -> Table:
    """Return the failures, and the first and last good request, of each server by bin of time.

    Parameters
    ----------
    rows : Table
        As `unruly.tables.requests.measured` gives them.
    places : Table
        cell, repeat, server to look at, with ``origin_ns`` and ``bin_ns``.

    Returns
    -------
    Table
        cell, repeat, server, bin, ``failed`` (a count), ``first_good_ns`` and ``last_good_ns``: the
        scheduled times of the first and last good request, ns since the origin (null if none).
    """
    joined = rows.join(places, ["cell", "repeat", "server"])
    since_ns = joined.intended_ns - joined.origin_ns
    placed = joined.mutate(since_ns=since_ns, bin=(since_ns // joined.bin_ns).cast("int64"))
    keys = ("cell", "repeat", "server", "bin")
    good_ns = placed.ok.ifelse(placed.since_ns, ibis.null())
    counted = placed.group_by(*keys).agg(
        failed=(~placed.ok).sum(), first_good_ns=good_ns.min(), last_good_ns=good_ns.max()
    )
    return counted.order_by(*keys)


def failed_in(rows: Table, spans: Table) -> Table:
    """Count the failures in each span, by status: outage, status, n, first_ns.

    Parameters
    ----------
    spans : Table
        outage (its number), cell, repeat, of_server (below 0 for all), from_ns, to_ns.
    """
    found = within(rows.filter(~rows.ok), spans.rename(of_cell="cell", of_repeat="repeat"))
    same = (found.cell == found.of_cell) & (found.repeat == found.of_repeat)
    own = found.filter(same & ((found.of_server < 0) | (found.of_server == found.server)))
    keys = ("outage", "status")
    return own.group_by(*keys).agg(n=own.count(), first_ns=own.intended_ns.min()).order_by(*keys)
