"""The runs of a directory as a table of words, and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from unruly.quantity import DASH, NS_PER_S, count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.listing import Listed

TRUST: Final = {True: "yes", False: "no", None: DASH}
SPACE: Final = "  "
DROPPED: Final = ("machine", "requests", "started")
"""Columns that a narrow terminal does without, in this order."""


def runs_text(found: Sequence[Listed], *, width: int = 100) -> str:
    """Return a line for each run, and what to do with those that were not analysed."""
    if not found:
        return "no run here; hint: unruly run demo -o demo"
    rows = [_row(it) for it in found]
    columns = list(rows[0])
    for name in DROPPED:
        if _width(rows, columns) <= width:
            break
        columns.remove(name)
    lines = [_line({name: name for name in columns}, rows, columns)]
    lines += [_line(row, rows, columns) for row in rows]
    notes = Counter(it.note for it in found if it.note)
    told = [f"{count(n)} of {count(len(found))}: {note}" for note, n in notes.items()]
    if "not analysed" in notes:
        told.append("next: unruly verdict DIRECTORY analyses a run")
    return "\n".join([*lines, *([""] if told else []), *told])


def _row(it: Listed) -> dict[str, str]:
    started = DASH
    if it.started_ns is not None:
        started = f"{datetime.fromtimestamp(it.started_ns / NS_PER_S, UTC):%Y-%m-%d %H:%M}"
    status = "" if it.status == "complete" else f" ({it.status})"
    return {
        "started": started,
        "plan": it.plan + (f" [{it.tag}]" if it.tag else ""),
        "trust": TRUST[it.trustworthy] + status,
        "requests": DASH if it.requests is None else count(it.requests),
        "failed": _failed(it),
        "promise": _promise(it),
        "machine": it.machine or DASH,
        "directory": it.directory,
    }


def _failed(it: Listed) -> str:
    if not it.requests or it.failed is None:
        return DASH
    return percent(it.failed / it.requests) if it.failed else "none"


def _promise(it: Listed) -> str:
    """Return the promise of the only operation, or how many of several have one."""
    if not it.promises:
        return DASH
    if len(it.promises) == 1:
        (only,) = it.promises
        bound = duration(only.bound) if only.unit == "ns" else f"{only.bound:g} {only.unit}"
        return f"{only.percentile} < {bound}" if only.percentile else "none"
    have = Counter(one.percentile for one in it.promises if one.percentile)
    most = ", ".join(f"{name} for {n}" for name, n in have.most_common(2))
    return f"{most} of {len(it.promises)}" if have else f"none of {len(it.promises)}"


def _widths(rows: Sequence[dict[str, str]], columns: Sequence[str]) -> dict[str, int]:
    return {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}


def _width(rows: Sequence[dict[str, str]], columns: Sequence[str]) -> int:
    return sum(_widths(rows, columns).values()) + len(SPACE) * (len(columns) - 1)


def _line(row: dict[str, str], rows: Sequence[dict[str, str]], columns: Sequence[str]) -> str:
    widths = _widths(rows, columns)
    return SPACE.join(row[name].ljust(widths[name]) for name in columns).rstrip()


def runs_json(found: Sequence[Listed]) -> dict[str, Any]:
    """Return the runs for a program; times are in ns, and null stands for the unknown."""
    return {
        "schema": 1,
        "runs": [asdict(it) for it in found],
    }
