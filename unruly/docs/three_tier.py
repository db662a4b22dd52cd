"""Write the tables of the page three-tier.md from the numbers of runs that are kept.

Run ``make pages``.

The runs are of the plans ``three-tier`` and ``three-tier-recovery``. The parts of their
``summary.json`` that the page shows are kept, so that nobody types the numbers of a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kept
from kept import number, table
from middleware import factors, interval, predictable_first, row_of
from stores import doubts

KEPT = "2026-11-29-amd-2core/side-by-side/three-tier.summary.json"
CRASHES = "2026-11-29-amd-2core/side-by-side/three-tier-recovery.summary.json"
CLIENTS = "2026-11-29-intel-2core/side-by-side/three-tier-recovery-clients.summary.json"
PAGE = Path(__file__).with_name("three-tier.md")
MS = 1e6


def written(page: str) -> str:
    """Return the page with its tables as the kept numbers have them."""
    crashes, crossed, clients = kept.read(CRASHES), kept.read(KEPT), kept.read(CLIENTS)
    parts = {
        "three-tier recovery trust": doubts(crashes),
        "three-tier recovery": recoveries(crashes["over_time"]["recoveries"], "application"),
        "three-tier clients trust": doubts(clients),
        "three-tier clients": recoveries(
            clients["over_time"]["recoveries"], "replication and clients"
        ),
        "three-tier trust": doubts(crossed),
        "three-tier factors": factors(crossed["magical"]),
        "three-tier applications": applications(crossed["magical"]),
    }
    return kept.filled(page, parts)


def ms(value: float | None) -> str:
    """Nanoseconds as milliseconds of three digits."""
    return "-" if value is None else number(value / MS)


def recoveries(found: list[dict[str, Any]], what: str) -> str:
    """A row for each process that was killed in each cell; ``what`` the cells vary."""
    head = [
        what, "killed", "crashes", "recovery", "detection", "fail-over", "request",
        "slowest without a crash", "requests slower than the recovery", "break-even",
    ]  # fmt: skip
    rows = [recovery(it) for it in sorted(found, key=lambda it: (it["cell"], it["process"]))]
    return table(head, rows)


def recovery(row: dict[str, Any]) -> list[str]:
    """The numbers of a process that was killed."""
    held = row["recoveries"]
    longer = "-" if held["longer"] is None else f"{held['longer']} of {held['fault_free']}"
    rate = row["break_even"]
    return [
        " ".join(f"`{it.partition('=')[2]}`" for it in row["cell"].split()),
        f"`{row['process']}`",
        str(len(row["fault_ns"])),
        interval(held["median_ns"], ms),
        interval(held["detection_ns"], ms),
        interval(held["failover_ns"], ms),
        interval(held["request_ns"], ms),
        ms(held["fault_free_max_ns"]),
        longer,
        "-" if rate is None else one_in(rate["faults_hz"]),
    ]


def one_in(rate: dict[str, Any]) -> str:
    """A rate of crashes as the time from one to the next, s; the bounds change places."""
    times = [1 / it if it else None for it in (rate["estimate"], rate["high"], rate["low"])]
    if times[0] is None:
        return "-"
    bounds = "" if None in times[1:] else f" [{number(times[1])}, {number(times[2])}]"
    return f"one in {number(times[0])}{bounds} s"


def applications(matrix: dict[str, Any]) -> str:
    """A row for each application, the most predictable first."""
    head = [
        "application", "failing cells", "p50, us", "p99 / mean", "max / mean", "unruly cells",
        "over 10 x mean", "outliers", "their size", "haircut", "smallest haircut", "a", "b, us",
    ]  # fmt: skip
    rows = sorted(matrix["by_system"], key=predictable_first)
    return table(head, [row_of(it) for it in rows])
