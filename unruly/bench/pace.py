"""Bursts of a closed loop: the index of dispersion that was asked for, and the one that came."""

from __future__ import annotations

from typing import Final

import numpy as np

from bench.program import drive, measured
from bench.result import Result
from unruly.quantity import percent
from unruly.stats import index_of_dispersion

CLIENTS: Final = 1_000
THINK_S: Final = 0.05
BIN_S: Final = 0.01
RATE_MOST: Final = 0.03
CASES: Final = ((1, 20), (100, 40), (400, 90), (1_000, 240))
"""The index of dispersion, and the seconds of the run: the mean rate is known as well in each."""


def run() -> list[Result]:
    """Measure a closed loop of 20,000 requests a second without bursts, and with three."""
    return [bursts(dispersion, seconds) for dispersion, seconds in CASES]


def bursts(dispersion: int, seconds: int) -> Result:
    """One run."""
    asked = f"dispersion = {dispersion}.0" if dispersion > 1 else ""
    plan = drive(
        duration=f"{seconds}s",
        warmup="1s",
        clients=CLIENTS,
        arrivals=f'arrivals = "closed"\nthink = "{THINK_S * 1e3:.0f}ms"\n{asked}',
    )
    with measured(plan) as trace:
        begin = "(select min(intended_ns) from requests where phase = 'measure')"
        slots = dict(
            trace.rows(
                f"select (intended_ns - {begin}) // {BIN_S * 1e9:.0f}, count(*) from requests"
                " where phase = 'measure' group by 1"
            )
        )
        [(replies_s, rows)] = trace.rows(
            "select avg(received_ns - intended_ns) / 1e9, count(*) from requests"
            " where phase = 'measure' and status = 'ok'"
        )
    counts = np.array([slots.get(slot, 0) for slot in range(round(seconds / BIN_S))])
    found = index_of_dispersion(counts, BIN_S * 1e9)
    rate = counts.sum() / seconds
    off = rate / (CLIENTS / THINK_S) - 1
    index = found.index
    inside = index.low is not None and index.low <= dispersion <= (index.high or 0.0)
    met = bool(inside and abs(off) <= RATE_MOST)
    return Result(
        name=f"bursts-{dispersion:04}",
        what=f"1,000 clients that think 50 ms, index of dispersion {dispersion}, {seconds} s",
        bar="the index is in its interval, and the mean rate within 3 % of 20,000/s",
        measured=f"I = {index.estimate:.4g} [{index.low:.4g}, {index.high:.4g}],"
        f" mean rate {100 * off:+.1f} %, mean reply {1e3 * replies_s:.2f} ms",
        met=met,
        why="" if met else _why(replies_s),
        raw={
            "asked": dispersion,
            "index": index.estimate,
            "low": index.low,
            "high": index.high,
            "windows": found.windows,
            "doubt": found.doubt,
            "rate_hz": float(rate),
            "mean_reply_s": float(replies_s),
            "rows": int(rows),
        },
    )


def _why(replies_s: float) -> str:
    share = percent(replies_s / THINK_S)
    return (
        f"Replies take {share} of the think time on average, and more in bursts. A client that"
        " waits for its reply cannot ask."
    )
