"""What another way of asking would have cost: first, k-th, all, a single copy, or a hedge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from unruly.errors import ParameterError
from unruly.stats.blocks import BLOCKS, block_interval
from unruly.stats.histogram import bucket_index
from unruly.stats.interval import Interval, quantile
from unruly.stats.share import share_interval
from unruly.stats.synchrony import kth_of_n

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unruly.contract import Keywords

PROBABILITIES = (0.5, 0.99, 0.999)
EXACT = "exact: these very replies"
WHAT_IF = "what-if: the other copies loaded the servers too"


@dataclass(frozen=True)
class Way:
    """One way of asking, and what it would have cost.

    ``quantiles`` maps p to ns (None among the failed, or with fewer than 1 / (1 - p) requests).
    ``p99`` has the interval that survives stalls; where the method abstains only its lower bound,
    and ``abstained`` says why. ``sent`` is the number of copies sent per request,
    ``extra`` the share of requests that sent a second one (a hedge). ``basis`` says whether the
    values are exact, those of these very replies, or a what-if.
    """

    name: str
    basis: str
    quantiles: Annotated[dict[float, float | None], Keywords(required=["p50", "p99", "p99.9"])]
    mean_ok: float | None
    failed: int
    n: int
    p99: Interval
    abstained: str | None
    sent: float
    extra: Interval | None = None
    delay_ns: float | None = None


@dataclass(frozen=True)
class Ways:
    """All ways, on the same requests. ``fixed`` is one server each, in the order of columns."""

    kth: tuple[Way, ...]
    single: Way
    fixed: tuple[Way, ...]
    hedges: tuple[Way, ...]

    @property
    def first(self) -> Way:
        """The first of n."""
        return self.kth[0]

    @property
    def all(self) -> Way:
        """The last of n."""
        return self.kth[-1]


def replies_of(
    replies_ns: ArrayLike,
    delays_ns: ArrayLike,
    *,
    blocks: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Ways:
    """Say what each way of asking would have cost on these very requests.

    Parameters
    ----------
    replies_ns : array_like, shape (requests, n), float64
        Time of each copy's reply since the request's intended time, a column a server, rows in
        order of time; ``inf`` where none came. No NaN.
    delays_ns : array_like, shape (m,), float64
        d of the hedges: a second copy goes to another server when the first has not answered by
        then. 0 or more.
    blocks : array_like, shape (requests,), int, optional
        The block of equal time of each request, 0 to 29; by default 30 blocks of as many requests.
    level : float
        Of the intervals.
    seed : int
        Of the choice of servers: the hedge asks two random ones.

    Returns
    -------
    Ways

    Raises
    ------
    ParameterError
        If there is no request, fewer than two copies, or a delay is negative.

    Notes
    -----
    First, k-th and all are what happened. A single copy (to a random server: all copies pooled; or
    always the same) and the hedge, min(first copy, d + second copy), are what-ifs: with fewer
    copies the servers would have had less to do, so that a real one is rather faster. The best of
    several fixed servers is known in hindsight only. The hedge assumes that a copy sent d later
    meets what the copy sent at once met; do not use it for d beyond the length of a stall, where
    the copy measured here still fell into it.

    References
    ----------
    .. [1] J. Dean, L. A. Barroso, "The tail at scale", 2013.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> replies = rng.exponential(1e6, (20_000, 3))
    >>> ways = replies_of(replies, [4.6e6])
    >>> [round(way.quantiles[0.99] / 1e6, 1) for way in (ways.first, ways.single, ways.all)]
    [1.5, 4.6, 5.6]
    >>> hedge = ways.hedges[0]
    >>> hedge.quantiles[0.999] < ways.single.quantiles[0.999], round(hedge.extra.estimate, 3)
    (True, 0.009)

    The first of three is three times as quick as a single copy. A second copy after 4.6 ms, which
    1 % of the requests need, shortens the p99.9.
    """
    table = np.asarray(replies_ns, dtype=np.float64)
    delays = np.asarray(delays_ns, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] < 2:
        raise ParameterError(
            "replies_ns", f"has shape {table.shape}", "(requests, n), n two or more",
            "group requests only",
        )  # fmt: skip
    if np.any(delays < 0):
        raise ParameterError("delays_ns", f"are {delays}", "0 or more", "0 sends both at once")
    count, copies = table.shape
    block = (
        np.arange(count) * BLOCKS // count
        if blocks is None
        else np.asarray(blocks, dtype=np.int64).clip(0, BLOCKS - 1)
    )
    rng = np.random.default_rng(seed)
    one = rng.integers(0, copies, count)
    other = (one + rng.integers(1, copies, count)) % copies
    rows = np.arange(count)
    first, second = table[rows, one], table[rows, other]
    make = _Maker(block, level)
    return Ways(
        kth=tuple(
            make.way(_kth_name(k, copies), EXACT, kth_of_n(table, k), sent=copies)
            for k in range(1, copies + 1)
        ),
        single=make.way("single", WHAT_IF, table.ravel(), sent=1, repeat=copies),
        fixed=tuple(
            make.way(f"server {place}", WHAT_IF, table[:, place], sent=1)
            for place in range(copies)
        ),
        hedges=tuple(make.hedge(first, second, float(delay)) for delay in delays),
    )  # fmt: skip


def _kth_name(k: int, copies: int) -> str:
    if k in (1, copies):
        return "first" if k == 1 else "all"
    return "majority" if k == copies // 2 + 1 else f"{k} of {copies}"


@dataclass(frozen=True)
class _Maker:
    block: NDArray[np.int64]
    level: float

    def way(
        self,
        name: str,
        basis: str,
        took: NDArray[np.float64],
        *,
        sent: float,
        repeat: int = 1,
        extra: Interval | None = None,
        delay_ns: float | None = None,
    ) -> Way:
        # a quantile is reported only if at least one value lies beyond it
        enough = {p: took.size // repeat >= round(1 / (1 - p)) for p in PROBABILITIES}
        quantiles = {p: _known(quantile(took, p)) if enough[p] else None for p in PROBABILITIES}
        finite = took[np.isfinite(took)]
        p99, abstained = self._p99(took, repeat, quantiles[0.99])
        return Way(
            name,
            basis,
            quantiles,
            float(finite.mean()) if finite.size else None,
            int(took.size - finite.size),
            int(took.size),
            p99,
            abstained,
            float(sent),
            extra,
            delay_ns,
        )

    def hedge(
        self, first: NDArray[np.float64], second: NDArray[np.float64], delay_ns: float
    ) -> Way:
        late = first > delay_ns
        hits = np.bincount(self.block, weights=late, minlength=BLOCKS)
        extra = share_interval(hits, np.bincount(self.block, minlength=BLOCKS), self.level)
        return self.way(
            "hedge",
            WHAT_IF,
            np.minimum(first, delay_ns + second),
            sent=1 + float(late.mean()),
            extra=extra,
            delay_ns=delay_ns,
        )

    def _p99(
        self, took: NDArray[np.float64], repeat: int, estimate: float | None
    ) -> tuple[Interval, str | None]:
        buckets, place = np.unique(bucket_index(took), return_inverse=True)
        counts = np.zeros((buckets.size, BLOCKS))
        np.add.at(counts, (place, np.repeat(self.block, repeat)), 1)
        found = block_interval(buckets, counts, 0.99, estimate=estimate, level=self.level)
        if found.interval is not None:
            return found.interval, None
        why = found.reason or "its rank falls among the failed"
        return Interval(
            estimate, found.lower_bound, None, self.level, int(took.size), found.n_effective,
            "block design effect, lower bound only",
        ), why  # fmt: skip


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
