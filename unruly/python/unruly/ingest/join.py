"""Lay events and resources of other tools beside a run that is there already, by their time."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from unruly.errors import IngestError
from unruly.ingest.importer import Imported, Work, opened, provenance
from unruly.ingest.writer import MANIFEST, RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from unruly.ingest.model import Options

LOCK = ".lock"
"""As the runner and recovery have it."""
CLOCKS = {"requests": ("intended_ns", "received_ns"), "histograms": ("started_ns", "ended_ns")}


class _Beside(RunWriter):
    """Writes segments beside those of a run, and says so in its manifest; all or nothing."""

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        super().__init__(
            directory,
            run=str(manifest.get("run") or directory.name),
            name=str(manifest.get("name") or ""),
            tag=str(manifest.get("tag") or ""),
        )
        self.manifest = manifest
        self.prefix = f"joined-{time.time_ns():x}"
        names = [str(it.get("name")) for it in manifest.get("hosts") or [] if isinstance(it, dict)]
        self.host = names[0] if len(names) == 1 else self.host

    def __enter__(self) -> RunWriter:
        """Make a directory inside the run, which no reader looks into."""
        try:
            self.root = Path(tempfile.mkdtemp(prefix=".joining-", dir=self.directory))
        except OSError as error:
            raise self.full(error) from error
        return self

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Move the segments to their places, then replace the manifest; or take them back."""
        moved: list[Path] = []
        try:
            for segments in self.segments.values():
                segments.close()
            for path in sorted(self.root.rglob("*.parquet")):
                place = self.directory / path.relative_to(self.root)
                place.parent.mkdir(exist_ok=True)
                path.replace(place)
                moved.append(place)
            known = dict(self.manifest)
            known["provenance"] = [*(known.get("provenance") or []), *manifest["provenance"]]
            known["missing"] = [*(known.get("missing") or []), *manifest["missing"]]
            text = json.dumps(known, indent=1, allow_nan=False, ensure_ascii=False)
            half = self.root / MANIFEST
            half.write_text(text + "\n", encoding="utf-8")
            os.replace(half, self.directory / MANIFEST)
        except OSError as error:
            for place in moved:
                place.unlink(missing_ok=True)
            raise self.full(error) from error


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the locks of a run: two that join at once would write the manifest over each other."""
    # The runner's and recovery's, where a run has one, and the directory itself.
    with ExitStack() as stack:
        for place in (directory, directory / LOCK):
            try:
                handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise IngestError(
                    place,
                    f"cannot be locked: {error.strerror}",
                    "a run of yours",
                    "check its rights",
                ) from error
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise IngestError(
                    directory,
                    "is used by another program",
                    "a run that nobody writes",
                    "try again later",
                ) from error
        yield


def join_files(
    paths: Sequence[str],
    directory: Path,
    options: Options,
    progress: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Add the events and resources in ``paths`` to the run in ``directory``.

    They belong to the cells that they overlap in time, and to the run's host where it has one.

    Raises
    ------
    IngestError
        A file holds latencies (those make a run of their own), cannot be read, or overlaps the
        run at no time; ``directory`` is no run. The run is then as it was.
    """
    _manifest(directory)
    with ExitStack() as stack:
        stack.enter_context(_alone(directory))
        # read again: nobody else changes it from now on
        manifest = _manifest(directory)
        extents = _extents(directory)
        files = opened(paths, options, stack)
        for file in files:
            if file.format.gives == "latencies":
                raise IngestError(
                    file.source.where,
                    f"holds latencies ({file.format.name})",
                    "a log of a collector, or samples of a host",
                    "import it as a run of its own with -o",
                )
        with _Beside(directory, manifest) as writer:
            work = Work(writer, options, progress)
            work.tally.extents.update(extents)
            work.strict = True
            for file in files:
                work.read(file)
            missing = work.missing(files)
            about = [it for file in files for it in provenance(file)]
            writer.finish({"provenance": about, "missing": missing})
            return Imported(directory, about, work.tally.rows, missing)


def _manifest(directory: Path) -> dict[str, Any]:
    try:
        found = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IngestError(
            directory, "is no run", "a directory with a manifest.json", "check the path"
        ) from error
    if not isinstance(found, dict) or found.get("status") == "running":
        raise IngestError(
            directory, "is still running or cut off", "a finished run", "unruly recover"
        )
    return found


def _extents(directory: Path) -> dict[str, tuple[int, int]]:
    """First and last instant of each cell."""
    found: dict[str, tuple[int, int]] = {}
    for table, (start, end) in CLOCKS.items():
        files = [str(path) for path in (directory / table).rglob("*.parquet")]
        if not files:
            continue
        for batch in ds.dataset(files).to_batches(columns=["cell", start, end]):
            rows = pa.table(
                {
                    "cell": batch.column("cell").cast("string"),
                    "first": batch.column(start),
                    "last": pc.max_element_wise(batch.column(start), batch.column(end)),
                }
            ).group_by("cell")
            for row in rows.aggregate([("first", "min"), ("last", "max")]).to_pylist():
                first, last = row["first_min"], row["last_max"]
                known = found.get(row["cell"], (first, last))
                found[row["cell"]] = (min(first, known[0]), max(last, known[1]))
    return found
