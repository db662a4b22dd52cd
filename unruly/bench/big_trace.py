"""A run of any size, written by DuckDB: a matrix of cells, each with stalls, a tail and failures.

Every value is a hash of the row's number, so that every writer makes the same trace. The first
second of a cell is its warm-up. Segments are as the recorder writes them: a million rows in the
order of time, integers as differences, zstd.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import duckdb

if TYPE_CHECKING:
    from pathlib import Path

NS: Final = 1_000_000_000
STARTED_NS: Final = 1_790_000_000 * NS
SEGMENT_ROWS: Final = 1_000_000
STATUSES: Final = (
    "ok", "timeout", "refused", "shed", "error", "unfinished", "wrong", "behind", "stale", "lost",
)  # fmt: skip
SAMPLED: Final = (None, "drive-0", "echo-0")
"""The host, and the watched processes."""

# uniform in (0, 1) from the row's number and a salt
MACROS = """
CREATE MACRO uniform(number, salt) AS
    ((hash(number * 64 + salt) >> 11)::DOUBLE + 0.5) / 9007199254740992.0;
CREATE MACRO normal(number, salt) AS
    sqrt(-2 * ln(uniform(number, salt))) * cos(2 * pi() * uniform(number, salt + 1));
"""

# arrivals are Poisson's; a cell has its own level and width; one row in 400 has a tail, half of all
# seconds have a stall
ROWS = """
WITH drawn AS (
    SELECT number, number // {cell_rows} AS place,
           CAST(uniform(number, 1) * {length_ns} AS BIGINT) AS since_ns
    FROM range({first}, {last}) AS rows(number)
), timed AS (
    SELECT *, {started} + place * {cell_ns} + since_ns AS intended_ns,
           CAST(-5000 * ln(uniform(number, 2)) AS BIGINT) AS lag_ns,
           120000 * exp(uniform(place, 3) * 3
               + (0.25 + 0.3 * uniform(place, 4)) * normal(number, 5))
               * CASE WHEN uniform(number, 7) < 0.0025 THEN 3 + 20 * uniform(number, 8) ELSE 1 END
               AS alone_ns,
           uniform(place, 14) < 0.1 AND uniform(number, 9) < 0.001 AS failed
    FROM drawn
), stalled AS (
    SELECT *, intended_ns // {ns} AS second,
           uniform(second, 10) < 0.5 AS stall,
           second * {ns} + CAST(uniform(second, 11) * 0.9 * {ns} AS BIGINT) AS stall_ns,
           stall_ns + CAST(-6000000 * ln(uniform(second, 12)) AS BIGINT) AS stall_end_ns
    FROM timed
), answered AS (
    SELECT *, intended_ns + lag_ns AS sent_ns,
           CASE WHEN stall AND intended_ns >= stall_ns AND intended_ns < stall_end_ns
                THEN stall_end_ns ELSE intended_ns + lag_ns END + CAST(alone_ns AS BIGINT)
               AS received
    FROM stalled
)
SELECT name AS cell, 0::USMALLINT AS repeat,
       CASE WHEN since_ns < {warmup_ns} THEN 'warmup' ELSE 'measured' END AS phase,
       'host-0' AS host, 'drive-0' AS process, 'read' AS op, 0::USMALLINT AS client,
       0::USMALLINT AS server, number::UBIGINT AS request, 0::UTINYINT AS attempt,
       0::UINTEGER AS connection, NULL::UBIGINT AS key, intended_ns, sent_ns,
       CASE WHEN NOT failed THEN received END AS received_ns,
       CASE WHEN NOT failed THEN received - 9000 END AS kernel_received_ns,
       CASE WHEN NOT failed THEN sent_ns + (received - sent_ns) // 2 - 7000 END
           AS server_kernel_received_ns,
       CASE WHEN NOT failed THEN sent_ns + (received - sent_ns) // 2 END AS server_received_ns,
       CASE WHEN NOT failed THEN sent_ns + (received - sent_ns) // 2 + 2000 END AS server_sent_ns,
       28::UINTEGER AS sent_bytes, CASE WHEN failed THEN 0 ELSE 44 END::UINTEGER AS received_bytes,
       NULL::VARCHAR AS level, CASE WHEN failed THEN 'timeout' ELSE 'ok' END AS status,
       NOT failed AS answered
FROM answered JOIN cells USING (place)
"""

SAMPLES = """
SELECT name AS cell, 0::USMALLINT AS repeat, 'host-0' AS host, 'probe' AS process, watched,
       {started} + place * {cell_ns} + second * {ns} AS started_ns, started_ns + {ns} AS ended_ns,
       CAST(-1000000 * ln(uniform(place * 1000 + second, 20)) AS BIGINT) AS sampler_lag_ns,
       200000::BIGINT AS sampler_cost_ns,
       CASE WHEN watched IS NULL THEN 0.1 * uniform(place * 1000 + second, 21) END
           AS cpu_user_share,
       CASE WHEN watched IS NULL THEN 0.05 * uniform(place * 1000 + second, 22) END
           AS cpu_system_share,
       CASE WHEN watched IS NULL THEN CAST(5000000 * uniform(place * 1000 + second, 23) AS BIGINT)
           END AS psi_cpu_some_ns,
       CASE WHEN watched IS NOT NULL
            THEN CAST(4000000 * uniform(place * 1000 + second, 24) AS BIGINT) END
           AS run_queue_wait_ns,
       CASE WHEN watched IS NOT NULL
            THEN CAST(90000000 * uniform(place * 1000 + second, 25) AS BIGINT) END AS user_ns,
       CASE WHEN watched IS NOT NULL
            THEN CAST(60000000 * uniform(place * 1000 + second, 26) AS BIGINT) END AS system_ns
