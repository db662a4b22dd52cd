"""The stall oracle: a stop of known length has a p99 that can be computed, and must be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.program import Trace, drive, measured
from bench.result import Result

RATE = 10_000
RUN_S = 10.0
STALL_S = 1.0
BAR = 0.02


def oracle_s(stall_s: float, load_share: float) -> float:
    """Analytic p99 of response time.

    A request due t after the stop began waits D - t and then for those before it, t times the load
    share: D - t (1 - rho). The slowest percent of the run are those with t up to 0.01 W.
    """
    return stall_s - 0.01 * RUN_S * (1 - load_share)


def drained_share(due_s: np.ndarray, done_s: np.ndarray, resumed_s: float, stall_s: float) -> float:
    """Load share of capacity, from how long the backlog took to drain: D rho / (1 - rho)."""
    late = due_s[done_s > resumed_s]
    waited = done_s[done_s > resumed_s] - late
    # The backlog is gone at the first request after the stop that waits for nobody.
    clear = late[(late > resumed_s) & (waited < 0.001)]
    drain_s = float(clear.min() - resumed_s) if clear.size else 0.0
    return drain_s / (stall_s + drain_s)


@dataclass(frozen=True)
class Stopped:
    """What a run with one stop measured, and what its p99 must be."""

    p99_s: float
    analytic_s: float
    stall_s: float
    load_share: float
    rows: int
    all_ok: bool

    @property
    def error(self) -> float:
        """How far the p99 is from the analytic value, as a share of it."""
        return self.p99_s / self.analytic_s - 1


def of_trace(trace: Trace) -> Stopped:
    """Compare the p99 of a run's measured requests with that of its stop."""
    rows = _measured(trace)
    [(stopped, resumed)] = trace.rows(
        "select started_ns / 1e9, ended_ns / 1e9 from events where kind = 'fault stop'"
    )
    return _of_rows(rows, float(stopped), float(resumed))


def of_stop(trace: Trace, stopped_s: float, resumed_s: float) -> Stopped:
    """Do the same for a stop between two instants of the wall clock."""
    return _of_rows(_measured(trace), stopped_s, resumed_s)


def _measured(trace: Trace) -> list[tuple[Any, ...]]:
    return trace.rows(
        "select intended_ns, received_ns, status = 'ok' from requests"
        " where phase = 'measure' order by 1"
    )


def _of_rows(rows: list[tuple[Any, ...]], stopped: float, resumed: float) -> Stopped:
    due = np.array([row[0] for row in rows], float) / 1e9
    done = np.array([row[1] or np.nan for row in rows], float) / 1e9
    response = np.sort(done - due)
    p99 = float(response[int(np.ceil(0.99 * response.size)) - 1])
    length = resumed - stopped
    share = drained_share(due, done, resumed, length)
    all_ok = all(row[2] for row in rows)
    return Stopped(p99, oracle_s(length, share), length, share, len(rows), all_ok)


def run() -> list[Result]:
    """Stop the server, then the generator, for 1, 16 and 256 connections."""
    return [stall(victim, clients) for victim in ("echo-0", "drive-0") for clients in (1, 16, 256)]


def stall(victim: str, clients: int) -> Result:
    """One run with one stop."""
    fault = f'[[fault]]\nkind = "stop"\nprocess = "{victim}"\nat = "4s"\nduration = "{STALL_S}s"'
    plan = drive(
        duration=f"{RUN_S:.0f}s",
        clients=clients,
        arrivals=f'arrivals = "constant"\nrate = "{RATE}/s"',
        more=fault,
    )
    with measured(plan) as trace:
        found = of_trace(trace)
        said = trace.verdict()
    marked = not said["trustworthy"]
    generator = victim == "drive-0"
    whole = found.all_ok and found.rows == RATE * RUN_S
    right = abs(found.error) <= BAR and whole and (marked or not generator)
    side = "generator" if generator else "server"
    count = f"{clients} connection{'s' if clients > 1 else ''}"
    return Result(
        name=f"stall-{side}-{clients:03}",
        what=f"stall oracle, {side} stopped 1 s in 10 s at 10,000/s, {count}",
        bar="p99 within 2 % of the analytic value" + (", run marked" if generator else ""),
        measured=f"{100 * found.error:+.2f} % (p99 {found.p99_s:.4f} s,"
        f" analytic {found.analytic_s:.4f} s)"
        + (f", {'marked' if marked else 'not marked'}" if generator else ""),
        met=right,
        raw={
            **vars(found),
            "trustworthy": said["trustworthy"], "doubts": said["doubts"],
        },
    )  # fmt: skip
