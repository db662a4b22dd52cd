"""Writes an imported run: segments of at most a million rows, and the manifest; all or nothing.

The run is made in a directory beside its place and renamed when it is whole, so that a failed
import leaves nothing behind. Rows are written as they come: memory does not grow with the file.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unruly import checksum
from unruly.errors import IngestError
from unruly.ingest.columns import cell_name, table_of
from unruly.tables.columns import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

SEGMENT_ROWS: Final = 1_000_000
GROUP_ROWS: Final = 1 << 17
CELLS_MAX: Final = 1_000
NAMES_MAX: Final = 65_535
HOST: Final = "imported"
MANIFEST: Final = "manifest.json"


class Segments:
    """Segments of one table, one after another."""

    def __init__(
        self, root: Path, table: str, footer: Mapping[str, str], prefix: str = "import"
    ) -> None:
        self.root, self.table, self.prefix = root / table, table, prefix
        self.footer = {**footer, "unruly.table": table}
        self.count = self.rows = self.written = 0
        self.held: list[pa.Table] = []
        self.held_rows = 0
        self.writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Append rows; they are on disk once a row group of them has come together."""
        self.held.append(rows)
        self.held_rows += rows.num_rows
        while self.held_rows >= GROUP_ROWS:
            self._write(GROUP_ROWS)

    def close(self) -> None:
        """Write the buffered rows and finish the last segment."""
        if self.held_rows:
            self._write(self.held_rows)
        self._finish()

    def _write(self, count: int) -> None:
        whole = pa.concat_tables(self.held)
        room = min(count, SEGMENT_ROWS - self.rows)
        part, rest = whole.slice(0, room), whole.slice(room)
        self.held, self.held_rows = ([rest] if rest.num_rows else []), rest.num_rows
        if self.writer is None:
            self.writer = self._open(part.schema)
        self.writer.write_table(part.combine_chunks(), row_group_size=GROUP_ROWS)
        self.rows += room
        self.written += room
        if self.rows == SEGMENT_ROWS:
            self._finish()
        if self.held_rows and room < count:
            self._write(min(self.held_rows, count - room))

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        self.root.mkdir(exist_ok=True)
        self.count += 1
        columns = TABLES[self.table]
        integers = [name for name, kind, _ in columns if kind in ("BIGINT", "UBIGINT")]
        return pq.ParquetWriter(
            self._path(),
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name, _, _ in columns if name not in integers],
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        )

    def _finish(self) -> None:
        if self.writer is None:
            return
        rows = {"unruly.rows": str(self.rows), checksum.KEY: checksum.UNKNOWN}
        self.writer.add_key_value_metadata({**self.footer, **rows})
        self.writer.close()
        checksum.seal(self._path())
        self.writer, self.rows = None, 0

    def _path(self) -> Path:
        return self.root / f"{self.prefix}-{self.count:05}.parquet"


class Names:
    """Numbers for the names of clients and servers, as they first come up."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return the number of a name.

        Raises
        ------
        IngestError
            When there are more than 65,535.
        """
        found = self.numbers.setdefault(name, len(self.numbers))
        if found > NAMES_MAX:
            raise IngestError(
                self.where,
                f"more than {NAMES_MAX:,} names of clients or servers",
                "nodes, not requests or sessions",
                "import them as one client",
            )
        return found


class RunWriter:
    """A run that is being written; a context manager that leaves a whole run or nothing."""

    host = HOST
    prefix = "import"

    def __init__(self, directory: Path, *, run: str, name: str, tag: str) -> None:
        self.directory, self.run, self.name, self.tag = directory, run, name, tag
        self.cells: dict[str, dict[str, str]] = {}
        self.segments: dict[str, Segments] = {}
        self.root = Path()

    def __enter__(self) -> RunWriter:
        """Make a directory beside the run's place.

        Raises
        ------
        IngestError
            When the place is taken or cannot be written to.
        """
        parent = self.directory.absolute().parent
        free(self.directory)
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self.root = Path(tempfile.mkdtemp(prefix=f".{self.directory.name}.", dir=parent))
            self.root.chmod(0o755)
        except OSError as error:
            raise IngestError(
                self.directory,
                f"cannot be written: {error.strerror}",
                "a place for the run",
                "choose another with -o",
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the directory of an unfinished run; a finished run has been renamed."""
        shutil.rmtree(self.root, ignore_errors=True)

    def cell(self, factors: dict[str, str], where: str) -> str:
        """Return the name of a cell and remember it.

        Raises
        ------
        IngestError
            When there are too many to be factors of an experiment.
        """
        name = cell_name(factors)
        if self.cells.setdefault(name, factors) is factors and len(self.cells) > CELLS_MAX:
            raise IngestError(
                where,
                f"the factors {', '.join(factors)} make more than {CELLS_MAX:,} cells",
                "columns of few values",
                "choose other columns for --factor",
            )
        return name

    def add(self, table: str, columns: Mapping[str, Any], rows: int) -> None:
        """Append rows to a table."""
        if not rows:
            return
        if table not in self.segments:
            footer = {
                "unruly.schema": str(SCHEMA_VERSION),
                "unruly.run": self.run,
                "unruly.host": self.host,
                "unruly.process": "import",
                "unruly.tag": self.tag,
            }
            self.segments[table] = Segments(self.root, table, footer, self.prefix)
        common = {"repeat": 0, "host": self.host}
        try:
            self.segments[table].add(table_of(table, common | dict(columns), rows))
        except OSError as error:
            raise self.full(error) from error

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest and put the run in its place.

        Raises
        ------
        IngestError
            When the disk is full or the place was taken meanwhile.
        """
        about = {
            "schema": 1,
            "run": self.run,
            "name": self.name,
            "tag": self.tag,
            "tool": {"version": metadata_version(), "commit": "unknown"},
            "plan_sha256": "",
            "seed": 0,
            "status": "imported",
            "hosts": [],
            "cells": [{"name": n, "factors": f} for n, f in self.cells.items()],
            **manifest,
        }
        try:
            for segments in self.segments.values():
                segments.close()
            text = json.dumps(about, indent=1, allow_nan=False, ensure_ascii=False)
            (self.root / MANIFEST).write_text(text + "\n", encoding="utf-8")
            free(self.directory)
            # onto nothing or an empty directory: anything else was refused
            os.rename(self.root, self.directory)
        except OSError as error:
            raise self.full(error) from error

    def full(self, error: OSError) -> IngestError:
        """Say that the disk did not take it."""
        return IngestError(
            self.directory, f"cannot be written: {error}", "room for the run", "free some space"
        )


def free(directory: Path) -> None:
    """Refuse a place that is taken.

    Raises
    ------
    IngestError
        When it holds a run or anything else.
    """
    if directory.is_dir() and not any(directory.iterdir()):
        return
    if directory.exists() or directory.is_symlink():
        run = (directory / MANIFEST).exists()
        raise IngestError(
            directory,
            "holds a run already" if run else "is there already and is not empty",
            "a new directory",
            "choose another with -o, or remove it",
        )


def metadata_version() -> str:
    """Return the version of this package, ``unknown`` when it runs from its sources."""
    try:
        return metadata.version("unruly")
    except metadata.PackageNotFoundError:
        return "unknown"
