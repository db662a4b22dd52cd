"""The page that is generated from the kept results of Flurry's benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import page
from bench.program import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = ROOT / "flurry" / "bench"
HEAD: Final = """# Flurry's benchmarks

`make bench-flurry` measures every row of this page, and `make bench-flurry NAMES="get write"` some
of them. It keeps the raw values in `flurry/bench/runs`, one folder for each day and host, and
`make pages` writes this page from them. `BENCH_ROUGH=1 make bench-flurry` takes a minute or two: it
shows that every benchmark works, and keeps nothing. How a ratio is estimated and when a bar is met
is on [the page of unruly's benchmarks](../../unruly/bench/README.md).

One program, `flurry/crates/node/benches/peers`, sends the operations to Flurry and to its peers. It
uses the same threads, the same clock, 1,024 keys and values of 100 bytes for all of them. The
program is on core 0. All servers of both sides are on core 1, and each replica is a process.
Replicas that share a core are slow at the same time. The rows with planted pauses and losses
therefore show what the first answer gains in the tail.

Flurry is called through `flurry::Client`, with its router inside, as its users call it. memcached
is called over UDP with its text protocol. Redis is called over TCP, with a write and its `WAIT` in
one message. etcd is called over gRPC through its leader, with its data in memory.

An idle core of a virtual machine is halted. Waking it takes tens of microseconds, which is most of
the time of a small operation. In a profile of writes at `quorum`, both cores are halted for more
than half of the time, and the kernel's wake-ups are the largest part of the rest. The way of
waiting therefore decides the latency, and each way has its row:

- Flurry as it is installed: its caller busy-polls for up to 50 us before it sleeps.
- Flurry with a caller that sleeps at once, as the callers of the peers do.
- Flurry with servers that busy-poll too (`flurry server --spin 200us`).

The gateway misses its bars. [A profile](runs/2026-11-30-amd-2core/gateway-profile.txt) of its
thread has no hot spot. Redis does in one table what the gateway does in a router, a portal and
three servers. The rows of `2026-11-30-amd-2core` are of programs built as the release files are,
optimised as a whole; all others are of usual release builds.
"""


def texts() -> dict[Path, str]:
    """Return the text of the page."""
    return {FOLDER / "README.md": page.text(HEAD, FOLDER / "runs")}
