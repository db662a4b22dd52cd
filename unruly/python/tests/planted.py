"""Runs with one known fault: twelve kinds of faults, each planted a few times.

A client asks three servers. Every run has its natural bursts, and pauses, disk waits and busy
samples that do not cause the slow requests. The labels of the faults are written as well, as in a
real run. They contain the answer, so the analysis must not read them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unruly
from synthetic import NS, STARTED_NS, Segments, Shape, _table, _tally, _write_manifest
from unruly.base.context import Context
from unruly.topics.causes.statistics import causes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MS = 1_000_000
DURATION_S = 60
RATE_HZ = 200
SERVERS = 3
TIMEOUT_NS = NS
PERIOD_NS = 100 * MS
"""Of a CPU quota."""
RESEND_NS = 200 * MS

WANTED = {
    "server stopped": ("process stopped", "server"),
    "generator stopped": ("process stopped", "client"),
    "server killed": ("process died", "server"),
    "quota on the server": ("cpu quota", "server"),
    "hog beside the server": ("cpu wait", "server"),
    "hog beside the client": ("cpu wait", "client"),
    "delay on the way": ("network and queue", "server"),
    "loss on the way": ("lost packets", "host"),
    "disk wait": ("disk wait", "server"),
    "gc pause": ("gc pause", "server"),
    "safepoint": ("safepoint", "server"),
    "slow handler": ("handler", "server"),
    "long task of a server": ("busy process", "server"),
    "memory taken from a server": ("page faults", "server"),
}
"""Each fault, the cause that it must be called, and whose it is."""
SIDES = {"server": "store-", "client": "drive-", "host": "host-"}
LABELS = {"server stopped": "fault stop", "generator stopped": "fault stop",
          "server killed": "fault kill"}  # fmt: skip


@dataclass
class World:
    """The delays of each request and the recorded events and samples, while a run is made."""

    rng: np.random.Generator
    due: np.ndarray
    server: np.ndarray
    target: int
    """The server that the fault is about."""
    lag: np.ndarray
    way: np.ndarray
    server_kernel: np.ndarray
    handler: np.ndarray
    client_kernel: np.ndarray
    dead: np.ndarray
    wrong: np.ndarray
    """Answered at once, with an error and without a stamp of the server."""
    events: list[tuple[str, str, int, int | None]] = field(default_factory=list)
    """process, kind, start, end."""
    shares: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    """(watched or host, metric): a value for each second."""

    @property
    def name(self) -> str:
        return f"store-{self.target}"

    def arrived(self) -> np.ndarray:
        return self.due + self.lag + self.way // 2

    def here(self) -> np.ndarray:
        return self.server == self.target

    def wait_out(self, part: np.ndarray, at: np.ndarray, who: Any, start: int, end: int) -> None:
        """Whoever comes at that time waits until its end."""
        stalled = who & (at >= start) & (at < end)
        part[stalled] += (end - at)[stalled]

    def show(self, whose: str, metric: str, start: int, end: int, share: float) -> None:
        """Samples of the seconds from start to end show so much more of a metric."""
        seconds = np.arange(DURATION_S) * NS
        shared = np.clip(np.minimum(seconds + NS, end) - np.maximum(seconds, start), 0, NS)
        self.shares[whose, metric] += shared * share


def write_planted(root: Path, faults: Sequence[str | None], seed: int) -> Path:
    """Write a run with a cell for each fault (None is clean), one after the other.

    Which server a fault is about, and how often it comes, depends on the seed. Odd seeds have no
    stamps of the server where the fault does without them.
    """
    root.mkdir(parents=True, exist_ok=True)
    run = f"planted-{seed}"
    writer = Segments(root, run, "planted")
    tallies: dict[tuple[str, int], dict[str, int]] = {}
    tables: dict[str, list[pa.Table]] = {"requests": [], "events": [], "resources": []}
    for place, fault in enumerate(faults):
        cell, begin = fault or f"clean {place}", STARTED_NS + place * (DURATION_S + 2) * NS
        world = _world(fault, [seed, place, sum(map(ord, fault or ""))])
        stamped = seed % 2 == 0 or fault not in ("gc pause", "safepoint")
        requests = _requests(world, cell, begin, stamped)
        tables["requests"].append(requests)
        tables["events"].append(_events(world, cell, begin))
        tables["resources"] += _samples(world, cell, begin)
        tally: dict[str, int] = {}
        _tally(tally, requests)
        tallies[cell, 0] = tally | {"requests": requests.num_rows}
    for name, parts in tables.items():
        writer.write(name, pa.concat_tables(parts))
    cells = tuple(cell for cell, _ in tallies)
    manifest = {"processes": [it for cell in cells for it in _processes(cell)]}
    shape = Shape(agents=0, name="planted", cells=cells, manifest=manifest)
    _write_manifest(root, shape, run, tallies, STARTED_NS + len(cells) * (DURATION_S + 2) * NS)
    return root


def _world(fault: str | None, seed: list[int]) -> World:
    rng = np.random.default_rng(seed)
    n = DURATION_S * RATE_HZ
    due = np.sort(rng.uniform(0, DURATION_S * NS, n)).astype(np.int64)

    def usual(middle_ns: float) -> np.ndarray:
        return rng.lognormal(np.log(middle_ns), 0.4, n).astype(np.int64)

    world = World(
        rng, due, rng.integers(0, SERVERS, n), int(rng.integers(SERVERS)),
        usual(8e3), usual(120e3), usual(9e3), usual(40e3), usual(10e3), np.zeros(n, bool),
        np.zeros(n, bool),
    )  # fmt: skip
    _nature(world)
    if fault:
        for start in _apart(rng, 1 if fault in (ONCE, LOST) else int(rng.integers(4, 7))):
            FAULTS[fault](world, int(start))
            label = LABELS.get(fault, f"fault {fault}")
            world.events.append((world.name, label, int(start), int(start) + NS))
    return world


def _apart(rng: np.random.Generator, number: int) -> np.ndarray:
    """Times that leave four seconds between them."""
    free = (DURATION_S - 4 * number - 2) * NS
    return np.sort(rng.uniform(0, free, number)) + np.arange(number) * 4 * NS + NS


def _nature(world: World) -> None:
    """Bursts of every part, and events and samples that have nothing to do with them."""
    rng = world.rng
    parts = (world.lag, world.way, world.server_kernel, world.handler, world.client_kernel)
    for at in rng.uniform(0, DURATION_S * NS, rng.poisson(0.7 * DURATION_S)):
        end = at + rng.exponential(3 * MS)
        who = world.here() if rng.uniform() < 0.3 else np.ones(len(world.due), bool)
        part = parts[rng.integers(len(parts))]
        world.wait_out(part, world.arrived(), who, int(at), int(end))
    # metrics that came later have random numbers of their own: the older worlds stay as they were
    later = np.random.default_rng(world.due[:4])
    names = [f"store-{number}" for number in range(SERVERS)]
    for kind, rate, longest in (
        ("gc", 0.4, 25),
        ("safepoint", 0.4, 8),
        ("disk wait", 0.3, 30),
    ):
        for at in rng.uniform(0, DURATION_S * NS, rng.poisson(rate * DURATION_S)):
            lasted = int(rng.uniform(1, longest) * MS)
            world.events.append((str(rng.choice(names)), kind, int(at), int(at) + lasted))
    for whose in (*names, "drive-0"):
        wait = rng.gamma(2, 3 * MS, DURATION_S)
        wait[rng.uniform(size=DURATION_S) < 0.04] += 200 * MS
        world.shares[whose, "run_queue_wait_ns"] = wait
        world.shares[whose, "cgroup_throttled_ns"] = np.zeros(DURATION_S)
        world.shares[whose, "major_faults"] = rng.poisson(0.1, DURATION_S).astype(float)
        world.shares[whose, "user_ns"] = later.gamma(4, 20 * MS, DURATION_S)
        world.shares[whose, "system_ns"] = later.gamma(4, 10 * MS, DURATION_S)
    busy = rng.gamma(2, 10 * MS, DURATION_S)
    busy[rng.uniform(size=DURATION_S) < 0.04] += 400 * MS
    world.shares["host-0", "psi_cpu_some_ns"] = busy
    world.shares["host-0", "major_faults"] = later.poisson(0.5, DURATION_S).astype(float)
    world.shares["host-0", "psi_io_some_ns"] = rng.gamma(2, 5 * MS, DURATION_S)
    world.shares["host-0", "tcp_retransmits"] = rng.poisson(0.05, DURATION_S).astype(float)
    world.shares["host-0", "tcp_needless_retransmits"] = np.zeros(DURATION_S)
    world.shares["host-0", "cpu_steal_share"] = rng.beta(1, 200, DURATION_S)


def _server_stopped(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(0.2, 1.0) * NS)
    world.wait_out(world.server_kernel, world.arrived(), world.here(), start, end)
    world.events.append((world.name, "process stopped", start, end))


def _generator_stopped(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(0.2, 1.0) * NS)
    everybody = np.ones(len(world.due), bool)
    back = world.arrived() + world.server_kernel + world.handler + world.way // 2
    world.wait_out(world.client_kernel, back, world.due < start, start, end)
    world.wait_out(world.lag, world.due, everybody, start, end)
    world.events.append(("drive-0", "process stopped", start, end))


def _server_killed(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(0.5, 2.0) * NS)
    world.dead |= world.here() & (world.arrived() >= start) & (world.arrived() < end)
    world.events += [(world.name, "process died", start, None),
                     (world.name, "process started", end, None)]  # fmt: skip


def _server_lost(world: World, start: int) -> None:
    world.dead |= world.here() & (world.arrived() >= start)
    world.events.append((world.name, "process died", start, None))


def _quota(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(1.0, 2.0) * NS)
    for period in range(start, end, PERIOD_NS):
        last = period + PERIOD_NS
        world.wait_out(
            world.server_kernel, world.arrived(), world.here(), last - 60 * MS, min(last, end)
        )
    world.show(world.name, "cgroup_throttled_ns", start, end, 0.6)
    world.show(world.name, "run_queue_wait_ns", start, end, 0.2)


def _hog_beside_the_server(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(1.0, 2.0) * NS)
    hit = world.here() & (world.due >= start) & (world.due < end)
    hit &= world.rng.uniform(size=len(hit)) < 0.4
    world.server_kernel[hit] += world.rng.exponential(12 * MS, hit.sum()).astype(np.int64)
    world.show(world.name, "run_queue_wait_ns", start, end, 0.4)
    world.show("host-0", "psi_cpu_some_ns", start, end, 0.5)


def _hog_beside_the_client(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(1.0, 2.0) * NS)
    for part in (world.lag, world.client_kernel):
        hit = (world.due >= start) & (world.due < end) & (world.rng.uniform(size=len(part)) < 0.2)
        part[hit] += world.rng.exponential(12 * MS, hit.sum()).astype(np.int64)
    world.show("drive-0", "run_queue_wait_ns", start, end, 0.4)
    world.show("host-0", "psi_cpu_some_ns", start, end, 0.5)


def _errors_of_a_busy_server(world: World, start: int) -> None:
    """It turns away what it has no CPU for, much faster than it answers else."""
    end = start + int(world.rng.uniform(1.0, 2.0) * NS)
    hit = world.here() & (world.due >= start) & (world.due < end)
    world.wrong |= hit & (world.rng.uniform(size=len(hit)) < 0.3)
    world.way[world.wrong] = 30_000
    world.handler[world.wrong] = 10_000
    world.show(world.name, "run_queue_wait_ns", start, end, 0.4)


def _delay(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(1.0, 2.5) * NS)
    world.way[world.here() & (world.due >= start) & (world.due < end)] += 20 * MS


def _loss(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(1.0, 2.0) * NS)
    lost = (
        (world.due >= start) & (world.due < end) & (world.rng.uniform(size=len(world.due)) < 0.05)
    )
    world.way[lost] += RESEND_NS
    seconds = np.bincount(world.due[lost] // NS, minlength=DURATION_S)
    world.shares["host-0", "tcp_retransmits"] += seconds


def _pause(kind: str, part: str):
    def plant(world: World, start: int) -> None:
        end = start + int(world.rng.uniform(60, 300) * MS)
        world.wait_out(getattr(world, part), world.arrived(), world.here(), start, end)
        world.events.append((world.name, kind, start, end))

    return plant


def _slow_handler(world: World, start: int) -> None:
    end = start + int(world.rng.uniform(1.0, 2.5) * NS)
    hit = world.here() & (world.due >= start) & (world.due < end)
    if world.target == 0:  # and now and then: a few requests all over the run
        hit = world.here() & (world.rng.uniform(size=len(hit)) < 0.002)
    world.handler[hit] += 40 * MS


def _long_task(world: World, start: int) -> None:
    """It holds up the only thread of the server, of which the store sends no stamps.

    The server acknowledges late meanwhile, so its peers send again. A real Redis with a long
    script did the same: each of these segments had arrived.
    """
    end = start + int(world.rng.uniform(0.7, 1.5) * NS)
    world.wait_out(world.way, world.due, world.here(), start, end)
    world.show(world.name, "user_ns", start, end, 0.95)
    for name in ("tcp_retransmits", "tcp_needless_retransmits"):
        world.shares["host-0", name][start // NS : end // NS + 1] += 16


def _memory_taken(world: World, start: int) -> None:
    """The pages of a server are read from disk again: the host counts the same faults, and more."""
    end = start + int(world.rng.uniform(0.5, 1.5) * NS)
    hit = world.here() & (world.due >= start) & (world.due < end)
    world.handler[hit] += world.rng.exponential(15 * MS, hit.sum()).astype(np.int64)
    faults = np.zeros(DURATION_S)
    faults[start // NS : end // NS + 1] = 60
    world.shares[world.name, "major_faults"] += faults
    world.shares["host-0", "major_faults"] += faults


ONCE = "server stopped once"
LOST = "server killed for good"
ERRORS = "errors of a busy server"
FAULTS = {
    ONCE: _server_stopped,
    LOST: _server_lost,
    ERRORS: _errors_of_a_busy_server,
    "server stopped": _server_stopped,
    "generator stopped": _generator_stopped,
    "server killed": _server_killed,
    "quota on the server": _quota,
    "hog beside the server": _hog_beside_the_server,
    "hog beside the client": _hog_beside_the_client,
    "delay on the way": _delay,
    "loss on the way": _loss,
    "disk wait": _pause("disk wait", "handler"),
    "gc pause": _pause("gc", "handler"),
    "safepoint": _pause("safepoint", "server_kernel"),
    "slow handler": _slow_handler,
    "long task of a server": _long_task,
    "memory taken from a server": _memory_taken,
}


def _events(world: World, cell: str, begin: int) -> pa.Table:
    columns = {
        "process": [it[0] for it in world.events], "kind": [it[1] for it in world.events],
        "started_ns": [begin + it[2] for it in world.events],
        "ended_ns": [None if it[3] is None else begin + it[3] for it in world.events],
    }  # fmt: skip
    size = len(world.events)
    fixed = {"cell": cell, "repeat": np.zeros(size), "host": "host-0"}
    return _table("events", {**fixed, **columns}, size)


def _processes(cell: str) -> list[dict[str, Any]]:
    named = [("drive-0", "drive", 0), ("probe", "probe", None)]
    named += [(f"store-{number}", "echo", number) for number in range(SERVERS)]
    return [
        {"name": name, "kind": kind, "id": number, "cell": cell, "repeat": 0, "host": "host-0",
         "pid": place, "runtime": "native", "exit": {"code": 0}, "counts": None}
        for place, (name, kind, number) in enumerate(named)
    ]  # fmt: skip


def _requests(world: World, cell: str, begin: int, stamped: bool) -> pa.Table:
    sent = world.due + world.lag + begin
    kernel = sent + world.way // 2
    received = kernel + world.server_kernel
    answered = received + world.handler
    back = answered + world.way - world.way // 2
    end = back + world.client_kernel
    gone = world.dead | (end - world.due - begin > TIMEOUT_NS)
    rows = len(world.due)
    unstamped = gone | world.wrong
    failed = np.where(world.wrong, "error", "ok")
    return _table(
        "requests",
        {
            "cell": cell, "repeat": np.zeros(rows), "phase": "measured", "host": "host-0",
            "process": "drive-0", "op": "read", "client": np.zeros(rows),
            "server": world.server, "request": np.arange(rows), "attempt": np.zeros(rows),
            "connection": world.server, "intended_ns": world.due + begin, "sent_ns": sent,
            "received_ns": pa.array(end, mask=gone),
            "kernel_received_ns": pa.array(back, mask=gone),
            "server_kernel_received_ns": pa.array(kernel, mask=unstamped) if stamped else None,
            "server_received_ns": pa.array(received, mask=unstamped) if stamped else None,
            "server_sent_ns": pa.array(answered, mask=unstamped) if stamped else None,
            "sent_bytes": np.full(rows, 64), "received_bytes": np.where(gone, 0, 64),
            "status": pa.array(np.where(world.dead, "refused", np.where(gone, "timeout", failed))),
            "answered": ~gone,
        },
        rows,
    )  # fmt: skip


def _samples(world: World, cell: str, begin: int) -> list[pa.Table]:
    started = begin + np.arange(DURATION_S) * NS
    fixed = {
        "cell": cell, "repeat": np.zeros(DURATION_S), "host": "host-0", "process": "probe",
        "started_ns": started, "ended_ns": started + NS,
        "sampler_lag_ns": np.full(DURATION_S, 100_000),
        "sampler_cost_ns": np.full(DURATION_S, 200_000),
    }  # fmt: skip
    tables = []
    for whose in dict.fromkeys(name for name, _ in world.shares):
        metrics = {
            metric: values if metric.endswith("_share") else values.astype(np.int64)
            for (name, metric), values in world.shares.items()
            if name == whose
        }
        watched = {} if whose == "host-0" else {"watched": whose}
        tables.append(_table("resources", {**fixed, **watched, **metrics}, DURATION_S))
    return tables


def rewrite(path: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of a table."""
    (file,) = (path / name).glob("*.parquet")
    table = pq.read_table(file)
    changed = change(table)
    footer = {**table.schema.metadata, b"unruly.rows": str(changed.num_rows).encode()}
    pq.write_table(changed.replace_schema_metadata(footer), file)


