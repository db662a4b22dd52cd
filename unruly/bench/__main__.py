"""``python -m bench [--page] [NAME ...]``.

With ``BENCH_ROUGH=1`` in the environment the bars of Flurry are measured as shortly as shows that
everything works; nothing is kept then.
"""

from __future__ import annotations

import argparse
import signal
import sys

from flurry.bench import auto, faults, gateway, latency, pace, throughput

from bench import (
    analysis,
    cassandra,
    causes,
    compare,
    cost,
    durability,
    echo,
    false_promises,
    groups,
    hardening,
    open_loop,
    page,
    recording,
    result,
    scale,
    stall,
    stores,
    streams,
)

BENCHES = {
    "echo": echo.run,
    "recording": recording.run,
    "open-loop": open_loop.run,
    "stall": stall.run,
    "cost": cost.run,
    "stores-throughput": stores.throughput,
    "stores-cassandra": cassandra.run,
    "stores-stall": stores.stall,
    "streams-iperf": streams.peers,
    "streams-compete": streams.shares,
    "streams-jgroups": groups.run,
    "analysis": analysis.run,
    "scale": scale.run,
    "durability": durability.run,
    "fuzz-files": hardening.fuzz,
    "soak": hardening.soak,
    "false-promises": false_promises.run,
    "causes": causes.run,
    "compare": compare.run,
    "flurry-get": latency.gets,
    "flurry-write": latency.writes,
    "flurry-etcd": latency.consensus,
    "flurry-stalls": faults.stalls,
    "flurry-loss": faults.loss,
    "flurry-throughput": throughput.run,
    "flurry-auto": auto.run,
    "flurry-kill": faults.kill,
    "flurry-log": throughput.log,
    "flurry-gateway-latency": gateway.latency,
    "flurry-gateway-rate": gateway.throughput,
    "flurry-gateway-cost": gateway.costs,
}


def chosen_by(name: str) -> list[str]:
    """The benchmarks of a name: its own, or all of a family, as ``flurry``."""
    return [it for it in BENCHES if it == name or it.startswith(f"{name}-")]


def main() -> int:
    """Measure, keep, and write the page."""
    # A termination unwinds like Ctrl-C, so that what a benchmark has started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--page", action="store_true", help="only write the page")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if not chosen_by(name)]
    if unknown:
        parser.error(f"{unknown[0]} is no benchmark; wanted {', '.join(BENCHES)}")
    names = [it for name in chosen.names for it in chosen_by(name)] or list(BENCHES)
    if not chosen.page:
        measure(names)
    if chosen.page or not pace.ROUGH:
        page.write()
        print(page.PAGE)
    return 0


def measure(names: list[str]) -> None:
    """Measure, say what was found, and keep it, unless it is only a rough look."""
    place = None if pace.ROUGH else result.folder()
    for name in names:
        print(f"{name} ...", flush=True)
        for found in BENCHES[name]():
            if place:
                result.keep(place, found)
            word = {True: "met   ", False: "MISSED", None: "no bar"}[found.met]
            bar = f" (bar {found.bar})" if found.bar else ""
            print(f"  {word} {found.what}: {found.measured}{bar}", flush=True)
            if found.why and found.missed:
                print(f"         {found.why}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
