"""A load generator at full speed: requests a second, and CPU time for each request."""

from __future__ import annotations

import resource
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.pairs import interleaved, ratio
from bench.program import measured
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SERVER_CORE, CLIENT_CORE = 0, 1
PAIRS = 8
RATE_BAR = 1.0
CPU_BAR = 1.2


@dataclass(frozen=True)
class Speed:
    """Requests a second, and the CPU time of the load generator for each (us)."""

    rate: float
    cpu_us: float
    requests: int


def ours(plan: str) -> Speed:
    """What unruly reaches with a row for each request, and the CPU time of its generator."""
    with measured(plan) as trace:
        [(rows, failed, first, last)] = trace.rows(
            "select count(*) filter (status = 'ok'), count(*) filter (status != 'ok'),"
            " min(intended_ns), max(received_ns) from requests where phase = 'measure'"
        )
        if failed:
            raise RuntimeError(f"unruly: {failed} requests failed")
        [(share,)] = trace.rows(
            "select sum(user_ns + system_ns) / sum(ended_ns - started_ns) from resources"
            f" where watched = 'drive-0' and started_ns >= {first} and ended_ns <= {last}"
        )
    rate = rows / ((last - first) / 1e9)
    return Speed(rate, 1e6 * float(share) / rate, int(rows))


def pinned(words: Sequence[str], env: dict[str, str] | None = None) -> tuple[str, float]:
    """What a peer on the client's core says, and its CPU time by the kernel's account (s)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        ["taskset", "-c", str(CLIENT_CORE), *words],
        capture_output=True, text=True, timeout=120, check=True, env=env,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compared(
    name: str, what: str, unequal: str, own: Callable[[], Speed], peer: Callable[[], Speed]
) -> list[Result]:
    """Measure interleaved pairs: the ratio of the top rates, and that of the CPU times."""
    us, them = interleaved(PAIRS, own, peer)
    raw: dict[str, Any] = {"ours": [vars(it) for it in us], "theirs": [vars(it) for it in them]}
    rate = ratio([it.rate for it in us], [it.rate for it in them])
    cpu = ratio([it.cpu_us for it in us], [it.cpu_us for it in them])
    return [
        Result(
            name=f"{name}-rate",
            what=f"top rate of {what} ({unequal})",
            bar=f">= {RATE_BAR}",
            measured=f"{rate} of {rate.n} pairs",
            met=rate.low >= RATE_BAR,
            raw=raw,
        ),
        Result(
            name=f"{name}-cpu",
            what=f"CPU time of {what} ({unequal})",
            bar=f"<= {CPU_BAR}",
            measured=f"{cpu} of {cpu.n} pairs",
            met=cpu.high <= CPU_BAR,
            raw={},
        ),
    ]
