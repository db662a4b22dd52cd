"""Open a run directory: check that it is one, recover it when it was cut off, lay views over it.

Every error says which file it is about. A segment that cannot be read is left out and named in
``Run.missing``; a run of which no segment can be read is an error, since nothing could be said.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unruly import checksum
from unruly.errors import RecoveryError, RunError, TraceError
from unruly.plan import Plan
from unruly.plan import problems as plan_problems
from unruly.program import ENVIRONMENT, find_binary
from unruly.shown import Sheet, Shown
from unruly.tables import SCHEMA_VERSION, TABLES, fetch, open_engine, required_columns
from unruly.tables import requests as request_tables
from unruly.tables import turnarounds as turnaround_tables
from unruly.terminal import plain_all

if TYPE_CHECKING:
    import os

    import ibis

    from unruly.tables import Engine

RECOVERY_SECONDS_MAX = 600
WHOLE = ("complete", "stopped", "imported")
"""How a run ends that is whole."""


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """An opened run: its manifest, and its tables as lazy Ibis expressions.

    All tables always exist with the schema's columns, even when no file is there.
    """

    path: Path
    manifest: dict[str, Any]
    missing: list[str]
    engine: Engine = field(repr=False)
    segments: dict[str, int]
    """Readable files of each table."""
    unreadable: list[str]

    @property
    def id(self) -> str:
        """The run's id, also in every segment's footer."""
        return str(self.manifest.get("run") or self.path.name)

    @property
    def name(self) -> str:
        """The plan's name."""
        return str(self.manifest.get("name") or self.path.name)

    @property
    def tag(self) -> str:
        """The environment that it ran in."""
        return str(self.manifest.get("tag") or "")

    @property
    def left_out(self) -> list[str]:
        """Cells and systems of the matrix that could not be measured, a sentence each."""
        return [str(sentence) for sentence in self.manifest.get("left_out") or []]

    @property
    def status(self) -> str:
        """``running``, ``complete``, ``stopped``, ``incomplete``, ``cut off`` or ``imported``."""
        return str(self.manifest.get("status") or "")

    @property
    def command(self) -> list[str] | None:
        """The words of the command that started it, without passwords; ``None`` in an import."""
        words = self.manifest.get("command")
        return [str(word) for word in words] if isinstance(words, list) else None

    @property
    def target(self) -> str | None:
        """What was measured, in one sentence; ``None`` in an import and in older runs."""
        target = self.manifest.get("target")
        return str(target) if target else None

    @property
    def watched(self) -> bool:
        """Its requests are what a tap saw of services, and nothing else was measured."""
        return bool(self.segments["turnarounds"]) and not self.segments["requests"]

    @property
    def foreign(self) -> bool:
        """Others made its requests, on no schedule of ours: another tool, or watched clients."""
        return self.status == "imported" or self.watched

    @property
    def merged(self) -> dict[str, Any] | None:
        """When its rows became histograms, and exact figures from before; ``None`` of others."""
        merged = self.manifest.get("merged")
        return merged if isinstance(merged, dict) else None

    @property
    def keeps_bins_alone(self) -> bool:
        """It has histograms and no row of a single request: imported so, or merged."""
        return bool(self.segments["histograms"]) and not self.segments["requests"]

    @property
    def broken(self) -> list[str]:
        """What broke it, a sentence each: processes that died, segments that cannot be read."""
        return [str(it) for it in self.manifest.get("broken") or []] + self.unreadable

    @property
    def whole(self) -> bool:
        """It ended as somebody wanted, and all that it wrote can be read."""
        return self.status in WHOLE and not self.broken

    @property
    def factors(self) -> dict[str, dict[str, str]]:
        """The factors of each cell, by its name and in the plan's order."""
        return {
            str(it["name"]): {str(k): str(v) for k, v in (it.get("factors") or {}).items()}
            for it in self.manifest.get("cells") or []
            if isinstance(it, dict)
        }

    @cached_property
    def plan(self) -> Plan:
        """The plan that is kept with it, with the factors of each cell applied.

        All settings are absent when it has no plan, or none that can be read.
        """
        return Plan.read(self.path, self.factors)

    @property
    def timeless(self) -> frozenset[str]:
        """Cells whose source had no times: their rows are laid end to end in its order."""
        return frozenset(str(cell) for cell in self.manifest.get("timeless") or [])

    def table(self, name: str) -> ibis.Table:
        """Return one of requests, spans, intervals, resources, events, histograms, turnarounds.

        Raises
        ------
        RunError
            For any other name.
        """
        if name not in TABLES:
            raise RunError(name, "no such table", f"one of {', '.join(TABLES)}", "spell it so")
        return self.engine.table(name)

    @property
    def requests(self) -> ibis.Table:
        """A row for each reply and for each reply that never came, warm-up included."""
        return self.table("requests")

    @property
    def measured(self) -> ibis.Table:
        """The requests that the analysis counts: without warm-up, each request once.

        Of a request that was tried again only the last try is here, counted from the time of the
        first. Adds ``ok``, ``response``, ``service`` and ``send_lag`` to the columns of `requests`,
        all latencies in ns; ``response`` and ``service`` are infinite when the request failed.

        Examples
        --------
        >>> import unruly
        >>> run = unruly.open_run("runs/demo")
        >>> counts = run.measured.group_by("op").agg(n=lambda rows: rows.count())
        >>> sorted(counts.to_pyarrow().to_pylist(), key=lambda row: row["op"])[0]
        {'op': 'crypto', 'n': 15000}
        """
        return request_tables.counted(self.requests)

    @property
    def spans(self) -> ibis.Table:
        """Where the time of chosen requests went."""
        return self.table("spans")

    @property
    def intervals(self) -> ibis.Table:
        """What flowed, in short intervals."""
        return self.table("intervals")

    @property
    def resources(self) -> ibis.Table:
        """Samples of hosts and watched processes."""
        return self.table("resources")

    @property
    def events(self) -> ibis.Table:
        """Anything with a start and a duration."""
        return self.table("events")

    @property
    def histograms(self) -> ibis.Table:
        """Imported latencies whose source kept no single values: bins of each interval.

        Uniform inside [``low_ns``, ``high_ns``]; equal edges are one value, infinite ones failed.
        """
        return self.table("histograms")

    @property
    def turnarounds(self) -> ibis.Table:
        """Requests and replies of services as a tap saw them, those that it cannot measure too.

        A run that has nothing else has them as its `requests` as well, without those.
        """
        return self.table("turnarounds")

    def _sheet(self) -> Sheet:
        files = {name: count for name, count in self.segments.items() if count}
        tag = f" [{self.tag}]" if self.tag else ""
        rows = [
            (name, f"{files[name]:,}", f"{sum(1 for _ in self.table(name).columns)}")
            for name in files
        ]
        note = "; ".join(self.missing)
        return Sheet(
            f"{self.name}{tag}: {self.status}, at {self.path}",
            ("table", "files", "columns"),
            rows,
            note,
        )


