"""The page of the benchmarks, written from what is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench import false_table
from bench.program import ROOT
from bench.result import RUNS, Result, load

if TYPE_CHECKING:
    from pathlib import Path

MET = {True: "yes", False: "**no**", None: "no bar"}
PAGE = ROOT / "unruly" / "bench" / "README.md"

HEAD = """# Benchmarks

`make bench` measures each bar below side by side with its peer, in interleaved pairs, both sides
pinned alike, keeps every raw value under `unruly/bench/runs/<date>-<host>/` and writes this page
from it.
`make bench NAMES="echo stall"` measures some of them, `make bench NAMES=--page` only writes the
page.
`make bench-flurry` measures those of Flurry; `BENCH_ROUGH=1 make bench-flurry` in a minute or two,
to see that everything works, and keeps nothing.

A ratio is the Hodges-Lehmann estimate over the pairs with its 95 % signed-rank interval, which a
disturbed round hardly moves; a bar is met only when the whole interval is on its side. A bar that
is missed says so. No test of the project asserts a time: these machines are shared, and what is
compared is compared on one machine in one minute.

Loopback latency has two values, about 5.5 us when both processes are on one core and about 25 us
across two: a comparison that does not pin both sides alike says nothing.

Flurry and its peers get their operations from one program (`flurry/crates/node/benches/peers`),
which is alike for all of them: threads, clock, 1,024 keys, values of 100 bytes. It is on core 0,
all servers of both sides are on core 1, each replica a process. Replicas that share a core are slow
together, so what first answers gain in the tail is shown with pauses and losses that are put in on
purpose. Flurry is called as its users call it, through `flurry::Client` with its router inside;
memcached over UDP with its text protocol; Redis over TCP, a write and its `WAIT` in one message;
etcd over gRPC through its leader, with its data in memory.

An idle core of a virtual machine is halted, and waking it takes tens of microseconds, which is most
of what a small operation takes: in a profile of writes at quorum more than half of both cores' time
is halted, and of the rest the kernel's wake-ups are the largest part. So how one waits is
what is measured, and each way has its row: Flurry as it is installed, whose caller looks for its
answer for up to 50 us before it sleeps; with a caller that sleeps at once, as those of the peers
do; and with servers that look too (`flurry server --spin 200us`).
"""


def write() -> None:
    """Write the page from the newest results of each host."""
    places = sorted((path for path in RUNS.iterdir() if path.is_dir()), reverse=True)
    for path in sorted(RUNS.glob("*/false-promises.json"))[-1:]:
        ladder = path.with_name("false-ladder.json")
        kept = (json.loads(it.read_text())["raw"]["cells"] for it in (path, ladder))
        false_table.write(*kept)
    PAGE.write_text("\n".join([HEAD, *(section(place, load(place)) for place in places)]))


def section(place: Path, results: list[Result]) -> str:
    """One day on one host."""
    facts = json.loads((place / "host.json").read_text())
    host = facts["host"]
    kind = "a virtual machine" if host["virtualised"] else "bare metal"
    lines = [
        f"## {place.name}",
        "",
        f"{host['cpu_model']}, {host['cores']} cores, {kind}, Linux {host['kernel']},"
        f" noise floor {host['noise_floor_ns'] / 1e3:.0f} us. A plus behind a commit: with changes"
        " not yet committed.",
        "",
        "| what | bar | measured | met | commit |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {it.what} | {it.bar or '-'} | {it.measured} | {MET[it.met]} | `{it.commit}` |"
        for it in results
    ]
    lines += [line for it in results if it.name == "durability-age" for line in _kills(it)]
    missed = [it for it in results if it.missed]
    if missed:
        lines += ["", "Missed:", ""]
        lines += [f"- {it.what}: {it.measured}, wanted {it.bar}. {_sentence(it)}" for it in missed]
    return "\n".join(lines) + "\n"


def _kills(result: Result) -> list[str]:
    """What each kind of kill cost."""
    lines = [
        "",
        f"{result.what.partition(':')[0]}, by what was killed:",
        "",
        "| killed | times | lost, median | lost, worst | oldest lost | stated exactly"
        " | counts equal | processes left |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {kind} | {it['kills']} | {it['lost_median']:g} | {it['lost_worst']}"
        f" | {it['oldest_lost_s']:.3f} s | {it['stated_exactly']}"
        f" | {it['counts_equal']} | {it['left']} |"
        for kind, it in result.raw["kinds"].items()
    ]
    return lines


def _sentence(result: Result) -> str:
    why = result.why or "The raw values are kept beside this page; the cause is not yet measured"
    return why[0].upper() + why[1:] + "."
