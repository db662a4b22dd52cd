"""Latencies under renewal stalls, and files that hold them."""

from __future__ import annotations

import numpy as np

import unruly

RATE_HZ = 1_000
CALM_S, STALL_S = 2.0, 0.04


def stalled(rng, seconds):
    """Latencies (ns) at a steady rate under renewal stalls, in their stationary state."""
    many = int(seconds / CALM_S * 2 + 50)
    calm, stall = rng.exponential(CALM_S, many), rng.exponential(STALL_S, many)
    if rng.uniform() < STALL_S / (CALM_S + STALL_S):
        calm[0] = 0.0
    ends = np.cumsum(calm + stall)
    starts = ends - stall
    times = np.arange(seconds * RATE_HZ) / RATE_HZ
    place = np.searchsorted(starts, times, side="right") - 1
    waits = np.maximum(0, np.where(place >= 0, ends[np.maximum(place, 0)], 0) - times)
    return 1e6 * rng.lognormal(0, 0.3, times.size) + 1e9 * waits


def one_stall():
    """Latencies (ns) of a minute with a single stall of a second."""
    latencies = np.full(60_000, 1e6) + np.random.default_rng(1).uniform(0, 1e5, 60_000)
    latencies[10_000:11_000] = np.linspace(1e9, 1e6, 1_000)
    return latencies


def closed_loop():
    """Latencies (ns) and starts (ms) of a client that waits for each of 100 slow replies."""
    took = np.where(np.arange(20_000) % 200 == 77, 5e8, 1e6)
    return took, np.concatenate([[0], np.cumsum(took)[:-1]]) / 1e6


def write(path, latencies, times_ms=None):
    """Write a table of times and latencies, and return its path."""
    if times_ms is None:
        times_ms = np.arange(len(latencies)) * 1_000 / RATE_HZ
    rows = (f"{at:.3f},{it / 1e6:.4f}" for at, it in zip(times_ms, latencies, strict=True))
    path.write_text("\n".join(["time_ms,latency_ms", *rows]) + "\n")
    return path


def audit(path, **more):
    """Audit one table, or several."""
    return unruly.audit(path, value="latency_ms", time="time_ms", time_unit="ms", **more)
