"""Runs with a tap on three tiers: queues, simulated request by request, and one trouble each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from synthetic import NS, Segments, write_run
from synthetic import _table as table_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MS: Final = NS // 1_000
RATE_HZ: Final = 100
SECONDS: Final = 40
TIERS: Final = ("web", "app", "db")
TROUBLES: Final = {
    # the trouble: mean CPU time (ms) of web, app and db for each request, and connections to db
    "none": ((1.0, 1.0, 1.0), 50),
    "app": ((0.5, 8.7, 0.8), 50),
    "db": ((0.5, 1.0, 8.7), 50),
    "pool": ((0.5, 1.0, 14.0), 2),
    "lock": ((0.5, 1.0, 1.0), 50),
    "rare": ((0.5, 0.5, 12.0), 500),
}


def fifo(
    arrived: NDArray[np.float64], takes: NDArray[np.float64], servers: int
) -> NDArray[np.float64]:
    """Return when each request begins to be served, by these servers in the order of arrival."""
    free = np.zeros(servers)
    begins = np.empty(len(arrived))
    for place in np.argsort(arrived, kind="stable"):
        server = int(free.argmin())
        begins[place] = max(arrived[place], free[server])
        free[server] = begins[place] + takes[place]
    return begins


def write_tapped(root: Path, trouble: str, seed: int) -> Path:
    """Write a run of 40 s with 100 requests a second, and what a tap saw of its tiers.

    A request passes web, then app, where it has the CPU for half of its time, one query of db over
    one of the connections, and the other half. Each tier has one core. In the trouble "pool" db has
    two cores, so that both connections are served. In "lock" db answers nobody for 100 ms every
    2 s. In "rare" one request in 110 waits for 60 ms in app, and db serves all at once.
    """
    rng = np.random.default_rng([seed, sum(map(ord, trouble))])
    path = write_run(
        root, kind="drive", agents=1, ops=("view",), rate_hz=RATE_HZ, duration_s=SECONDS,
        seed=seed, stalls_hz=0,
    )  # fmt: skip
    file = next((path / "requests").glob("*.parquet"))
    requests = pq.read_table(file)
    n = requests.num_rows
    means, connections = TROUBLES[trouble]
    web, app, db = (mean * rng.gamma(4.0, 0.25, n) for mean in means)
    first = int(requests["intended_ns"].to_numpy().min())
    sent = np.sort(rng.uniform(0, SECONDS * 1_000, n))
    at_app = fifo(sent, web, 1) + web
    asks = fifo(at_app, app, 1) + app / 2
    asks += 60.0 * (trouble == "rare") * (np.arange(n) % 110 == 0)
    # each connection has one query at a time, and db serves them in the order in which they come
    at_db = fifo(asks, db, connections)
    held = (trouble == "lock") * np.maximum(100.0 - at_db % 2_000.0, 0.0)
    done_db = fifo(at_db + held, db, {"pool": 2, "rare": 500}.get(trouble, 1)) + db
    done_app = done_db + app / 2
    done = done_app + 0.05
    stamps = {
        "intended_ns": first + (sent * MS).astype(np.int64),
        "sent_ns": first + (sent * MS).astype(np.int64),
        "received_ns": first + ((done + 0.1) * MS).astype(np.int64),
    }
    for name in ("kernel_received_ns", "server_kernel_received_ns", "server_received_ns",
                 "server_sent_ns"):  # fmt: skip
        stamps[name] = None
    columns = {name: requests[name] for name in requests.column_names} | stamps
    footer = pq.read_schema(file).metadata
    pq.write_table(table_of("requests", columns, n).replace_schema_metadata(footer), file)
    spans = {"web": (sent, done), "app": (at_app, done_app), "db": (at_db, done_db)}
    _write_turnarounds(path, requests, first, spans, connections)
    _write_cpu(path, requests, first, dict(zip(TIERS, means, strict=True)))
    _name_processes(path)
    return path


def _write_turnarounds(
    path: Path,
    requests: pa.Table,
    first: int,
    spans: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    connections: int,
) -> None:
    askers = {"web": "drive-0", "app": "web", "db": "app-1"}
    parts = []
    for tier, (begin, end) in spans.items():
        n = len(begin)
        started = first + (begin * MS).astype(np.int64)
        ended = first + (end * MS).astype(np.int64)
        width = connections if tier == "db" else 500
        number = np.arange(n) % width + 1_000 * TIERS.index(tier)
        parts.append(
            table_of(
                "turnarounds",
                {
                    "cell": requests["cell"], "repeat": np.zeros(n), "host": "host-0",
                    "process": "tap-0", "tier": tier, "server": f"127.0.0.1:{len(tier)}",
                    "client": "127.0.0.1:4000", "asked_by": askers[tier],
                    "connection": number, "turn": np.arange(n) // width + 5,
                    "started_ns": started, "request_ended_ns": started, "first_reply_ns": ended,
                    "ended_ns": ended, "request_bytes": np.full(n, 100),
                    "reply_bytes": np.full(n, 1_000), "status": "ok",
                },
                n,
            )
        )  # fmt: skip
    segments = Segments(path, json.loads((path / "manifest.json").read_text())["run"], "")
    segments.write("turnarounds", pa.concat_tables(parts))
    segments.close()


def _write_cpu(path: Path, requests: pa.Table, first: int, means: dict[str, float]) -> None:
    """The CPU time of each process, as a probe reads it once a second."""
    starts = first + np.arange(SECONDS - 1, dtype=np.int64) * NS
    n = len(starts)
    names = {"web": "web", "app": "app-1", "db": "db"}
    parts = [
        table_of(
            "resources",
            {
                "cell": requests["cell"].slice(0, n), "repeat": np.zeros(n), "host": "host-0",
                "process": "probe-0", "watched": name, "started_ns": starts,
                "ended_ns": starts + NS, "sampler_lag_ns": np.zeros(n),
                "sampler_cost_ns": np.zeros(n), "system_ns": np.zeros(n),
                "user_ns": np.full(n, int(means[tier] * MS * RATE_HZ)),
            },
            n,
        )
        for tier, name in names.items()
    ]  # fmt: skip
    segments = Segments(path, json.loads((path / "manifest.json").read_text())["run"], "")
    segments.count = 1_000
    segments.write("resources", pa.concat_tables(parts))
    segments.close()


def _name_processes(path: Path) -> None:
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    named = [("drive-0", "drive", None), ("db", "service", "db"), ("app-1", "service", "app"),
             ("web", "service", "web")]  # fmt: skip
    manifest["processes"] = [
        {"name": name, "kind": kind, "cell": "base", "repeat": 0, "host": "host-0", "tier": tier,
         "id": 0 if kind == "drive" else None}
        for name, kind, tier in named
    ]  # fmt: skip
    manifest["hosts"][0]["cores"] = 4
    file.write_text(json.dumps(manifest))
    pins = '[run]\nduration = "40s"\n[drive]\n[pin]\nweb = [0]\n"app-1" = [1]\ndb = [2]\n'
    (path / "plan.toml").write_text(pins)