def open_run(
    path: str | os.PathLike[str], *, engine: str = "duckdb", memory: str | None = None
) -> Run:
    """Open the run directory at ``path``.

    Parameters
    ----------
    path : path-like
        The directory that holds ``manifest.json``.
    engine : str
        The engine that computes: ``"duckdb"`` inside this process; Spark at
        ``"spark://host:port"``; or Spark inside this process, ``"local[2]"`` with two threads. All
        of them give the same numbers.
    memory : str, optional
        The memory that the engine may use before it spills to disk, like ``"3GB"``.

    Returns
    -------
    Run
        Its tables are lazy: each segment has been compared with its checksum, and no more.

    Raises
    ------
    RunError
        The directory does not exist, or is not a run.
    TraceError
        A file is foreign or of a newer schema, or no segment can be read.
    RecoveryError
        The run was cut off and the ``unruly`` binary is missing or failed.
    EngineError
        The engine is unknown, or what it needs is not installed.
    """
    root = Path(path)
    if not root.is_dir():
        what = "is a file" if root.exists() else "no such directory"
        raise RunError(root, what, "the directory of a run", "`unruly run PLAN` makes one")
    recovered = _recover_if_cut_off(root)
    manifest = _read_manifest(root)
    missing = [str(sentence) for sentence in manifest.get("missing") or []]
    tables, segments, unreadable = open_engine(engine, memory), {}, list[str]()
    for table in TABLES:
        files, problems = _segments(root, table, str(manifest.get("run") or ""))
        tables.view(table, files)
        segments[table] = len(files)
        unreadable += problems
        missing.extend(problems)
        if problems and not files and table == "requests":
            first = sorted((root / table).rglob("*.parquet"))[0]
            raise TraceError(
                first,
                "no segment of the run can be read",
                "at least one whole Parquet file",
                "copy the run again, or measure again",
            )
    if segments["turnarounds"] and not segments["requests"]:
        # a run that only watched measured the requests of others
        turnarounds = tables.table("turnarounds")
        overlaps = bool(len(fetch(turnaround_tables.multiplexed(turnarounds).limit(1))))
        seen = turnaround_tables.as_requests(turnarounds, overlaps=overlaps)
        tables.define("requests", seen)
    unreadable += plan_problems(root, str(manifest.get("plan_sha256") or ""))
    if recovered and manifest.get("status") == "running":
        manifest["status"] = "cut off"
    return Run(root, manifest, missing, tables, segments, unreadable)


