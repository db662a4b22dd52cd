"""Small runs with faults whose requests and events are written by hand: times are in ms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synthetic import STARTED_NS, Segments, Shape, _table, _tally, _write_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

MS = 1_000_000


def at(ms: float) -> int:
    """Return the time that is this many ms after the begin of the run."""
    return STARTED_NS + round(ms * MS)


def good(
    due_ms: float, took_ms: float, sent_ms: float | None = None, **more: Any
) -> dict[str, Any]:
    """Return a request that was answered well."""
    sent_ms = due_ms if sent_ms is None else sent_ms
    return {"intended_ns": at(due_ms), "sent_ns": at(sent_ms), "received_ns": at(due_ms + took_ms),
            "status": "ok", **more}  # fmt: skip


def bad(
    due_ms: float, status: str, received_ms: float | None = None, *, sent: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a request that failed; with ``received_ms`` by a reply."""
    sent = sent or received_ms is not None
    return {"intended_ns": at(due_ms), "sent_ns": at(due_ms) if sent else None,
            "received_ns": None if received_ms is None else at(received_ms),
            "status": status, **more}  # fmt: skip


def fault(process: str, ms: float, kind: str = "fault kill") -> dict[str, Any]:
    """Return the event of a fault."""
    return {"kind": kind, "process": process, "started_ns": at(ms), "ended_ns": at(ms)}


def fail_over(
    client: int, request: int, noticed_ms: float, sent_ms: float, answered_ms: float | None
) -> list[dict[str, Any]]:
    """Return what a client writes when it fails over inside a call."""
    own = {"process": "drive-0", "detail": f"client {client} request {request}"}
    told = [{**own, "kind": "fail-over", "started_ns": at(noticed_ms), "ended_ns": at(sent_ms)}]
    if answered_ms is not None:
        told.append({**own, "kind": "fail-over answered", "started_ns": at(sent_ms),
                     "ended_ns": at(answered_ms)})  # fmt: skip
    return told


def write_faults(
    root: Path, rows: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]
) -> Path:
    """Write a run with these requests and events alone: drive-0 calls agent-0 and agent-1."""
    root.mkdir(parents=True)
    fixed = {
        "cell": "base", "repeat": 0, "phase": "measured", "host": "host-0", "process": "drive-0",
        "op": "null", "client": 0, "server": 0, "attempt": 0, "connection": 0, "sent_bytes": 28,
        "received_bytes": 44,
    }  # fmt: skip
    full = [
        {**fixed, "request": place, "answered": row["status"] == "ok", **row}
        for place, row in enumerate(rows)
    ]
    happened = [{"cell": "base", "repeat": 0, "host": "host-0", **event} for event in events]
    writer = Segments(root, "faults", "faults")
    requests = _columns("requests", full)
    writer.write("requests", requests)
    writer.write("events", _columns("events", happened))
    tally: dict[str, int] = {}
    _tally(tally, requests)
    tally["error"] = sum(row["status"].startswith("error") for row in rows)
    named = [("drive-0", "drive", 0), ("probe", "probe", None)]
    named += [(f"agent-{number}", "echo", number) for number in range(2)]
    processes = [
        {"name": name, "kind": kind, "id": number, "cell": "base", "repeat": 0, "host": "host-0",
         "pid": place, "runtime": "native", "exit": {"code": 0}, "counts": None}
        for place, (name, kind, number) in enumerate(named)
    ]  # fmt: skip
    end_ns = max(row["intended_ns"] for row in rows) + 1_000 * MS
    tallies = {("base", 0): tally | {"requests": len(full)}}
    shape = Shape(ops=("null",), manifest={"processes": processes})
    _write_manifest(root, shape, "faults", tallies, end_ns)
    return root


def _columns(name: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = {key: [row.get(key) for row in rows] for key in keys}
    return _table(name, columns, len(rows))
