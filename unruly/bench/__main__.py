"""``python -m bench [NAME ...]`` measures the benchmarks of unruly."""

from __future__ import annotations

import sys

from bench import (
    analysis,
    cassandra,
    causes,
    causes_real,
    command,
    compare,
    cost,
    durability,
    echo,
    false_promises,
    groups,
    grpc_speed,
    hardening,
    http_speed,
    layers,
    open_loop,
    pace,
    pages,
    ready,
    recording,
    scale,
    sql_speed,
    stall,
    stall_targets,
    stores,
    streams,
    tap,
    tried,
)

PRODUCT = command.Product(
    module="bench",
    folder=pages.FOLDER,
    pages=pages.texts,
    benches={
        "echo": echo.run,
        "http": http_speed.run,
        "sql": sql_speed.run,
        "grpc": grpc_speed.run,
        "recording": recording.run,
        "open-loop": open_loop.run,
        "stall": stall.run,
        "stall-targets": stall_targets.run,
        "bursts": pace.calm,
        "bursts-busy": pace.busy,
        "cost": cost.run,
        "stores-throughput": stores.throughput,
        "stores-cassandra": cassandra.run,
        "stores-stall": stores.stall,
        "streams-iperf": streams.peers,
        "streams-compete": streams.shares,
        "streams-jgroups": groups.run,
        "tap": tap.run,
        "layers": layers.planted,
        "spans": layers.cost,
        "analysis": analysis.run,
        "ready": ready.run,
        "scale": scale.run,
        "durability": durability.run,
        "fuzz-files": hardening.fuzz,
        "soak": hardening.soak,
        "false-promises": false_promises.run,
        "false-tried": tried.run,
        "causes": causes.run,
        "causes-real": causes_real.run,
        "compare": compare.run,
    },
)

if __name__ == "__main__":
    sys.exit(command.main(PRODUCT))
