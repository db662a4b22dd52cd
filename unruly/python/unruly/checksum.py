"""The checksum of a segment, which says that it is as it was written.

CRC-32 (the one of zlib) over the whole file, in which the eight digits of the checksum itself are
zeros. It stands in the footer as ``unruly.checksum``, so a segment that is moved keeps it.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

KEY = "unruly.checksum"
UNKNOWN = "crc32:00000000"
"""What stands there until it is known."""
DIGITS = 8
CHECKSUM = re.compile(rb"crc32:([0-9a-f]{8})")
ENDING_BYTES = 8
"""A Parquet file ends with the length of its footer and a mark."""
PIECE_BYTES = 1 << 20
SEGMENTS_MAX = 4096


def seal(path: Path) -> None:
    """Write the checksum into the footer of a segment that has ``unruly.checksum`` in it.

    Parameters
    ----------
    path : Path
        A whole Parquet file whose footer has `UNKNOWN`, or the checksum of what it was.

    Raises
    ------
    ValueError
        When its footer has no place for it.
    OSError
        When it cannot be read or written.
    """
    with path.open("r+b") as file:
        place, _ = _place(file)
        if place is None:
            raise ValueError(f"{path}: its footer has no {KEY}")
        checksum = _sum(file, place)
        file.seek(place)
        file.write(b"%08x" % checksum)


def is_whole(path: Path) -> bool:
    """Whether a segment is as it was written, or is of a time before checksums.

    Reads all of it. Not a protection against someone who changes it and its checksum.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    state = path.stat()
    return _is_whole(path, state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=SEGMENTS_MAX)
def _is_whole(path: Path, _size: int, _mtime_ns: int, _inode: int) -> bool:
    with path.open("rb") as file:
        place, named = _place(file)
        if place is None:
            return not named
        file.seek(place)
        recorded = file.read(DIGITS)
        return named and recorded == b"%08x" % _sum(file, place)


def _place(file: BinaryIO) -> tuple[int | None, bool]:
    """Return where the digits begin, and whether the footer names a checksum."""
    end = file.seek(0, 2)
    file.seek(max(end - ENDING_BYTES, 0))
    length = int.from_bytes(file.read(4), "little")
    begin = max(end - ENDING_BYTES - length, 0)
    file.seek(begin)
    footer = file.read(length)
    found = CHECKSUM.search(footer)
    return None if found is None else begin + found.start(1), KEY.encode() in footer


def _sum(file: BinaryIO, place: int) -> int:
    """Return the CRC-32 of the file with zeros for the digits at ``place``."""
    file.seek(0)
    checksum, at = 0, 0
    while piece := file.read(PIECE_BYTES):
        first, last = max(place - at, 0), min(place + DIGITS - at, len(piece))
        if first < last:
            piece = piece[:first] + b"0" * (last - first) + piece[last:]
        checksum = zlib.crc32(piece, checksum)
        at += len(piece)
    return checksum
