"""Captures of packets, pcap and pcapng: the program ``unruly`` reads them like a live tap."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from unruly.errors import IngestError, ParameterError
from unruly.program import find_binary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.ingest.model import Options
    from unruly.ingest.writer import RunWriter

MARKS: Final = (
    b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d",
    b"\x0a\x0d\x0d\x0a",
)  # fmt: skip
"""The first bytes of pcap (both byte orders, microseconds and nanoseconds) and of pcapng."""
UNPLANNED: Final = "packets do not say when a request was scheduled: it counts from its first byte"
SECONDS_MOST: Final = 3_600
PART_BYTES: Final = 1 << 20


def is_capture(path: str) -> bool:
    """Return whether a file begins as a capture of packets does."""
    try:
        # a pipe gives its first bytes once, and its reader needs them
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(4) in MARKS
    except OSError:
        return False


def check_alone(paths: Sequence[str], options: Options) -> None:
    """Refuse a capture beside other files, and flags that a capture does not take.

    Raises
    ------
    IngestError
        With what to do instead.
    """
    where = next(path for path in paths if is_capture(path))
    if len(paths) > 1:
        raise IngestError(
            where, "is a capture beside other files", "one capture", "import each on its own"
        )
    ignored = sorted(options.given() - {"--service"})
    if ignored or options.format:
        flags = ", ".join(ignored or ["--format"])
        raise IngestError(
            where, f"a capture of packets takes no {flags}", "only --service", "leave it out"
        )


def read_capture(path: str, writer: RunWriter, options: Options) -> dict[str, Any]:
    """Write the turnarounds of a capture into a run that is being made.

    Returns
    -------
    dict
        ``rows``, ``missing``, ``tiers``, ``started_ns``, ``ended_ns`` and ``provenance``.

    Raises
    ------
    IngestError
        The file is damaged, has no request, or the program is not installed.
    """
    binary = find_binary()
    if binary is None:
        raise IngestError(
            path, "the program unruly reads captures, and is not installed", "it on the path",
            "install it, or name it in UNRULY_BINARY",
        )  # fmt: skip
    flags = [word for service in options.services for word in ("--service", service)]
    command = [
        binary, "capture", path, "--out", str(writer.root), "--run", writer.run,
        "--tag", writer.tag, *flags,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=SECONDS_MOST
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise IngestError(path, f"cannot be read: {error}", "a capture", "try again") from error
    if done.returncode:
        said = done.stderr.strip().removeprefix("unruly: ").removeprefix(f"{path}: ")
        what, _, hint = said.partition("; hint: ")
        if any(said.startswith(f"{service}:") for service in options.services):
            raise ParameterError("--service", f"is {what}", "the address of a service", hint)
        raise IngestError(
            path, what, "a capture of packets with their headers", hint or "capture it again"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    cell = writer.cell({}, path)
    started, ended = _extent(writer.root / "turnarounds")
    return {
        **found,
        "cell": cell,
        "started_ns": started,
        "ended_ns": ended,
        "missing": [UNPLANNED, *found["missing"]],
        "provenance": _provenance(path, found["rows"], cell),
    }


def _extent(folder: Path) -> tuple[int, int]:
    """When the first turnaround began and the last one ended."""
    first, last = [], []
    for path in sorted(folder.glob("*.parquet")):
        times = pq.read_table(path, columns=["started_ns", "ended_ns"])
        first.append(int(pc.min(times["started_ns"]).as_py()))
        last.append(int(pc.max(times["ended_ns"]).as_py()))
    return min(first), max(last)


def _provenance(path: str, rows: int, cell: str) -> dict[str, Any]:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while part := file.read(PART_BYTES):
            digest.update(part)
    return {
        "name": Path(path).name,
        "cell": cell,
        "bytes": Path(path).stat().st_size,
        "sha256": digest.hexdigest(),
        "format": "packets",
        "unit": "",
        "lines": rows,
        "refused": 0,
        "first_refused": [],
    }
