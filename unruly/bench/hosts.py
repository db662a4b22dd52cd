"""What the way to another host costs: a load generator behind it beside one of this host."""

from __future__ import annotations

from typing import Final

from bench.pairs import interleaved, ratio
from bench.program import UNRULY, measured
from bench.result import Result
from bench.tap import PORT, redis

PAIRS: Final = 16
BAR: Final = 1.02
PLAN: Final = """
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "3s"
warmup = "500ms"
[drive]
url = "redis://127.0.0.1:{port}"
clients = 1
arrivals = "closed"
[probe]
enabled = false
[pin]
"drive-0" = [0]
{host}
"""
HOST: Final = """
[[host]]
name = "there"
reach = ["env", "A=1"]
program = "{program}"
"""


def median_us(host: str) -> float:
    """Median service time of a generator that shares core 0 with its server."""
    with measured(PLAN.format(port=PORT, host=host)) as trace:
        [(median,)] = trace.rows(
            "select median(received_ns - sent_ns) / 1e3 from requests"
            " where phase = 'measure' and status = 'ok'"
        )
    return float(median)


def run() -> list[Result]:
    """Measure both ways in turn."""
    there = HOST.format(program=UNRULY)
    with redis():
        remote, local = interleaved(PAIRS, lambda: median_us(there), lambda: median_us(""))
    share = ratio(remote, local)
    return [
        Result(
            name="hosts",
            what="p50 of a load generator behind the connection to a host (`env`, which leads to"
            " this host), to one that the runner started itself; Redis and the generator on core 0",
            bar=f"<= {BAR}",
            measured=f"{share} of {share.n} pairs",
            met=share.high <= BAR,
            raw={"there_us": remote, "here_us": local},
            why="`unruly host` waits for lines while the generator works, and takes no part in a"
            " request",
        )
    ]
