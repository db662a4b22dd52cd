"""Bursts of a closed loop: the index of dispersion that was asked for, and the one that came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.program import drive, measured
from bench.result import Result
from unruly.quantity import count, duration, percent
from unruly.stats import index_of_dispersion

BIN_S: Final = 0.01
RATE_MOST: Final = 0.03


@dataclass(frozen=True)
class Users:
    """The users of a closed loop."""

    clients: int
    think_s: float

    @property
    def rate_hz(self) -> float:
        """Their mean rate if replies took no time."""
        return self.clients / self.think_s


CALM: Final = Users(10_000, 1.0)
"""Replies should take less than a thousandth of the think time."""
BUSY: Final = Users(1_000, 0.05)
"""Replies take a hundredth of the think time, and more in bursts."""
CASES: Final = ((1, 20), (100, 60), (400, 90), (1_000, 300))
"""The index of dispersion, and the seconds of the run."""


def calm() -> list[Result]:
    """Measure users whose replies take hardly any of their time, without bursts and with some."""
    return [bursts(CALM, "", dispersion, seconds) for dispersion, seconds in CASES]


def busy() -> list[Result]:
    """Measure users whose replies take a hundredth of their time."""
    return [bursts(BUSY, "busy-", dispersion, seconds) for dispersion, seconds in CASES]


def bursts(users: Users, kind: str, dispersion: int, seconds: int) -> Result:
    """One run."""
    asked = f"dispersion = {dispersion}.0" if dispersion > 1 else ""
    plan = drive(
        duration=f"{seconds}s",
        warmup="2s",
        clients=users.clients,
        arrivals=f'arrivals = "closed"\nthink = "{users.think_s * 1e3:.0f}ms"\n{asked}',
    )
    with measured(plan) as trace:
        begin = "(select min(intended_ns) from requests where phase = 'measure')"
        slots = dict(
            trace.rows(
                f"select (intended_ns - {begin}) // {BIN_S * 1e9:.0f}, count(*) from requests"
                " where phase = 'measure' group by 1"
            )
        )
        [(replies_s, rows, failed)] = trace.rows(
            "select avg(received_ns - intended_ns) filter (status = 'ok') / 1e9, count(*),"
            " count(*) filter (status <> 'ok') from requests where phase = 'measure'"
        )
    counts = np.array([slots.get(slot, 0) for slot in range(round(seconds / BIN_S))])
    found = index_of_dispersion(counts, BIN_S * 1e9)
    off = counts.sum() / seconds / users.rate_hz - 1
    index = found.index
    inside = index.low is not None and index.low <= dispersion <= (index.high or 0.0)
    met = bool(inside and abs(off) <= RATE_MOST and not failed)
    return Result(
        name=f"bursts-{kind}{dispersion:04}",
        what=f"{count(users.clients)} clients that think {duration(users.think_s * 1e9)},"
        f" index of dispersion {count(dispersion)}, {seconds} s",
        bar="the index is in its interval, the mean rate within 3 %, and no request failed",
        measured=f"I = {index.estimate:.4g} [{index.low:.4g}, {index.high:.4g}], mean rate"
        f" {100 * off:+.1f} %, replies {percent(replies_s / users.think_s)} of the think time,"
        f" {failed} failed",
        met=met,
        raw={
            "asked": dispersion,
            "index": index.estimate,
            "low": index.low,
            "high": index.high,
            "windows": found.windows,
            "doubt": found.doubt,
            "rate_off": float(off),
            "mean_reply_s": float(replies_s),
            "rows": int(rows),
            "failed": int(failed),
        },
    )
