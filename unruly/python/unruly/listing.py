"""The runs in a directory: what each measured, whether to trust it, and what it promises.

Only manifests and summaries are read, so a directory of a thousand runs is listed in seconds, also
in an object store. A run without a summary was not analysed; `unruly verdict` does that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unruly.base.clock import OLDEST_NS
from unruly.base.ladder import NAMES
from unruly.errors import ParameterError
from unruly.folders import folder_of, unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from unruly.folders import Folder, Inside

MANIFEST: Final = "manifest.json"
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

    directory: str
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

    A directory is a path, or the address of a folder in an object store: ``s3://BUCKET/FOLDER``,
    and ``gs://`` and ``abfs://`` likewise, with credentials from the environment.

    Raises
    ------
    ParameterError
        When one of the directories does not exist, or a store cannot be read.
    """
    return [listed for listed, _ in listed_with_summaries(*directories)]


def listed_with_summaries(*directories: str | Path) -> list[tuple[Listed, dict[str, Any]]]:
    """Return what `runs_in` does, each run with its summary; an empty one where it has none."""
    found, known = [], set[str]()
    for root in map(folder_of, directories):
        # a directory may be named beside one that holds it
        runs = [it for it in _runs_below(root) if it[0].place not in known]
        known |= {folder.place for folder, _ in runs}
        found += root.together(_listed, runs)
    return sorted(found, key=lambda it: (it[0].started_ns or 0, it[0].directory))


def _runs_below(root: Folder) -> list[tuple[Folder, dict[str, int]]]:
    """Return the folders of runs, each with its files."""
    try:
        level = [(root, root.inside())]
    except (FileNotFoundError, NotADirectoryError):
        raise ParameterError(
            "directory", f"{root} is not one", "a directory of runs", "check the path"
        ) from None
    except OSError as error:
        raise unreachable(str(root), error) from None
    runs = []
    for depth in range(DEPTH_MOST + 1):
        # a run holds no other one
        runs += [(it, seen.files) for it, seen in level if MANIFEST in seen.files]
        below = [it for _, seen in level if MANIFEST not in seen.files for it in seen.folders]
        if depth < DEPTH_MOST:
            level = [it for it in root.together(_looked, below) if it is not None]
    return runs


def _looked(folder: Folder) -> tuple[Folder, Inside] | None:
    try:
        return folder, folder.inside()
    except OSError as error:
        if folder.may_lack:
            return None
        raise unreachable(str(folder), error) from None


def _listed(place: tuple[Folder, dict[str, int]]) -> tuple[Listed, dict[str, Any]]:
    directory, files = place
    manifest, wrong = _read(directory, files, MANIFEST)
    summary, missing = _read(directory, files, "summary.json")
    host: dict[str, Any] = next(iter(manifest.get("hosts") or []), {})
    worked = summary.get("worked") or {}
    cores = host.get("cores")
    machine = " ".join(filter(None, (host.get("cpu_model"), cores and f"{cores} cores")))
    listed = Listed(
        directory=str(directory),
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


def _read(directory: Folder, files: dict[str, int], name: str) -> tuple[dict[str, Any], str]:
    """Return a document, or an empty one and the fault of the file."""
    if name not in files:
        return {}, "not analysed" if name == "summary.json" else f"no {name}"
    if files[name] > BYTES_MOST:
        return {}, f"{name} is too large to list"
    try:
        document = json.loads(directory.read(name))
    except (OSError, ValueError):
        return {}, f"{name} cannot be read"
    return (document, "") if isinstance(document, dict) else ({}, f"{name} cannot be read")


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
