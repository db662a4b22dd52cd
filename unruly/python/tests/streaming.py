"""Write a run of streams with planted bandwidth, cost and faults.

Rows are about a tenth of a second long, of another length at either end, as those of processes are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from synthetic import NS, STARTED_NS, Segments, _table

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = 2_000
STEPS_NS = {"writer": 103_000_000, "reader": 97_000_000, "compete": 113_000_000}
HOSTS = {"writer-0": "host-0", "reader-0": "host-1", "reader-1": "host-2"}
SAMPLES_HZ = 20


@dataclass(frozen=True)
class Cell:
    """One cell: a protocol under a load, with its planted numbers and faults."""

    protocol: str = "tcp"
    load: str = "none"
    mbps: float = 400.0
    jitter: float = 0.03
    """Of each second's bandwidth, standard deviation over mean."""
    writer_cores: float = 0.3
    reader_cores: float = 0.2
    lost_share: float = 0.0
    grows_hz: float = 0.0
    """Bytes a second by which the writer's memory grows."""
    silent: tuple[float, float] | None = None
    """From when of the measured time on nothing flows, and for how long (s)."""
    used: float = 0.6
    """The share of its core that the competing load uses; it was asked for 0.6."""
    failed: str = ""
    """Why it could not begin: then nothing flows."""
    events: tuple[tuple[str, str, str, float], ...] = ()
    """(process, kind, detail, at), seconds of the measured time."""
    unaccounted: int = 0
    """So many messages are written, and never heard of."""
    dead: int | None = None
    """The host whose load died: it never said what it was to use."""
    breaks_in: int | None = None
    """The repeat that breaks in its warm-up: no end has a row after that."""
    inside: bool = False
    """In a virtual machine, as its load is: both are at work 3 s before the stream, and its
    processor time is in that of the process."""
    second: float | None = None
    """The bandwidth of a second reader as a share of the first reader's; None without one."""
    second_since_s: float = 0.0
    """From when on the second reader has rows, seconds after the begin."""
    factors: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the runner calls it."""
        more = "".join(f" {key.split('.')[-1]}={value}" for key, value in self.factors.items())
        return f"kind={self.load} protocol={self.protocol}{more}"


@dataclass(frozen=True)
class Shape:
    """The run around its cells."""

    cells: tuple[Cell, ...]
    repeats: int = 1
    duration_s: int = 10
    warmup_s: float = 0.5
    wind_down_s: float = 0.5
    link: str = "1Gbit/s"
    seed: int = 1
    spread: float = 0.01
    """How repeats of a cell differ, standard deviation over mean."""
    status: str = "complete"
    pin: bool = True
    plan: bool = True
    quotas: str = ""
    """Lines of the plan's table of quotas."""


def write_streams(root: Path, cells: tuple[Cell, ...], **changes: Any) -> Path:
    """Write a run to ``root`` and return it."""
    shape = replace(Shape(cells), **changes)
    rng = np.random.default_rng(shape.seed)
    root.mkdir(parents=True, exist_ok=True)
    writer = Segments(root, "streams-1", "")
    tables: dict[str, list[dict[str, Any]]] = {"intervals": [], "requests": [], "events": []}
    begin = STARTED_NS
    for repeat in range(shape.repeats):
        for cell in cells:
            _leg(shape, rng, cell, repeat, begin, tables)
            begin += int((shape.warmup_s + shape.duration_s + shape.wind_down_s + 2) * NS)
    for name, rows in tables.items():
        keys = list(dict.fromkeys(key for row in rows for key in row))
        columns = {key: pa.array([row.get(key) for row in rows]) for key in keys}
        if rows:
            writer.write(name, _table(name, columns, len(rows)))
    if shape.plan:
        (root / "plan.toml").write_text(_plan(shape), encoding="utf-8")
    _manifest(root, shape, begin, len(tables["requests"]))
    return root


