"""Runs with the spans of two services, a store and a database, and one planted trouble each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unruly
from synthetic import NS, STARTED_NS, Segments, write_run
from synthetic import _table as table_of
from unruly.base.trace_ids import second_halves

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MS: Final = NS // 1_000
KEY: Final = 0x5A3C_9E7F_01B2_D4C6
STEPS: Final = {
    # name: (usual own time in ms, service, name of the span, kind, the step above)
    "front": (1.0, "front", "GET /view", "server", ""),
    "pool": (0.05, "front", "pool.get", "internal", "front"),
    "call": (0.8, "front", "GET /item", "client", "front"),
    "store": (0.6, "store", "GET /item", "server", "call"),
    "disk": (0.7, "store", "read", "internal", "store"),
    "database": (1.5, "store", "SELECT item", "client", "store"),
    "render": (0.9, "front", "render", "internal", "front"),
}
"""In the order in which they run, each within the step above."""
OUTSIDE_MS: Final = 0.7
SLOW_SHARE: Final = 0.015
SKEW_NS: Final = 300 * MS
TROUBLES: Final = {
    # the trouble: (service, name, role) of its layer
    "front": ("front", "GET /view", "own"),
    "pool": ("front", "pool.get", "own"),
    "call": ("front", "GET /item", "between"),
    "store": ("store", "GET /item", "own"),
    "disk": ("store", "read", "own"),
    "database": ("store", "SELECT item", "call"),
    "render": ("front", "render", "own"),
    "outside": ("", "", "outside"),
    "skewed store": ("store", "GET /item", "own"),
    "sampled pool": ("front", "pool.get", "own"),
}


def write_traced(root: Path, trouble: str | None, seed: int, *, level: int = 0) -> Path:
    """Write a run of 60 s with 6,000 requests; a trouble adds 10 to 60 ms to some of them.

    Of a trouble that begins with "half", half of these wait outside of all spans. By a `level`
    above 0 the run keeps the slowest traces and a part of the others, as a receiver does.
    """
    rng = np.random.default_rng([seed, sum(map(ord, trouble or ""))])
    path = write_run(
        root, kind="drive", agents=1, ops=("view",), rate_hz=100, duration_s=60, seed=seed,
        stalls_hz=0,
    )  # fmt: skip
    file = next((path / "requests").glob("*.parquet"))
    requests = pq.read_table(file)
    n = requests.num_rows
    word = (trouble or "").split()[-1] if trouble else ""
    slow = rng.random(n) < SLOW_SHARE
    extra = np.where(slow, rng.uniform(10, 60, n), 0.0)
    halved = (trouble or "").startswith("half")
    outside = extra * (rng.random(n) < 0.5) if halved else np.zeros(n)
    extra = extra - outside
    own = {
        name: step[0] * rng.lognormal(0, 0.4, n) + (extra if name == word else 0.0)
        for name, step in STEPS.items()
    }
    before = OUTSIDE_MS * rng.lognormal(0, 0.4, n) + (extra if word == "outside" else outside)
    intended = requests["intended_ns"].to_numpy()
    began = intended + (before * MS).astype(np.int64)
    spans = _spans(own, began, SKEW_NS if trouble == "skewed store" else 0)
    ended = spans["front"][1]
    took = {"received_ns": ended + 200_000, "kernel_received_ns": None, "sent_ns": intended}
    for name in ("server_kernel_received_ns", "server_received_ns", "server_sent_ns"):
        took[name] = None
    columns = {name: requests[name] for name in requests.column_names} | took
    footer = pq.read_schema(file).metadata
    pq.write_table(table_of("requests", columns, n).replace_schema_metadata(footer), file)
    level = 1 if trouble == "sampled pool" else level
    number = requests["request"].to_numpy()
    chosen = (second_halves(KEY, number) & np.uint64((1 << level) - 1)) == 0
    kept = chosen | (ended - began >= np.quantile(ended - began, 0.99))
    _write_spans(path, requests, spans, kept)
    _write_events(path, int(kept.sum()) * len(STEPS), level)
    return path


def _spans(
    own: dict[str, NDArray[np.float64]], began: NDArray[np.int64], skew_ns: int
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Begin and end of each step: half of its own time, the steps within it, the other half."""
    found: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def lay(name: str, at: NDArray[np.int64]) -> NDArray[np.int64]:
        half = (own[name] * MS / 2).astype(np.int64)
        end = at + half
        for below, step in STEPS.items():
            if step[4] == name:
                end = lay(below, end)
        end = end + half
        shift = skew_ns if STEPS[name][1] == "store" else 0
        found[name] = (at + shift, end + shift)
        return end

    lay("front", began)
    return found


def _write_spans(
    path: Path,
    requests: pa.Table,
    spans: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]],
    kept: NDArray[np.bool_],
) -> None:
    number = requests["request"].to_numpy()[kept]
    size = len(number)
    names = list(STEPS)
    parts = []
    for place, (name, (_, service, layer, kind, above)) in enumerate(STEPS.items()):
        ids = number.astype(np.int64) * len(STEPS) + place + 1
        parent = ids - place + names.index(above) if above else None
        parts.append(
            table_of(
                "spans",
                {
                    "cell": requests["cell"].filter(pa.array(kept)), "repeat": np.zeros(size),
                    "host": "host-0", "process": "spans-0", "client": np.zeros(size),
                    "server": np.zeros(size), "request": number, "attempt": np.zeros(size),
                    "layer": layer, "started_ns": spans[name][0][kept],
                    "ended_ns": spans[name][1][kept], "span_id": ids, "parent_id": parent,
                    "service": service, "kind": kind, "failed": np.zeros(size, bool),
                },
                size,
            )
        )  # fmt: skip
    segments = Segments(path, unruly.open_run(path).id, "synthetic")
    segments.count = 2000
    segments.write("spans", pa.concat_tables(parts))


def _write_events(path: Path, spans: int, level: int) -> None:
    cell = json.loads((path / "manifest.json").read_text())["cells"][0]["name"]
    told = [
        ("trace key", f"0 {KEY:016x}"),
        (
            "spans received",
            f"received {spans}, kept {spans}, foreign 0, damaged 0, early 0, late 0, refused 0, "
            f"level {level}",
        ),
    ]
    columns = {
        "cell": [cell] * 2, "repeat": np.zeros(2), "host": "host-0", "process": "drive-0",
        "kind": [kind for kind, _ in told], "detail": [detail for _, detail in told],
        "started_ns": np.full(2, STARTED_NS), "ended_ns": None,
    }  # fmt: skip
    segments = Segments(path, unruly.open_run(path).id, "synthetic")
    segments.count = 3000
    segments.write("events", table_of("events", columns, 2))
