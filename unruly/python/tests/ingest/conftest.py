"""Imports of hand-made files."""

from __future__ import annotations

import json
from dataclasses import dataclass

import duckdb
import pytest

from unruly.ingest import Options, import_files


@dataclass(frozen=True)
class Made:
    """An imported run, opened plainly: no reader of ours in between."""

    path: object
    manifest: dict

    def rows(self, columns, table="requests", where="true"):
        files = f"{self.path}/{table}/*.parquet"
        query = f"select {columns} from read_parquet('{files}') where {where}"
        return duckdb.connect().execute(query).fetchall()

    @property
    def missing(self):
        return self.manifest["missing"]

    @property
    def file(self):
        return self.manifest["provenance"][0]


@pytest.fixture
def bring(tmp_path):
    """Write files, import them, and read the run; the last file's text may be bytes."""
    count = iter(range(1_000))

    def of(*texts, names=None, **options):
        place = tmp_path / f"in-{next(count)}"
        place.mkdir()
        paths = []
        for number, text in enumerate(texts):
            path = place / (names[number] if names else f"file-{number}")
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            paths.append(str(path))
        out = place / "run"
        import_files(paths, out, Options(**options))
        return Made(out, json.loads((out / "manifest.json").read_text()))

    return of
