"""How often a planted layer is named, how often a clean run blames one, and what spans cost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from bench.program import ROOT, UNANALYSED, UNRULY
from bench.result import Result
from bench.usage import cpu_s, memory_bytes
from unruly.quantity import count, size

sys.path.append(str(ROOT / "unruly" / "python" / "tests"))

import unruly
from spans_world import TROUBLES, write_traced
from unruly.topics.layers.model import layers_of

RUNS: Final = 20
"""Of each trouble, each a run of its own; as many are clean."""
SEED: Final = 2_000
FIRST, APART, BLAMED = 0.95, 0.90, 0.02
RATE_HZ: Final = 10_000
SECONDS: Final = 30
CPU_MOST: Final = 0.1
MEMORY_MOST: Final = 64 << 20
PYTHON: Final = ROOT / "target" / "opentelemetry" / "bin" / "python"
FEEDER: Final = Path(__file__).with_name("spans_feeder.py")
HOST: Final = "127.0.0.1"
PORT: Final = 21_118


def planted() -> list[Result]:
    """Plant every trouble in runs of its own, and look at clean ones; ten minutes of one core."""
    rows: list[dict[str, Any]] = []
    for trouble, wanted in TROUBLES.items():
        named = [_named(trouble, seed) for seed in range(SEED, SEED + RUNS)]
        first = sum(it == wanted for it in named)
        role = sum(it is not None and it[2] == wanted[2] for it in named)
        rows.append({"trouble": trouble, "first": first, "role": role})
        print(rows[-1], file=sys.stderr)
    blamed = sum(_named(None, seed) is not None for seed in range(SEED, SEED + RUNS))
    of = RUNS * len(rows)
    first, role = (sum(row[name] for row in rows) for name in ("first", "role"))
    what = f"in {RUNS} runs of each of {len(rows)} troubles"
    return [
        Result(
            name="layers-found",
            what=f"the finding names the planted layer, {what}",
            bar=f">= {100 * FIRST:g} %",
            measured=f"{100 * first / of:.1f} %",
            met=first / of >= FIRST,
            raw={"rows": rows},
        ),
        Result(
            name="layers-apart",
            what=f"the finding knows own work, a call, a queue and the outside apart, {what}",
            bar=f">= {100 * APART:g} %",
            measured=f"{100 * role / of:.1f} %",
            met=role / of >= APART,
            raw={"rows": rows},
        ),
        Result(
            name="layers-clean",
            what=f"share of {RUNS} clean runs that blame a layer",
            bar=f"<= {100 * BLAMED:g} %",
            measured=f"{100 * blamed / RUNS:.1f} %",
            met=blamed / RUNS <= BLAMED,
            raw={"blamed": blamed, "runs": RUNS},
        ),
    ]


def _named(trouble: str | None, seed: int) -> tuple[str, str, str] | None:
    """The layer that the finding of a run names."""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as folder:
        path = write_traced(Path(folder, "run"), trouble, seed)
        analysis = unruly.analyse(unruly.open_run(path), causes=False, pictures=False)
    if not any(it.code == "slow-layer" for it in analysis.findings):
        return None
    found = layers_of(analysis)
    assert found is not None
    top = found.rows[0].layers[0]
    return top.service, top.name, top.role


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def cost() -> list[Result]:
    """CPU and memory of the receiver while services export spans with attributes."""
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as folder:
        out = Path(folder, "out")
        with ThreadingHTTPServer((HOST, 0), _Quiet) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://{HOST}:{server.server_port}/"
            flags: list[str | Path] = [
                "-r",
                "5",
                "-c",
                "1",
                "-d",
                f"{SECONDS + 20}s",
                "-w",
                "0s",
                "-q",
                "-o",
                out,
            ]
            words: list[str | Path] = [UNRULY, "drive", url, "--spans", f"{HOST}:{PORT}", *flags]
            load = subprocess.Popen(words, env=os.environ | UNANALYSED)
            try:
                pid, key = _receiver(out)
                feeder = [str(PYTHON), str(FEEDER), str(PORT), key, str(RATE_HZ), str(SECONDS)]
                fed = subprocess.Popen(["taskset", "-c", "0", *feeder], stdout=subprocess.PIPE)
                assert fed.stdout is not None
                fed.stdout.readline()
                before = cpu_s(pid)
                began = time.monotonic()
                sent = int(fed.communicate(timeout=SECONDS * 4)[0])
                took = time.monotonic() - began
                used, memory = cpu_s(pid) - before, memory_bytes(pid)
            finally:
                load.terminate()
                load.wait()
            server.shutdown()
    rate = sent / took
    share = used / sent * RATE_HZ
    return [
        Result(
            name="spans-cpu",
            what=f"CPU of the receiver at {count(RATE_HZ)} spans a second, each with 8 attributes",
            bar=f"<= {100 * CPU_MOST:g} % of a core",
            measured=f"{100 * share:.3g} % ({used / sent * 1e6:.3g} us for each span)",
            met=share <= CPU_MOST and rate >= 0.95 * RATE_HZ,
            raw={"cpu_s": used, "spans": sent, "rate_hz": rate},
        ),
        Result(
            name="spans-memory",
            what=f"memory of the receiver after {count(sent)} spans",
            bar=f"<= {size(MEMORY_MOST)}",
            measured=size(memory),
            met=memory <= MEMORY_MOST,
            raw={"bytes": memory},
        ),
    ]


def _receiver(out: Path) -> tuple[int, str]:
    """Wait for the receiver's process, and for the key of the traces."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        time.sleep(0.1)
        texts = [it.read_text(errors="replace") for it in out.glob("events/drive-0*.spool")]
        keys = [text.split('"trace key","detail":"0 ')[1][:16] for text in texts if "key" in text]
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_text()
            except OSError:
                continue
            if f"{out}" in words and "spans-0" in words and keys:
                return int(folder.name), keys[0]
    raise RuntimeError("unruly drive: its receiver of spans did not start")
