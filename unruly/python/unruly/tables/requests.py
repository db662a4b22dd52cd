"""Expressions over ``requests``: each takes a lazy table and returns a lazy table.

A request that is not ok ranks as +infinity in every quantile. Every result is ordered, since
engines return groups in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ibis

from unruly.tables.engine import fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibis.expr.types import FloatingValue, IntegerValue, Table, Value

    from unruly.contract import Latency

LATENCIES: Final[tuple[Latency, ...]] = ("response", "service")
INFINITY: Final = float("inf")
SENT_FIRST: Final = "sent_first_ns"
"""When the first try was sent: a column of rows that `last_tries` made."""
BUCKET_WIDTH: Final = 0.005
ASIDE: Final = ("load", "wind_down")
"""Phases that are neither measured nor part of the warm-up."""
FAILED_BUCKET: Final = 1_000_000


def measured(requests: Table) -> Table:
    """Return the measured rows, `timed`: without warm-up, load and wind-down."""
    return timed(requests.filter(requests.phase.notin(["warmup", *ASIDE])))


def counted(requests: Table) -> Table:
    """Return the `measured` rows; a request that was tried again has its last try only.

    Reads the attempts first, because finding the last tries costs a window over all rows.
    """
    rows = measured(requests)
    most = fetch(rows.agg(most=rows.attempt.max()))["most"].iloc[0]
    return measured(last_tries(requests)) if most > 0 else rows


def timed(requests: Table) -> Table:
    """Return rows of all phases with both latencies (ns; +inf when not ok).

    Adds ``ok``, ``response``, ``service``, ``send_lag`` (the send delay in ns, null when never
    sent). A request that was tried again has the send delay of its first try, since the time
    between tries is no late send. A request that ``waited`` for a connection has no send delay: the
    load generator was on time.
    """
    waited = requests.waited.fill_null(False)
    ok = requests.status == "ok"

    def latency(since: Value) -> Value:
        known = ok & requests.received_ns.notnull() & since.notnull()
        return ibis.ifelse(known, (requests.received_ns - since).cast("float64"), INFINITY)

    tried_again = SENT_FIRST in requests.columns
    first_sent_ns = requests[SENT_FIRST] if tried_again else requests.sent_ns
    return requests.mutate(
        ok=ok,
        waited=waited,
        response=latency(requests.intended_ns),
        service=latency(requests.sent_ns),
        send_lag=ibis.ifelse(waited, ibis.null("int64"), first_sent_ns - requests.intended_ns),
    )


def last_tries(requests: Table) -> Table:
    """Return the last try of each request to one server, with the scheduled time of its first try.

    That is the latency which the client saw. Adds `SENT_FIRST`. A request to several servers keeps
    all its rows, because its copies are analysed together.
    """
    request = ibis.window(group_by=["cell", "repeat", "client", "op", "request"])
    tried = requests.mutate(
        sent_first_ns=requests.sent_ns.min().over(request),
        tried_last=requests.attempt.max().over(request),
        tried_first_ns=requests.intended_ns.min().over(request),
        alone=requests.server.min().over(request) == requests.server.max().over(request),
    )
    kept = tried.filter(~tried.alone | (tried.attempt == tried.tried_last))
    return kept.mutate(
        intended_ns=ibis.ifelse(kept.alone, kept.tried_first_ns, kept.intended_ns),
        sent_first_ns=ibis.ifelse(kept.alone, kept.sent_first_ns, kept.sent_ns),
        attempt=ibis.ifelse(kept.alone, ibis.literal(0, type="uint8"), kept.attempt),
    ).drop("tried_last", "tried_first_ns", "alone")


def pairs(rows: Table) -> Table:
    """What there is of each (cell, repeat, op, client, server): how much, when, how stamped.

    ``flat`` counts rows that took no time at all, ``ok``, ``stamped`` and ``server_stamped`` those
    that are ok, and that carry kernel stamps; ``end_ns`` is the last stamp, ``longest_ns`` the
    longest response that came well.
    """
    keys = ("cell", "repeat", "op", "client", "server")
    return (
        rows.group_by(*keys)
        .agg(
            n=rows.count(),
            failed=(~rows.ok).sum(),
            flat=(rows.service <= 0).sum(),
            first_ns=rows.intended_ns.min(),
            last_ns=rows.intended_ns.max(),
            end_ns=ibis.greatest(rows.intended_ns, rows.received_ns.fill_null(0)).max(),
            attempts=rows.attempt.max(),
            lag_max_ns=rows.send_lag.max(),
            longest_ns=rows.response.nullif(INFINITY).max(),
            stamped=(rows.ok & rows.kernel_received_ns.notnull()).sum(),
            server_stamped=(rows.ok & rows.server_kernel_received_ns.notnull()).sum(),
        )
        .order_by(*keys)
    )


def statuses(requests: Table) -> Table:
    """Rows and answered rows of each status, the warm-up included: what conservation counts."""
    return (
        requests.group_by("status")
        .agg(n=requests.count(), answered=requests.answered.sum())
        .order_by("status")
    )


def codes(rows: Table) -> Table:
    """Replies by cell, operation and status code, the code expected or not; none without codes.

    A reply that came after its timeout is not judged by its status: then a code of HTTP below 400
    is expected. Codes below 100 are those of gRPC, whose success has none.
    """
    replied = rows.filter(rows.code.notnull())
    judged = replied.status.startswith("error:") | (replied.status == "wrong:lost")
    marked = replied.mutate(expected=replied.ok | (replied.code.between(100, 399) & ~judged))
    keys = ("cell", "op", "code", "expected")
    return marked.group_by(*keys).agg(n=marked.count(), waited=marked.waited.sum()).order_by(*keys)


def moments(rows: Table, *keys: str) -> Table:
    """Count, failures; mean, sd (ddof 1), min, max of the ok rows of both latencies; log mean."""
    figures: dict[str, Value] = {"n": rows.count(), "failed": (~rows.ok).sum()}
    for name in LATENCIES:
        # aggregates pass over nulls, at half the cost of a condition on each of them
        known = rows[name].nullif(INFINITY)
        figures |= {
            f"{name}_known": known.count(),
            f"{name}_mean": known.mean(),
            f"{name}_sd": known.std(how="sample"),
            f"{name}_min": known.min(),
            f"{name}_max": known.max(),
        }
    figures["log_mean"] = rows.service.nullif(INFINITY).clip(lower=1.0).ln().mean()
    return rows.group_by(*keys).agg(**figures).order_by(*keys)


def quantiles(
    rows: Table,
    keys: Sequence[str],
    probabilities: Sequence[float],
    latencies: Sequence[str] = LATENCIES,
) -> Table:
    """Exact quantiles (type 7, failed rows as +inf) of the latencies, as lists.

    NaN or inf where the rank falls among the failed. The engine holds every value: more rows than
    memory has room for go through `unruly.tables.selection`.
    """
    lists = {name: rows[name].quantile(list(probabilities)) for name in latencies}
    return rows.group_by(*keys).agg(**_extremes(rows, latencies), **lists).order_by(*keys)


def extremes(rows: Table, keys: Sequence[str], latencies: Sequence[str] = LATENCIES) -> Table:
    """The same without the quantiles: ``n``, ``failed``, and the mean and max of the ok rows."""
    return rows.group_by(*keys).agg(**_extremes(rows, latencies)).order_by(*keys)


def _extremes(rows: Table, latencies: Sequence[str]) -> dict[str, Value]:
    figures: dict[str, Value] = {"n": rows.count(), "failed": (~rows.ok).sum()}
    for name in latencies:
        known = rows[name].nullif(INFINITY)
        figures |= {f"{name}_mean": known.mean(), f"{name}_max": known.max()}
    return figures


def numbered(rows: Table, places: Table, blocks: int) -> Table:
    """The rows with numbers for names, and with their blocks of measured time.

    Parameters
    ----------
    places : Table
        For each (cell, repeat, op): ``number``, ``first_ns``, ``before_ns`` (measured time of
        earlier repeats) and ``block_ns``. Where a cell has several ops or repeats also ``whole``,
        ``place``, and ``cell_first_ns`` and so on, of all ops of the cell together.
    """
    joined = rows.join(places, ["cell", "repeat", "op"])

    def block(first: Value, before: Value, length: Value) -> Value:
        place = ((joined.intended_ns - first + before) / length).floor().cast("int32")
        return ibis.greatest(0, ibis.least(blocks - 1, place)).cast("int8")

    more = {}
    if "whole" in places.columns:
        more = {
            "whole": joined.whole,
            "place": joined.place,
            "cell_block": block(joined.cell_first_ns, joined.cell_before_ns, joined.cell_block_ns),
        }
    if SENT_FIRST in joined.columns:
        more["send_lag"] = joined.send_lag
    return joined.select(
        "number", "client", "connection", "request", "intended_ns", "ok", "response", "service",
        "waited",
        block=block(joined.first_ns, joined.before_ns, joined.block_ns),
        **more,
    )  # fmt: skip


def with_all_numbers(rows: Table) -> Table:
    """Add ``whole``, ``place`` and ``cell_block``: of single ops and repeats they are the same."""
    if "whole" in rows.columns:
        return rows
    return rows.mutate(whole=rows.number, place=rows.number, cell_block=rows.block)


def tail_counts(rows: Table, limits: Table) -> Table:
    """Count rows beyond limits known by now: 10 x the mean, mean + 3 sd, the p99.

    Parameters
    ----------
    rows : Table
        As `numbered` gives them.
    limits : Table
        number and for each latency ``<latency>_ten``, ``<latency>_three``; ``response_p99``; and
        the same under ``whole_``: the limits of the cell over all its ops, where it has several.
    """
    joined = rows.join(limits, "number")
    beyond = joined.response > joined.response_p99
    # of a row that is ok and was tried once, the send lag is what its two latencies differ by
    lag = joined.send_lag if "send_lag" in joined.columns else joined.response - joined.service
    explained = beyond & joined.ok & ~joined.waited & (lag > 0.5 * joined.response)
    figures: dict[str, Value] = {"tail": beyond.sum(), "tail_explained": explained.sum()}
    for name in LATENCIES:
        # a failed row is infinite: beyond no limit that was set, since then there is no mean
        known = joined[name] != INFINITY
        for limit in (f"{name}_ten", f"{name}_three", f"whole_{name}_ten", f"whole_{name}_three"):
            if limit in limits.columns:
                above = joined[name] > joined[limit]
                figures[limit.replace(f"{name}_", f"{name}_over_")] = (above & known).sum()
    return joined.group_by("number").agg(**figures).order_by("number")


def bucket(latency: FloatingValue) -> IntegerValue:
    """Logarithmic 0.5 % bucket of a latency; failed rows in a bucket of their own."""
    failed = latency == INFINITY
    log = ibis.ifelse(failed, 1.0, latency.clip(lower=1.0)).ln()
    index = (log / ibis.literal(1 + BUCKET_WIDTH).ln()).floor().cast("int32")
    return ibis.ifelse(failed, FAILED_BUCKET, index)


def block_histogram(rows: Table, latency: str, *blocks: str) -> Table:
    """Histogram of a latency in equal blocks of measured time.

    Parameters
    ----------
    rows : Table
        As `numbered` gives them.
    blocks : str
        ``block``, also ``cell_block`` where a cell's own blocks are wanted.

    Returns
    -------
    Table
        number, the blocks, bucket, count; in any order.
    """
    placed = rows.select("number", *blocks, bucket=bucket(rows[latency]))
    return placed.group_by("number", *blocks, "bucket").agg(count=placed.count())


def in_bins(rows: Table, first_ns: int, bin_ns: int) -> Table:
    """Add ``bin``: which stretch of time, counted from `first_ns`."""
    return rows.mutate(bin=((rows.intended_ns - first_ns) // bin_ns).cast("int32"))


def bin_start(stamp_ns: IntegerValue, bin_ns: int) -> IntegerValue:
    """Where the bin of a wall clock's stamp starts.

    Exact on every engine: a quotient may pass through a double, which holds no wall clock in ns.
    """
    return (stamp_ns - stamp_ns % bin_ns).cast("int64")


def bins_touched(first_ns: IntegerValue, last_ns: IntegerValue, bin_ns: int) -> IntegerValue:
    """A row for each bin that a span touches, so that joining with it is a join of equals."""
    # Ibis writes for Spark that a range is empty where its length, stop - start, is not positive,
    # and forgets the brackets of a start that is itself a difference: a sum has them
    start = bin_start(first_ns, bin_ns) + 0
    starts = ibis.range(start, bin_start(last_ns, bin_ns) + 1, bin_ns)
    return starts.unnest().cast("int64")


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


def in_windows(starts: Table) -> Callable[[Table], Table]:
    """Return what adds ``window`` to rows.

    Parameters
    ----------
    starts : Table
        ``origin_ns`` and ``window_ns`` of each (cell, repeat): where its windows begin, and how
        long they are.
    """

    def windowed(rows: Table) -> Table:
        joined = rows.join(starts, ["cell", "repeat"])
        since = joined.intended_ns - joined.origin_ns
        return joined.mutate(window=(since // joined.window_ns).cast("int32"))

    return windowed


def late_share(rows: Table, limit_ns: float) -> Table:
    """The share of the rows that were sent late, failed ones included: one row, ``share``.

    Late is a send delay above `limit_ns` that is more than half of the response time. The response
    time of a failed row is unknown, so the limit alone decides.
    """
    most = ~rows.ok | (rows.send_lag > 0.5 * rows.response)
    late = (rows.send_lag > limit_ns) & most
    return rows.agg(share=ibis.ifelse(late, 1.0, 0.0).mean())


LAG_PROBABILITIES: Final = (0.5, 0.9, 0.99, 0.999)


def send_lag(rows: Table) -> Table:
    """Quantiles of the send lag, as a list: one row."""
    return rows.agg(lag=rows.send_lag.cast("float64").quantile(list(LAG_PROBABILITIES)))


def lag_at_end(rows: Table, ends: Table) -> Table:
    """Return the median send delay of the rows scheduled last: one row, ``lag``.

    Parameters
    ----------
    ends : Table
        cell, repeat, from_ns: the rows scheduled from then on.
    """
    last = rows.join(ends, ["cell", "repeat"])
    last = last.filter(last.intended_ns >= last.from_ns)
    return last.agg(lag=last.send_lag.cast("float64").median())


def unread(delays: Table, limit_ns: float) -> Table:
    """Count the replies or parts that were read late: one row, ``late``, ``longest``.

    Late is a delay above `limit_ns` that is more than half of the whole time. ``longest`` (ns) is
    the longest delay of a late one, 0 without one.
    """
    late = (delays.delay > limit_ns) & (delays.delay > 0.5 * delays.response)
    return delays.agg(
        late=late.cast("int64").sum().fill_null(0),
        longest=delays.delay.max(where=late).fill_null(0),
    )
