"""``python -m flurry.bench [NAME ...]`` measures the benchmarks of Flurry.

With ``BENCH_ROUGH=1`` in the environment each benchmark is as short as possible, and nothing is
kept.
"""

from __future__ import annotations

import sys

from flurry.bench import auto, faults, gateway, latency, pace, pages, throughput

from bench import command

PRODUCT = command.Product(
    module="flurry.bench",
    folder=pages.FOLDER,
    pages=pages.texts,
    benches={
        "get": latency.gets,
        "write": latency.writes,
        "etcd": latency.consensus,
        "stalls": faults.stalls,
        "loss": faults.loss,
        "throughput": throughput.run,
        "auto": auto.run,
        "kill": faults.kill,
        "log": throughput.log,
        "gateway-latency": gateway.latency,
        "gateway-rate": gateway.throughput,
        "gateway-cost": gateway.costs,
    },
)

if __name__ == "__main__":
    sys.exit(command.main(PRODUCT, kept=not pace.ROUGH))