def _leg(
    shape: Shape, rng: np.random.Generator, cell: Cell, repeat: int, begin: int, tables: Any
) -> None:
    total_s = shape.warmup_s + shape.duration_s + shape.wind_down_s
    of = {"cell": cell.name, "repeat": repeat}
    for process, kind, detail, at_s in cell.events:
        at = begin + int((shape.warmup_s + at_s) * NS)
        tables["events"].append({**of, "host": "host-0", "process": process, "kind": kind,
                                 "detail": detail, "started_ns": at,
                                 # of a pause its length; others are instants
                                 "ended_ns": at + NS // 10 * ("gc" in kind)})  # fmt: skip
    if cell.failed:
        tables["events"].append({**of, "host": "host-0", "process": "writer-0",
                                 "kind": "stream failed", "detail": cell.failed,
                                 "started_ns": begin, "ended_ns": None})  # fmt: skip
        tables["intervals"] += _rows(of, "reader", "reader-0", begin, total_s, lambda s: 0 * s,
                                     0.01, lambda s: 8e6 + 0 * s)  # fmt: skip
        return
    if cell.inside:
        _virtual_machines(of, cell, begin, total_s, tables)
    scale = float(np.exp(rng.normal(0, shape.spread)))
    flow = _flow(shape, cell, rng, scale)
    more_cores = cell.used if cell.inside else 0.0
    tables["intervals"] += _rows(
        of, "writer", "writer-0", begin, total_s, flow, cell.writer_cores + more_cores,
        lambda s: 1e7 + cell.grows_hz * s, more=cell.unaccounted,
    )  # fmt: skip
    tables["intervals"] += _rows(
        of, "reader", "reader-0", begin, total_s, flow, cell.reader_cores + more_cores,
        lambda s: 8e6 + 0 * s, lost=cell.lost_share,
    )  # fmt: skip
    if cell.second is not None:
        rows = _rows(
            of, "reader", "reader-1", begin, total_s, lambda s: cell.second * flow(s),
            cell.reader_cores / 2, lambda s: 8e6 + 0 * s,
        )  # fmt: skip
        known = begin + int(cell.second_since_s * NS)
        tables["intervals"] += [row for row in rows if row["started_ns"] >= known]
    if cell.breaks_in == repeat:
        broke = begin + int(shape.warmup_s * NS / 2)
        rows = tables["intervals"]
        own = [it for it in rows if all(it[key] == value for key, value in of.items())]
        tables["intervals"] = [it for it in rows if it not in own or it["ended_ns"] <= broke]
        tables["events"].append({**of, "host": "host-1", "process": "reader-0",
                                 "kind": "stream broken", "detail": "reset",
                                 "started_ns": broke, "ended_ns": None})  # fmt: skip
        return
    _competing(of, cell, begin, total_s, tables)
    _samples(shape, rng, of, begin, total_s, tables)


def _flow(shape: Shape, cell: Cell, rng: np.random.Generator, scale: float) -> Any:
    """Return a function from seconds after the begin to the bytes that flowed until then."""
    total_s = shape.warmup_s + shape.duration_s + shape.wind_down_s
    fine = 20
    edges = np.arange(int(total_s * fine) + 2) / fine
    second = np.floor(edges - shape.warmup_s).astype(int)
    each = np.clip(1 + cell.jitter * rng.standard_normal(int(total_s) + 4), 0.05, None)
    rate = cell.mbps * 1e6 / 8 * scale * each[second + 2]
    if cell.silent is not None:
        since, lasts = cell.silent
        measured = edges - shape.warmup_s
        rate = np.where((measured >= since) & (measured < since + lasts), 0.0, rate)
    upto = np.concatenate([[0.0], np.cumsum(rate[:-1]) / fine])
    return lambda s: np.interp(s, edges, upto)


def _rows(
    of: dict[str, Any], side: str, process: str, begin: int, total_s: float, flow: Any,
    cores: float, memory: Any, *, lost: float = 0.0, more: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    stamps = np.append(np.arange(0, int(total_s * NS), STEPS_NS[side]), int(total_s * NS))
    sent = np.floor(flow(stamps / NS) / MESSAGE).astype(int)
    gone = np.floor(lost * sent).astype(int)
    rows = []
    for place in range(len(stamps) - 1):
        messages = int(np.diff((sent - gone)[place : place + 2])[0])
        messages += more if place == 3 else 0
        row = {
            **of, "host": HOSTS.get(process, "host-0"), "process": process, "side": side,
            "started_ns": begin + int(stamps[place]), "ended_ns": begin + int(stamps[place + 1]),
            "bytes": messages * MESSAGE, "messages": messages,
            "cpu_ns": int(cores * (stamps[place + 1] - stamps[place])),
            "rss_bytes": int(memory(stamps[place] / NS)),
        }  # fmt: skip
        if side == "writer":
            row["in_flight"] = 5 * MESSAGE
        if side == "reader":
            row |= {"lost": int(gone[place + 1] - gone[place]), "duplicated": 0, "reordered": 0}
        rows.append(row)
    return rows


def _virtual_machines(
    of: dict[str, Any], cell: Cell, begin: int, total_s: float, tables: dict[str, Any]
) -> None:
    for side in ("writer", "reader"):
        lead = _rows(of, side, f"{side}-0", begin - 3 * NS, 3.0, lambda s: 0 * s, cell.used,
                     lambda s: 8e6 + 0 * s)  # fmt: skip
        load = _rows(of, "compete", f"{side}-0", begin - 3 * NS, 3 + total_s, lambda s: 0 * s,
                     cell.used, lambda s: 0 * s)  # fmt: skip
        tables["intervals"] += lead
        tables["intervals"] += [
            {**row, "host": HOSTS[f"{side}-0"], "rss_bytes": None} for row in load
        ]


def _competing(
    of: dict[str, Any], cell: Cell, begin: int, total_s: float, tables: dict[str, Any]
) -> None:
    """Two workers on each host, at work half a second before the stream."""
    if cell.load == "none" or cell.inside:
        return
    lead = NS // 2
    for host in (0, 1):
        for worker in (0, 1):
            name = f"compete-{host}-{worker}"
            if host == cell.dead:
                continue
            tables["events"].append({**of, "host": f"host-{host}", "process": name,
                                     "kind": "competing", "detail": "0.300 of 1 cores",
                                     "started_ns": begin - lead,
                                     "ended_ns": begin + int(total_s * NS)})  # fmt: skip
            rows = _rows(of, "compete", name, begin - lead, total_s + 0.5, lambda s: 0 * s,
                         cell.used / 2, lambda s: 2e6 + 0 * s)  # fmt: skip
            tables["intervals"] += [{**row, "host": f"host-{host}"} for row in rows]


def _samples(
    shape: Shape, rng: np.random.Generator, of: dict[str, Any], begin: int, total_s: float,
    tables: dict[str, Any],
) -> None:  # fmt: skip
    at = np.arange(0, total_s, 1 / SAMPLES_HZ)
    took = rng.lognormal(np.log(2e6), 0.3, at.size)
    for number, (since, latency) in enumerate(zip(at, took, strict=True)):
        phase = "warmup" if since < shape.warmup_s else "measure"
        late = since >= shape.warmup_s + shape.duration_s
        sent = begin + int(since * NS)
        tables["requests"].append({
            **of, "phase": "wind_down" if late else phase, "host": "host-1",
            "process": "reader-0", "op": "message", "client": 0, "server": 0, "request": number,
            "attempt": 0, "connection": 0, "intended_ns": sent, "sent_ns": sent,
            # messages of the wind-down are slow, so a test fails if the analysis counts them
            "received_ns": sent + int(latency * (1_000 if late else 1)), "sent_bytes": MESSAGE,
            "received_bytes": 0, "status": "ok", "answered": True,
        })  # fmt: skip


def _plan(shape: Shape) -> str:
    pins = '[pin]\n"writer-0" = [0]\n"compete-0" = [0]\n"reader-0" = [1]\n"compete-1" = [1]\n'
    link = f'link = "{shape.link}"\n' if shape.link else ""
    return (
        f'[run]\nduration = "{shape.duration_s}s"\nwarmup = "{int(shape.warmup_s * 1e3)}ms"\n'
        f'[stream]\nprotocol = "tcp"\n{link}[compete]\nkind = "none"\noccupancy = 0.6\n'
        + (pins if shape.pin else "")
        + (f"[quota]\n{shape.quotas}" if shape.quotas else "")
    )


def _manifest(root: Path, shape: Shape, end_ns: int, rows: int) -> None:
    copies = dict.fromkeys(
        ("timeout", "refused", "shed", "error", "unfinished", "wrong", "behind", "stale", "lost",
         "dropped"), 0,
    )  # fmt: skip
    counts = {
        "copies": {"scheduled": rows, "ok": rows, **copies, "recorded": rows},
        "requests": {"scheduled": rows, "answered": rows, "unanswered": 0},
    }
    processes = [
        {"name": name, "kind": name.split("-")[0], "id": number, "cell": cell.name,
         "repeat": repeat, "host": host, "pid": 1, "runtime": "native", "counts": None}
        for cell in shape.cells
        for repeat in range(shape.repeats)
        for number, (name, host) in enumerate((("writer-0", "host-0"), ("reader-0", "host-1")))
    ]  # fmt: skip
    manifest = {
        "schema": 1, "run": "streams-1", "name": "streams", "tag": "",
        "tool": {"version": "0.1.0", "commit": "test"}, "status": shape.status,
        "started_ns": STARTED_NS, "ended_ns": end_ns, "missing": [],
        "hosts": [{"name": it, "cores": 2, "noise_floor_ns": 50_000} for it in HOSTS.values()],
        "cells": [
            {"name": cell.name,
             "factors": {"compete.kind": cell.load, "stream.protocol": cell.protocol,
                         **cell.factors}}
            for cell in shape.cells
        ],
        "processes": processes, "counts": counts,
    }  # fmt: skip
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


LACKS = "sctp: libusrsctp.so.2 is not here; hint: apt-get install libusrsctp2"
CPU_LOAD = (
    Cell("tcp", mbps=950, writer_cores=0.1),
    Cell("tcp", "cpu", mbps=900, writer_cores=0.1),
    Cell("enet", mbps=600, writer_cores=0.99),
    Cell("enet", "cpu", mbps=180, writer_cores=0.39),
    Cell("kcp", mbps=200),
    Cell("kcp", "cpu", mbps=150, used=0.55),
    Cell("udp", mbps=800),
    Cell("udp", "cpu", mbps=560, lost_share=0.1),
    Cell("quic", mbps=700),
    Cell("quic", "cpu", mbps=350, grows_hz=8e6),
    Cell("sctp", failed=LACKS),
    Cell("sctp", "cpu", failed=LACKS),
)
COLLECTOR = (
    Cell("jvm-tcp", mbps=820),
    Cell("jvm-tcp", "gc", mbps=640, inside=True, events=(("writer-0", "gc pause", "young", 3.0),)),
    Cell("jgroups-udp", mbps=600),
    Cell("jgroups-udp", "gc", mbps=36, jitter=0.5, inside=True),
)
BROKEN = (
    Cell("tcp", mbps=700, events=(("reader-0", "peer lost", "the writer went", 7.0),),
         silent=(6.9, 3.6), unaccounted=40),
    Cell("enet", mbps=400, silent=(1.9, 4.3)),
    Cell("kcp", mbps=500, unaccounted=7),
    Cell("quic", mbps=600,
         events=(("writer-0", "realtime refused", "this host does not let it", -0.4),)),
)  # fmt: skip
CALM = (Cell("tcp", mbps=500), Cell("quic", mbps=450))
