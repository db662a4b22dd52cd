"""The rows and processes that 200 kills at random moments cost, at 10,000 requests a second.

The schedule is constant, so the benchmark knows every request that was scheduled before the kill:
one each 100 us for the generator, and one round of the group's requests each period for an agent. A
scheduled request without a row is lost.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.program import UNRULY, Trace
from bench.result import Result

RATE = 10_000
STEP_NS = 1_000_000_000 // RATE
RUN_S = 3.0
FIRST_S, LAST_S = 0.3, 2.7
"""A kill comes between these, since the start of the load."""
OLD_NS = 1_000_000_000
"""Nothing that is older than this when the kill comes may be lost."""
TIMEOUT_S = 180
SEED = 21

DRIVE = f"""name = "durability"
[run]
duration = "{RUN_S:g}s"
warmup = "0s"
[drive]
clients = 16
arrivals = "constant"
rate = "{RATE}/s"
timeout = "5s"
[probe]
period = "100ms"
"""
AGENTS = 5
MESH = f"""name = "durability"
[run]
duration = "{RUN_S:g}s"
warmup = "0s"
[mesh]
agents = {AGENTS}
groups = [{AGENTS}]
period = "2500us"
regroup = "1d"
timeout = "5s"
workloads = ["null"]
[probe]
period = "100ms"
"""
KINDS = {
    "generator": (DRIVE, ("drive-0",)),
    "runner": (DRIVE, ("runner",)),
    "probe": (DRIVE, ("probe-0",)),
    "server": (DRIVE, ("echo-0",)),
    "agent": (MESH, ("agent-2",)),
    "generator and runner": (DRIVE, ("drive-0", "runner")),
    "all": (DRIVE, ("runner", "drive-0", "echo-0", "probe-0")),
}
"""What is killed, by the plan that is run."""
KILLS = {
    "generator": 40,
    "runner": 30,
    "probe": 25,
    "server": 25,
    "agent": 30,
    "generator and runner": 20,
    "all": 30,
}
LOSS = re.compile(r"of ([\d,]+) requests that were due until then, ([\d,]+) have no row")
BEGUN = re.compile(
    r"of ([\d,]+) requests that it had begun, ([\d,]+) have no row;"
    r" the last was scheduled ([\d.]+) s after the start"
)


@dataclass(frozen=True)
class Kill:
    """One kill and what it cost."""

    kind: str
    after_s: float
    rows: int
    lost: int
    oldest_lost_ns: int
    """Age of the oldest lost request when the kill came; 0 when none is lost."""
    stated: str
    """``exactly``, ``nothing to state``, or ``no:`` and the wrong statement."""
    counts_equal: bool
    left: int
    """Processes that are still there in the end."""
    status: str


def run() -> list[Result]:
    """Kill, look, and sum up."""
    random = np.random.default_rng(SEED)
    order = random.permutation([kind for kind, count in KILLS.items() for _ in range(count)])
    moments = [float(random.uniform(FIRST_S, LAST_S)) for _ in order]
    # two at a time: nothing here depends on how fast a run is
    with ThreadPoolExecutor(2) as pool:
        return results(list(pool.map(one, map(str, order), moments)))


def one(kind: str, after_s: float) -> Kill:
    """One run with one kill."""
    text, names = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="unruly-durability-") as parent:
        folder = Path(parent) / "run"
        plan = Path(parent) / "plan.toml"
        plan.write_text(text)
        runner = subprocess.Popen(
            [UNRULY, "run", plan, "-q", "-o", folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            victims = _victims(runner, folder, names)
            time.sleep(after_s)
            killed_ns = time.time_ns()
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            runner.wait(TIMEOUT_S)
            left = _left(folder)
            subprocess.run([UNRULY, "recover", folder], capture_output=True, check=False)
            return _look(kind, after_s, folder, killed_ns, names, left)
        finally:
            runner.kill()
            runner.wait()


def _victims(runner: subprocess.Popen[bytes], folder: Path, names: tuple[str, ...]) -> list[int]:
    """Their numbers, once the load has begun."""
    until = time.monotonic() + TIMEOUT_S
    while not any(path.stat().st_size > 4096 for path in folder.glob("requests/*.spool")):
        if time.monotonic() > until or runner.poll() is not None:
            raise RuntimeError(f"the run did not begin: {folder}")
        time.sleep(0.005)
    found = {"runner": runner.pid, **_processes(folder)}
    return [found[name] for name in names]


def _processes(folder: Path) -> dict[str, int]:
    """Processes of a run by name: the job file of each is named after it."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if str(folder) in words and "--job" in words:
            name = Path(words[words.index("--job") + 1]).name
            found[re.sub(r"-c\d+r\d+.*$", "", name).removesuffix(".json")] = int(entry.name)
    return found


