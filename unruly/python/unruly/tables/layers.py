"""Expressions over the spans that services exported: whose requests they are, and the spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis

from unruly.tables.causes import scattered
from unruly.tables.spans import REQUEST

if TYPE_CHECKING:
    from ibis.expr.types import Table

KEYS = ("cell", "op")


def of_services(spans: Table) -> Table:
    """Return the spans that services exported, without those of the load generator."""
    return spans.filter(spans.span_id.notnull())


def slow_counts(rows: Table, limits: Table) -> Table:
    """Return how many answered requests of each (cell, op) took longer than its ``limit_ns``.

    Columns: cell, op, ``slow``.
    """
    joined = rows.filter(rows.ok).join(limits, list(KEYS))
    slow = joined.filter(joined.response > joined.limit_ns)
    return slow.group_by(*KEYS).agg(slow=slow.count()).order_by(*KEYS)


def traced(spans: Table, rows: Table, limits: Table) -> Table:
    """Return the answered requests with spans.

    Parameters
    ----------
    limits : Table
        cell, op, limit_ns.

    Returns
    -------
    Table
        The columns of `REQUEST`, op, intended_ns, response (ns), ``slow`` (longer than the limit)
        and ``scatter`` (a number that has nothing to do with a request's place in the schedule).
    """
    known = of_services(spans).select(*REQUEST).distinct()
    joined = rows.filter(rows.ok).semi_join(known, REQUEST).join(limits, list(KEYS))
    return joined.select(
        *REQUEST,
        "op",
        "intended_ns",
        "response",
        slow=joined.response > joined.limit_ns,
        scatter=scattered(joined.request + joined.client),
    )


def traced_counts(requests: Table) -> Table:
    """Count the requests of `traced`: cell, op, ``n``, and ``slow`` of them that are slow."""
    counts = requests.group_by(*KEYS).agg(n=requests.count(), slow=requests.slow.sum())
    return counts.order_by(*KEYS)


def picked(requests: Table, cuts: Table) -> Table:
    """Return the slow requests of `traced`, and of the others those with a scatter below a cut.

    Parameters
    ----------
    cuts : Table
        cell, op, cut.
    """
    joined = requests.join(cuts, list(KEYS))
    found = joined.filter(joined.slow | (joined.scatter < joined.cut))
    return found.drop("cut").order_by("cell", "op", "scatter", "repeat", "client", "request")


def slowest(requests: Table) -> Table:
    """Return the slowest of the requests of `traced`."""
    order = (ibis.desc("response"), "cell", "repeat", "client", "request")
    return requests.order_by(*order).limit(1)


def spans_of(spans: Table, requests: Table) -> Table:
    """Return the spans of some requests (the columns of `REQUEST`, and ``number``).

    Returns
    -------
    Table
        number, layer, service, kind, span_id, parent_id (0 where it has none: with nulls the ids
        would become doubles), started_ns, ended_ns.
    """
    own = of_services(spans).join(requests, list(REQUEST))
    return own.select(
        "number",
        "layer",
        "span_id",
        "started_ns",
        "ended_ns",
        service=own.service.fill_null(""),
        kind=own.kind.fill_null(""),
        parent_id=own.parent_id.fill_null(0),
    ).order_by("number", "started_ns", "span_id")