def add_rows(path: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to a table: each is a copy of its first row with the given values replaced."""

    def added(table: pa.Table) -> pa.Table:
        first = table.slice(0, 1).to_pylist()[0]
        more = pa.Table.from_pylist([first | row for row in rows], table.schema)
        return pa.concat_tables([table, more])

    rewrite(path, name, added)


def as_repeats(path: Path) -> Path:
    """Make the cells of a run the repeats of its first one."""
    document = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    cells = [it["name"] for it in document["cells"]]

    def one_cell(table: pa.Table) -> pa.Table:
        repeat = [cells.index(cell) for cell in table["cell"].to_pylist()]
        for column, values in (("repeat", repeat), ("cell", [cells[0]] * table.num_rows)):
            place = table.schema.get_field_index(column)
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array(values, field.type))
        return table

    for name in ("requests", "events", "resources"):
        rewrite(path, name, one_cell)
    for process in document["processes"]:
        process |= {"repeat": cells.index(process["cell"]), "cell": cells[0]}
    document["cells"] = document["cells"][:1]
    (path / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    return path


def looked_at(path: Path, beyond_ns: int | None = None) -> Any:
    """The causes alone: the rest of an analysis would take most of the time of these tests."""
    run = unruly.open_run(path)
    context = Context.of(run, lambda _: None)
    query = """
        SELECT cell, op, max(took) FILTER (WHERE isfinite(took)) AS max_ok,
               quantile_cont(took, 0.999) AS p99_9
        FROM (SELECT cell, op, CASE WHEN status = 'ok' THEN (received_ns - intended_ns)::DOUBLE
                                    ELSE 'inf'::DOUBLE END AS took FROM '{}')
        GROUP BY ALL ORDER BY ALL
    """
    limits = duckdb.sql(query.format(path / "requests" / "*.parquet")).df()
    rows = [
        SimpleNamespace(
            cell=it.cell, op=it.op, latency="response", kept="rows",
            max_ok=it.max_ok if np.isfinite(it.max_ok) else None,
            p99_9=it.p99_9 if np.isfinite(it.p99_9) else None,
        )
        for it in limits.itertuples()
    ]  # fmt: skip
    return causes(context, rows, 50_000, beyond_ns)