def _left(folder: Path) -> int:
    until = time.monotonic() + 10
    while (left := len(_processes(folder))) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _look(
    kind: str, after_s: float, folder: Path, killed_ns: int, names: tuple[str, ...], left: int
) -> Kill:
    trace = Trace(folder)
    process = next((name for name in names if name.startswith(("drive", "agent"))), "drive-0")
    due = [
        int(row[0])
        for row in trace.rows(
            f"select intended_ns from requests where process = '{process}' order by 1"
        )
    ]
    lost, oldest_ns = _lost(np.array(due), killed_ns, AGENTS if kind == "agent" else 1)
    manifest = trace.manifest
    ((rows,),) = trace.rows("select count(*) from requests")
    said = " ".join([*manifest.get("broken", []), *manifest["missing"]])
    start_ns = int(manifest["started_ns"])
    return Kill(
        kind,
        after_s,
        int(rows),
        lost,
        oldest_ns,
        _stated(said, np.array(due), start_ns, AGENTS if kind == "agent" else 1),
        manifest["counts"]["copies"]["recorded"] == rows,
        left,
        str(manifest["status"]),
    )


def _lost(due_ns: np.ndarray, killed_ns: int, group: int) -> tuple[int, int]:
    """Requests that were due before the kill and have no row, and how old the oldest was."""
    if due_ns.size == 0:
        return 0, 0
    missing = _missing(due_ns, killed_ns, group)
    if not missing.any():
        return 0, 0
    oldest_ns = due_ns[0] + int(np.flatnonzero(missing)[0]) * _step_ns(group)
    return int(missing.sum()), int(killed_ns - oldest_ns)


def _step_ns(group: int) -> int:
    return STEP_NS if group == 1 else 2_500_000


def _missing(due_ns: np.ndarray, until_ns: int, group: int) -> np.ndarray:
    """How many requests of each instant of the schedule until then have no row."""
    step_ns = _step_ns(group)
    place = np.rint((due_ns - due_ns[0]) / step_ns).astype(int)
    instants = int((until_ns - due_ns[0]) // step_ns) + 1
    wanted = np.full(min(instants, int(RUN_S * 1e9) // step_ns), group)
    there = np.bincount(place[place < wanted.size], minlength=wanted.size)
    return np.maximum(wanted - there, 0)


def _stated(said: str, due_ns: np.ndarray, start_ns: int, group: int) -> str:
    """Hold what the run says of its loss against the schedule and the rows.

    A process that ends properly has a row for each request that it had begun, and says nothing.
    """
    rows = due_ns.size
    if found := LOSS.search(said):
        due, told = (int(it.replace(",", "")) for it in found.groups())
        return "exactly" if due - told == rows else f"no: {found[0]} beside {rows} rows"
    if found := BEGUN.search(said):
        begun, told = (int(it.replace(",", "")) for it in found.groups()[:2])
        # Half a step later, since the run states the time in tenths of a millisecond.
        last_ns = start_ns + int(float(found[3]) * 1e9) + _step_ns(group) // 2
        scheduled = rows + int(_missing(due_ns, last_ns, group).sum())
        right = begun == scheduled and begun - told == rows
        return "exactly" if right else f"no: {found[0]} beside {rows} rows of {scheduled}"
    whole = rows == 0 or not _missing(due_ns, int(due_ns[-1]), group).any()
    return "nothing to state" if whole else "no: nothing"


def results(kills: list[Kill]) -> list[Result]:
    """Return four rows with bars; the raw values have a row for each kind of kill."""
    table = {kind: _row([it for it in kills if it.kind == kind]) for kind in KILLS}
    raw = {"kinds": table, "kills": [dataclasses.asdict(it) for it in kills]}
    worst_ns = max((it.oldest_lost_ns for it in kills), default=0)
    most = max((it.lost for it in kills), default=0)
    wrong = [it for it in kills if it.stated.startswith("no:")]
    equal = sum(it.counts_equal for it in kills)
    left = sum(it.left for it in kills)
    what = f"{len(kills)} kills at a random moment, {RATE:,} requests a second"
    return [
        Result(
            "durability-age",
            f"{what}: age of the oldest lost request when the kill came",
            "<= 1 s",
            f"{worst_ns / 1e9:.3f} s; {most:,} rows lost at worst",
            worst_ns <= OLD_NS,
            raw,
        ),
        Result(
            "durability-stated",
            f"{what}: losses that the run states exactly",
            "all",
            f"{len(kills) - len(wrong)} of {len(kills)}",
            not wrong,
            {"wrong": [dataclasses.asdict(it) for it in wrong]},
        ),
        Result(
            "durability-counts",
            f"{what}: runs whose counts are those of their rows",
            "all",
            f"{equal} of {len(kills)}",
            equal == len(kills),
            {},
        ),
        Result("durability-left", f"{what}: processes left behind", "0", str(left), left == 0, {}),
    ]


def _row(kills: list[Kill]) -> dict[str, float | int]:
    lost = np.array([it.lost for it in kills] or [0])
    return {
        "kills": len(kills),
        "lost_median": float(np.median(lost)),
        "lost_worst": int(lost.max()),
        "oldest_lost_s": max((it.oldest_lost_ns for it in kills), default=0) / 1e9,
        "stated_exactly": sum(not it.stated.startswith("no:") for it in kills),
        "counts_equal": sum(it.counts_equal for it in kills),
        "left": sum(it.left for it in kills),
    }
