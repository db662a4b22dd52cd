"""``python -m flurry.bench [NAME ...]`` measures the benchmarks of Flurry.

With ``BENCH_ROUGH=1`` in the environment each benchmark is as short as possible, and nothing is
kept. With ``FLURRY_EARLIER=PROGRAM`` the gateway is also compared with that of an earlier build,
which ``FLURRY_EARLIER_IS`` describes.
"""

from __future__ import annotations

import os
import sys

from flurry.bench import auto, faults, gateway, latency, memory, pace, pages, throughput

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
        "memory": memory.run,
        **({"gateway-before": gateway.before} if os.environ.get(gateway.EARLIER) else {}),
    },
)

if __name__ == "__main__":
    sys.exit(command.main(PRODUCT, kept=not pace.ROUGH))