def _read_manifest(root: Path) -> dict[str, Any]:
    path = root / "manifest.json"
    if not path.is_file():
        raise RunError(
            root,
            "not a run: it has no manifest.json",
            "a directory that `unruly run` wrote",
            "give the run's own directory, not the one above it",
        )
    try:
        manifest = plain_all(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise RunError(path, f"not JSON: {error}", "a JSON object", "copy the run again") from error
    if not isinstance(manifest, dict):
        raise RunError(path, "not a JSON object", "a JSON object", "copy the run again")
    version = manifest.get("schema", 1)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise RunError(
            path,
            f"manifest schema is {version}",
            f"this tool reads up to {SCHEMA_VERSION}",
            "upgrade unruly",
        )
    for key, (kind, wanted) in SHAPES.items():
        value = manifest.get(key)
        if value is not None and not kind(value):
            shown = repr(value)[:60]
            raise RunError(path, f"{key} is {shown}", wanted, "copy the run again")
    return manifest


def _is_whole_number(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return abs(value) < 1 << 63


def _are_named(value: object) -> bool:
    """Whether all of a list are objects with a name, and their numbers are whole."""
    if not isinstance(value, list):
        return False
    return all(isinstance(it, dict) and _is_named(it) for it in value)


def _is_named(value: dict[str, Any]) -> bool:
    told = [value.get(key) for key in ("cell", "kind")]
    texts = [value.get("name"), *(it for it in told if it is not None)]
    numbers = [value.get(key) for key in ("id", "repeat", "pid", "noise_floor_ns", "cores")]
    factors = {} if value.get("factors") is None else value["factors"]
    return (
        all(isinstance(it, str) for it in texts)
        and all(it is None or _is_whole_number(it) for it in numbers)
        and isinstance(factors, dict)
        and all(isinstance(it, str) for it in factors.values())
    )


def _is_counts(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    groups = [it for it in value.values() if it is not None]
    return all(
        isinstance(it, dict) and all(_is_whole_number(count) for count in it.values())
        for it in groups
    )


SHAPES: Final = {
    **dict.fromkeys(("started_ns", "ended_ns", "planned_ns"), (_is_whole_number, "an integer")),
    **dict.fromkeys(("hosts", "cells", "processes"), (_are_named, "a list of named objects")),
    **dict.fromkeys(
        ("missing", "broken", "left_out", "timeless"),
        (lambda it: isinstance(it, list), "a list"),
    ),
    "tool": (lambda it: isinstance(it, dict), "an object"),
    "counts": (_is_counts, "objects of integers"),
}
"""The keys of a manifest with a fixed type: the check of the value, and the type in words."""


def _segments(root: Path, table: str, run: str) -> tuple[dict[Path, set[str]], list[str]]:
    """Readable segments with their columns, and a sentence for each unreadable one."""
    files: dict[Path, set[str]] = {}
    problems: list[str] = []
    if (root / table).is_symlink():
        return {}, [f"{table} is a link to another place and is left out"]
    for path in sorted((root / table).rglob("*.parquet")):
        try:
            if not path.is_file():
                raise OSError("it is no regular file")
            footer = pq.read_metadata(path)
            if not checksum.is_whole(path):
                raise OSError("its bytes are not as they were written")
        except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
            reason = str(error).split(". ")[0].split("\n")[0]
            problems.append(f"{path.relative_to(root)} cannot be read and is left out: {reason}")
            continue
        files[path] = _checked_columns(path, table, footer, run)
    return files, problems


def _checked_columns(path: Path, table: str, footer: pq.FileMetaData, run: str) -> set[str]:
    keys = {
        key.decode(): value.decode()
        for key, value in (footer.metadata or {}).items()
        if key.startswith(b"unruly.")
    }
    if "unruly.schema" not in keys:
        raise TraceError(
            path,
            "a Parquet file that unruly did not write (no unruly.schema in its footer)",
            "segments of this run only",
            "move it away, or bring it in with `unruly import`",
        )
    version = keys["unruly.schema"]
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        raise TraceError(
            path,
            f"trace schema is {version}",
            f"this tool reads up to {SCHEMA_VERSION}",
            "upgrade unruly",
        )
    schema = footer.schema.to_arrow_schema()
    columns = set(schema.names)
    lacking = sorted(required_columns(table) - columns)
    if lacking or keys.get("unruly.table", table) != table:
        what = f"lacks {', '.join(lacking)}" if lacking else f"is of {keys['unruly.table']}"
        raise TraceError(path, what, f"a segment of {table}", "move it away")
    for name, kind, _ in TABLES[table]:
        if name in columns and not _fits(schema.field(name).type, kind):
            raise TraceError(
                path,
                f"column {name} is of type {schema.field(name).type}",
                f"{kind}",
                "copy the run again, or measure again",
            )
    if run and keys.get("unruly.run", run) != run:
        raise TraceError(
            path, f"belongs to run {keys['unruly.run']}", f"segments of run {run}", "move it away"
        )
    return columns


def _fits(found: pa.DataType, kind: str) -> bool:
    """Whether a column of an Arrow type can be one of the trace."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    match kind:
        case "VARCHAR":
            return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
        case "DOUBLE":
            return bool(pa.types.is_floating(found))
        case "BOOLEAN":
            return bool(pa.types.is_boolean(found))
        case _:
            return bool(pa.types.is_integer(found))


def _recover_if_cut_off(root: Path) -> bool:
    spools = sorted(root.rglob("*.spool"))
    if not spools:
        return False
    binary = find_binary()
    if binary is None:
        raise RecoveryError(
            spools[0],
            "the run was cut off and holds rows that are not in Parquet yet",
            "the `unruly` binary, which recovers them",
            f"set {ENVIRONMENT}, put unruly on PATH, or `cargo build -p unruly`",
        )
    done = subprocess.run(
        [binary, "recover", str(root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=RECOVERY_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise RecoveryError(
            root,
            f"`{binary} recover` ended with {done.returncode}: {done.stderr.strip()}",
            "a run without spools",
            "run it by hand",
        )
    return True