FROM cells, range(0, {seconds}) AS seconds(second),
     (SELECT unnest({watched}::VARCHAR[]) AS watched)
"""


@dataclass(frozen=True)
class Size:
    """How large the run is."""

    rows: int
    cells: int
    rate_hz: float = 1_000.0

    @property
    def cell_rows(self) -> int:
        """Rows of each cell."""
        return self.rows // self.cells


def write(root: Path, size: Size) -> Path:
    """Write the run to ``root`` and return it."""
    run = f"big-{size.rows}-{size.cells}"
    values = {
        "cell_rows": size.cell_rows,
        "cell_ns": int((size.cell_rows / size.rate_hz + 1) * NS),
        "length_ns": int(size.cell_rows / size.rate_hz * NS),
        "warmup_ns": NS,
        "started": STARTED_NS,
        "seconds": int(size.cell_rows / size.rate_hz) + 1,
        "watched": "[" + ", ".join("NULL" if it is None else f"'{it}'" for it in SAMPLED) + "]",
        "ns": NS,
    }
    names = [_name(place) for place in range(size.cells)]
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(MACROS)
        connection.execute("CREATE TABLE cells (place BIGINT, name VARCHAR)")
        connection.execute(
            "INSERT INTO cells SELECT unnest(range(0, len($names))), unnest($names)",
            {"names": names},
        )
        (root / "requests").mkdir(parents=True)
        (root / "resources").mkdir()
        total = size.cell_rows * size.cells
        for number, first in enumerate(range(0, total, SEGMENT_ROWS)):
            last = min(first + SEGMENT_ROWS, total)
            query = ROWS.format(first=first, last=last, **values) + " ORDER BY intended_ns"
            _segment(connection, root, run, "requests", number, query)
        _segment(connection, root, run, "resources", 0, SAMPLES.format(**values))
        counts = dict(
            connection.execute(
                f"SELECT status, count(*) FROM read_parquet('{root}/requests/*.parquet') GROUP BY 1"
            ).fetchall()
        )
    manifest = _manifest(run, names, counts, values)
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return root


def _segment(
    connection: duckdb.DuckDBPyConnection,
    root: Path,
    run: str,
    table: str,
    number: int,
    query: str,
) -> None:
    path = root / table / f"drive-0-{number:05}.parquet"
    footer = {
        "unruly.schema": "1", "unruly.run": run, "unruly.table": table, "unruly.host": "host-0",
        "unruly.process": "drive-0", "unruly.tag": "big",
    }  # fmt: skip
    pairs = ", ".join(f"'{name}': '{value}'" for name, value in footer.items())
    connection.execute(
        f"COPY ({query}) TO '{path}' (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, "
        f"COMPRESSION_LEVEL 1, KV_METADATA {{{pairs}}})"
    )


def _name(place: int) -> str:
    factors = {"members": place % 10 + 1, "payload": f"{2 ** (place // 10 % 10)}KiB",
               "clients": place // 100 + 1}  # fmt: skip
    return " ".join(f"{name}={value}" for name, value in factors.items())


def _manifest(
    run: str, names: list[str], counts: dict[str, int], values: dict[str, Any]
) -> dict[str, Any]:
    rows = sum(counts.values())
    copies = {name: counts.get(name, 0) for name in STATUSES}
    copies |= {"scheduled": rows, "recorded": rows, "dropped": 0}
    answered = counts["ok"]
    host = {"name": "host-0", "cpu_model": "synthetic", "cores": 2, "noise_floor_ns": 50_000}
    return {
        "schema": 1,
        "run": run,
        "name": "big",
        "tag": "big",
        "tool": {"version": "0.1.0", "commit": "0" * 40},
        "plan_sha256": "0" * 64,
        "seed": 1,
        "status": "complete",
        "started_ns": STARTED_NS,
        "ended_ns": STARTED_NS + len(names) * values["cell_ns"],
        "planned_ns": len(names) * values["cell_ns"],
        "missing": [],
        "hosts": [host],
        "cells": [
            {"name": name, "factors": dict(part.split("=") for part in name.split())}
            for name in names
        ],
        "processes": [
            {
                "name": f"{kind}-0", "kind": kind, "id": 0, "cell": name, "repeat": 0,
                "host": "host-0", "pid": 100, "runtime": "native", "exit": {"code": 0},
                "counts": None,
            }
            for name in names
            for kind in ("drive", "echo")
        ],
        "counts": {
            "copies": copies,
            "requests": {"scheduled": rows, "answered": answered, "unanswered": rows - answered},
        },
    }  # fmt: skip
