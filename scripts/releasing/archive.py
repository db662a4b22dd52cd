"""Write tar archives whose bytes follow from their files alone."""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

READ = 0o644
RUN = 0o755


@dataclass(frozen=True)
class File:
    """A file of an archive, or a directory if its path ends with a slash."""

    data: bytes = b""
    mode: int = READ


def tar(files: Mapping[str, File], time_s: int) -> bytes:
    """Return a tar archive of files, sorted by their paths and owned by root.

    Parameters
    ----------
    files : mapping of str to File
        The files by their paths in the archive.
    time_s : int
        When every file was changed, in seconds since 1970.

    Returns
    -------
    bytes
        The archive: the same bytes for the same arguments.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(path.rstrip("/"))
            entry.type = tarfile.DIRTYPE if path.endswith("/") else tarfile.REGTYPE
            entry.mode, entry.size, entry.mtime = file.mode, len(file.data), time_s
            archive.addfile(entry, io.BytesIO(file.data))
    return buffer.getvalue()


def gzipped(data: bytes) -> bytes:
    """Return compressed data, without the time of the compression."""
    return gzip.compress(data, mtime=0)
