"""The runs in a directory: what each measured, whether to trust it, and what it promises.

Only manifests and summaries are read, so a directory of a thousand runs is listed in seconds. A run
without a summary was not analysed; `unruly verdict` does that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from unruly.base.clock import OLDEST_NS
from unruly.base.ladder import NAMES
from unruly.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH_MOST: Final = 3
"""Levels down to a run: the runs of a machine and of its days may have folders of their own."""
BYTES_MOST: Final = 64 << 20
"""A summary above this is not read: nobody lists a run to wait for it."""


@dataclass(frozen=True)
class Promise:
    """The highest percentile that an operation of a cell can be promised.

    ``percentile`` is None where there is none; ``bound`` has the unit ``unit``.
    """

    cell: str
    op: str
    percentile: str | None
    bound: float | None
    unit: str


@dataclass(frozen=True)
class Listed:
    """One run. What its files do not have is None; ``note`` says what could not be read."""

    directory: Path
    run: str
    plan: str
    tag: str
    machine: str
    started_ns: int | None
    measured_ns: float | None
    status: str
    requests: int | None
    failed: int | None
    trustworthy: bool | None
    promises: tuple[Promise, ...]
    note: str = ""


def runs_in(*directories: str | Path) -> list[Listed]:
    """Return the runs in directories and up to three levels down, the earliest first.

    Raises
    ------
    ParameterError
        When one of the directories does not exist.
    """
    return [listed for listed, _ in listed_with_summaries(*directories)]


def listed_with_summaries(*directories: str | Path) -> list[tuple[Listed, dict[str, Any]]]:
    """Return what `runs_in` does, each run with its summary; an empty one where it has none."""
    found = []
    for root in map(Path, directories):
        if not root.is_dir():
            raise ParameterError(
                "directory", f"{root} is not one", "a directory of runs", "check the path"
            )
        found += [_listed(it) for it in _directories(root, DEPTH_MOST)]
    return sorted(found, key=lambda it: (it[0].started_ns or 0, str(it[0].directory)))


def _directories(root: Path, depth: int) -> Iterator[Path]:
    if (root / "manifest.json").is_file():
        # a run holds no other one
        yield root
        return
    if depth > 0:
        try:
            inside = sorted(it for it in root.iterdir() if it.is_dir() and not it.is_symlink())
        except OSError:
            return
        for folder in inside:
            yield from _directories(folder, depth - 1)


def _listed(directory: Path) -> tuple[Listed, dict[str, Any]]:
    manifest, wrong = _read(directory / "manifest.json")
    summary, missing = _read(directory / "summary.json")
    host: dict[str, Any] = next(iter(manifest.get("hosts") or []), {})
    worked = summary.get("worked") or {}
    cores = host.get("cores")
    machine = " ".join(filter(None, (host.get("cpu_model"), cores and f"{cores} cores")))
    listed = Listed(
        directory=directory,
        run=str(manifest.get("run", directory.name)),
        plan=str(manifest.get("name", "")),
        tag=str(manifest.get("tag") or ""),
        machine=machine,
        started_ns=_date(manifest.get("started_ns")),
        measured_ns=summary.get("measured_ns"),
        status=str(summary.get("status") or manifest.get("status") or "unknown"),
        requests=_number(worked.get("requests")),
        failed=_number(worked.get("failed")),
        trustworthy=summary.get("trustworthy"),
        promises=tuple(_promises(summary)),
        note=wrong or missing,
    )
    return listed, summary


def _read(file: Path) -> tuple[dict[str, Any], str]:
    """Return a document, or an empty one and the fault of the file."""
    try:
        if file.stat().st_size > BYTES_MOST:
            return {}, f"{file.name} is too large to list"
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}, "not analysed" if file.name == "summary.json" else f"no {file.name}"
    except (OSError, ValueError):
        return {}, f"{file.name} cannot be read"
    return (document, "") if isinstance(document, dict) else ({}, f"{file.name} cannot be read")


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _date(value: Any) -> int | None:
    """Return a time of a clock; None of a source without times, which counts from 0."""
    time_ns = _number(value)
    return time_ns if time_ns is not None and time_ns >= OLDEST_NS else None


def _promises(summary: dict[str, Any]) -> Iterator[Promise]:
    for cell in summary.get("cells") or []:
        if cell.get("latency") != "response" or cell.get("op") == "*":
            continue
        steps = {it["name"]: it["promise"] for it in (cell.get("ladder") or {}).get("steps", [])}
        # the ladder is not monotone: the highest step with a promise counts
        name = next((it for it in reversed(list(NAMES.values())) if steps.get(it)), None)
        bound = steps[name]["high"] if name else None
        yield Promise(cell["cell"], cell["op"], name, bound, cell.get("unit", "ns"))
