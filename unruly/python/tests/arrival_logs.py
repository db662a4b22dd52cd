"""Write the arrival log of a replicated store copy by copy: every number is known beforehand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synthetic import NS, STARTED_NS, Segments, _table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MS = 1_000_000


@dataclass(frozen=True)
class Copy:
    """One attempt to one replica; ``ms`` after the operation was due, None when it never came."""

    server: int
    ms: float | None
    status: str = "ok"
    answered: bool = False
    attempt: int = 0
    hop_1_ms: float | None = None
    hop_2_ms: float | None = None


@dataclass(frozen=True)
class Operation:
    """One operation of client 0 and its copies."""

    op: str
    copies: tuple[Copy, ...]
    level: str | None = "quorum"
    cell: str = "base"
    repeat: int = 0
    phase: str = "measure"


def three(*ms: float | None, answered: int = 1, hops: tuple[float, float] | None = None):
    """Copies to replicas 0, 1, 2 that are correct (lost where None); one of them answered."""
    hop_1, hop_2 = hops or (None, None)
    return tuple(
        Copy(
            server, at, "lost" if at is None else "ok", answered=server == answered, hop_1_ms=hop_1,
            hop_2_ms=None if at is None else hop_2,
        )
        for server, at in enumerate(ms)
    )  # fmt: skip


def write_log(root: Path, operations: Sequence[Operation], every_ms: float = 100) -> Path:
    """Write a run; an operation is due each `every_ms`, in the order given."""
    root.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list] = {}
    for number, operation in enumerate(operations):
        due = STARTED_NS + round(number * every_ms * MS)
        for copy in operation.copies:
            for name, value in _row(operation, number, due, copy).items():
                rows.setdefault(name, []).append(value)
    writer = Segments(root, "flurry-1", "flurry")
    writer.add("requests", _table("requests", rows, len(rows["op"])))
    writer.close()
    processes = [
        {"name": f"replica-{n}", "kind": "service", "id": n, "cell": cell, "repeat": 0,
         "host": "host-0"}
        for cell in sorted({it.cell for it in operations})
        for n in range(5)
    ]  # fmt: skip
    manifest = {
        "schema": 1, "run": "flurry-1", "name": "flurry", "tag": "flurry", "status": "complete",
        "started_ns": STARTED_NS, "ended_ns": STARTED_NS + NS, "missing": [], "hosts": [],
        "processes": processes,
    }  # fmt: skip
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return root


def _row(operation: Operation, number: int, due: int, copy: Copy) -> dict:
    received = None if copy.ms is None else due + round(copy.ms * MS)
    there = due + 20_000

    def before(stamp: int | None, ms: float | None) -> int | None:
        return None if ms is None or stamp is None else stamp - round(ms * MS)

    return {
        "cell": operation.cell,
        "repeat": operation.repeat,
        "phase": operation.phase,
        "host": "host-0",
        "process": "client-0",
        "op": operation.op,
        "client": 0,
        "server": copy.server,
        "request": number,
        "attempt": copy.attempt,
        "connection": copy.server,
        "intended_ns": due,
        "sent_ns": due + 10_000,
        "received_ns": received,
        "kernel_received_ns": before(received, copy.hop_2_ms),
        "server_kernel_received_ns": before(there, copy.hop_1_ms),
        "server_received_ns": there,
        "sent_bytes": 40,
        "received_bytes": 0 if received is None else 40,
        "level": operation.level,
        "status": copy.status,
        "answered": copy.answered,
    }
