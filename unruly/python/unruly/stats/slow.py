"""Which requests count as slow: a percentile that leaves a handful of them beyond it."""

from __future__ import annotations

from typing import Final

SLOW_FROM: Final = {"p99": 600, "p95": 120, "p90": 60}
"""The percentile beyond which a request is slow, and the requests from which on it is used."""


def slow_percentile(n: int) -> str | None:
    """Return the name of the percentile beyond which a request is slow; None with too few.

    About six requests or more are beyond it: of fewer no share can be surely more than a half.

    Parameters
    ----------
    n : int
        Number of requests that were answered.

    Notes
    -----
    When not to use it: a statement about a percentile needs an interval, and this is none.
    """
    return next((name for name, least in SLOW_FROM.items() if n >= least), None)
