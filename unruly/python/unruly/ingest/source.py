"""A file to import: opened once, read once, decompressed, as UTF-8, in whole lines.

Nothing is believed: a line may be endless, hold zero bytes, be no UTF-8; a file may be a pipe, be
compressed, be UTF-16. What is left out is counted in ``Source.complaints``.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import os
import stat
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import pyarrow as pa

from unruly.errors import IngestError
from unruly.ingest.complaints import Complaints
from unruly.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK: Final = 1 << 20
HEAD: Final = 1 << 16
LINE_MAX: Final = 1 << 20
STDIN: Final = "-"
DECOMPRESSORS: Final[tuple[tuple[bytes, Callable[[BinaryIO], BinaryIO]], ...]] = (
    (b"\x1f\x8b", lambda file: cast("BinaryIO", gzip.GzipFile(fileobj=file))),
    (b"\x28\xb5\x2f\xfd", lambda file: pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")),
    (b"BZh", lambda file: cast("BinaryIO", bz2.BZ2File(file))),
    (b"\xfd7zXZ\x00", lambda file: cast("BinaryIO", lzma.LZMAFile(file))),  # noqa: SIM115
)
BROKEN: Final = (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException)
ENCODINGS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, by which its format is recognised; never its name."""

    head: bytes
    """Up to 64 KiB, as UTF-8 without byte-order mark."""
    whole: bool
    """The head is the whole file."""

    @property
    def text(self) -> str:
        """The head as text, with line ends as on Unix."""
        return self.head.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")

    @property
    def lines(self) -> list[str]:
        """Whole lines of the head (the last one is cut off, unless the file ends there)."""
        lines = self.text.split("\n")
        return lines[:-1] if not self.whole or not lines[-1] else lines

    @property
    def binary(self) -> bool:
        """Zero bytes or many control characters: no text in any encoding known here."""
        controls = sum(self.head.count(byte) for byte in range(32) if byte not in (9, 10, 12, 13))
        undecodable = self.text.count("\ufffd")
        # an old 8-bit encoding has letters that are no UTF-8: some, not most
        return controls > 0.05 * len(self.head) or undecodable > 0.3 * len(self.head)


class _Hashing(io.RawIOBase):
    """The raw bytes of a file, counted and hashed as they pass."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size, self.digest = file, 0, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.size += len(data)
        self.digest.update(data)
        return len(data)

    def close(self) -> None:
        if self.file is not sys.stdin.buffer:
            self.file.close()
        super().close()


@dataclass
class Source:
    """One file while it is imported.

    A reader takes `blocks`, `lines` or `stream`, once; it puts into ``missing`` a sentence for
    each thing that its source does not have, and into ``unit`` what its numbers were in.
    """

    name: str
    """Of the file, without its directory."""
    where: str
    """As the user called it, for messages."""
    sample: Sample
    complaints: Complaints
    missing: list[str] = field(default_factory=list)
    unit: str | None = None
    left_out: set[int] = field(default_factory=set)
    """Numbers of the lines that `blocks` left out."""
    later: list[Source] = field(default_factory=list)
    """Later files of the same measurement (`Format.series`)."""
    reencoded: bool = False
    """The file is not UTF-8 and was made so: what it says of its encoding is no longer true."""
    _raw: _Hashing = field(kw_only=True, repr=False)
    _file: BinaryIO = field(kw_only=True, repr=False)
    """Held, since a reader that is collected closes what it reads."""
    _chunks: Iterator[bytes] = field(kw_only=True, repr=False)

    @property
    def size(self) -> int:
        """Bytes read so far, as they are on disk."""
        return self._raw.size

    @property
    def sha256(self) -> str:
        """Of the bytes read so far, as they are on disk."""
        return self._raw.digest.hexdigest()

    def lacks(self, sentence: str) -> None:
        """Note once what the source does not have."""
        if sentence not in self.missing:
            self.missing.append(sentence)

    def chunks(self) -> Iterator[bytes]:
        """The decompressed bytes as UTF-8, as they come.

        Raises
        ------
        IngestError
            When the file cannot be read to its end.
        """
        try:
            yield from self._chunks
        except BROKEN as error:
            raise _unreadable(self.where, error) from error

    def stream(self) -> BinaryIO:
        """The same as a file, for parsers that want one."""
        return cast("BinaryIO", io.BufferedReader(_Stream(self.chunks()), CHUNK))

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines, each block with the number of its first line; line ends are those of Unix.

        Lines over 1 MiB and lines with zero bytes are refused; bytes that are no UTF-8 become
        the replacement character.
        """
        number, held, skipping = 1, b"", False
        lone = b"\n" not in self.sample.head and b"\r" in self.sample.head
        for chunk in self.chunks():
            data = chunk.replace(b"\r", b"\n") if lone else chunk
            if skipping:
                end = data.find(b"\n")
                if end < 0:
                    continue
                data, skipping = data[end + 1 :], False
            held += data
            cut = held.rfind(b"\n") + 1
            if cut:
                block, held = held[:cut], held[cut:]
                clean = self._clean(number, block)
                yield number, clean
                number += block.count(b"\n")
            if len(held) > LINE_MAX:
                self.leave_out(number, f"longer than {LINE_MAX:,} bytes")
                number, held, skipping = number + 1, b"", True
        if held:
            yield number, self._clean(number, held)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Lines that are not blank, with their numbers."""
        for first, block in self.blocks():
            number = first
            for line in block.decode("utf-8").split("\n"):
                while number in self.left_out:
                    number += 1
                if line and not line.isspace():
                    yield number, line
                number += 1

    def drain(self) -> None:
        """Read what a reader left, so that size and hash are those of the whole file."""
        for _ in self.chunks():
            pass
        try:
            while self._raw.read(CHUNK):
                pass
        except OSError as error:
            raise _unreadable(self.where, error) from error

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _clean(self, number: int, block: bytes) -> bytes:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if b"\0" in block:
            kept = []
            for place, line in enumerate(block.split(b"\n")):
                if b"\0" in line:
                    self.leave_out(number + place, "holds zero bytes")
                else:
                    kept.append(line)
            block = b"\n".join(kept)
        if not block.isascii():
            try:
                block.decode("utf-8")
            except UnicodeDecodeError:
                self.lacks("some bytes of the file are no UTF-8 and were replaced")
                block = block.decode("utf-8", "replace").encode()
        return block

    def leave_out(self, line: int, reason: str) -> None:
        """Refuse a line that no parser sees."""
        self.left_out.add(line)
        self.complaints.lines += 1
        self.complaints.refuse(line, reason)


class _Stream(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.held = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self.held:
            found = next(self.chunks, None)
            if found is None:
                return 0
            self.held = found
        part, self.held = self.held[: len(buffer)], self.held[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def open_source(path: str, name: str | None = None) -> Source:
    """Open ``path`` (``-``: standard input) and look at its beginning.

    Raises
    ------
    IngestError
        When it is a directory, is not there, or cannot be read or decompressed.
    """
    where = "standard input" if path == STDIN else path
    try:
        raw = _Hashing(sys.stdin.buffer if path == STDIN else _opened(path))
        file: BinaryIO = cast("BinaryIO", io.BufferedReader(raw, CHUNK))
        magic = cast("io.BufferedReader", file).peek(8)[:8]
        for start, decompress in DECOMPRESSORS:
            if magic.startswith(start):
                file = decompress(file)
        head = _read_fully(file, HEAD)
    except BROKEN as error:
        raise _unreadable(where, error) from error
    if magic.startswith(b"PK\x03\x04"):
        raw.close()
        raise _zipped(where, head)
    encoding, mark = _encoding(head)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding != "utf-8" else None

    def chunks() -> Iterator[bytes]:
        data = head[mark:]
        while data:
            yield decoder.decode(data).encode() if decoder else data
            data = file.read(CHUNK)

    text = head[mark:]
    if decoder:
        text = text[: len(text) // 2 * 2].decode(encoding, "replace").encode()
    called = name or ("stdin" if path == STDIN else Path(path).name)
    return Source(
        plain(called.encode("utf-8", "replace").decode()),  # a name may be no UTF-8
        where,
        Sample(text, len(head) < HEAD),
        Complaints(where),
        reencoded=decoder is not None,
        _raw=raw,
        _file=file,
        _chunks=chunks(),
    )


def _zipped(where: str, head: bytes) -> IngestError:
    """Return the error of a zip archive; spreadsheets are archives too."""
    # the names of the parts stand in the archive as they are
    is_sheet = b"xl/" in head or b"[Content_Types].xml" in head
    if is_sheet or b"opendocument.spreadsheet" in head:
        hint = "save the sheet as CSV, and import that"
        return IngestError(where, "is a spreadsheet", "one file of text", hint)
    return IngestError(where, "is a zip archive", "one file of text", "unzip it first")


def _opened(path: str) -> BinaryIO:
    file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - the source closes it
    if stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
        raise IsADirectoryError(path)
    return cast("BinaryIO", file)


def _read_fully(file: BinaryIO, size: int) -> bytes:
    parts, left = [], size
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _encoding(head: bytes) -> tuple[str, int]:
    """Name the encoding, and how many bytes its mark takes."""
    for mark, encoding in ENCODINGS:
        if head.startswith(mark):
            return encoding, len(mark)
    even, odd, half = head[::2].count(0), head[1::2].count(0), len(head) // 4
    if odd > half and even == 0:
        return "utf-16-le", 0
    if even > half and odd == 0:
        return "utf-16-be", 0
    return "utf-8", 0


def _unreadable(where: str, error: BaseException) -> IngestError:
    if isinstance(error, FileNotFoundError):
        return IngestError(where, "no such file", "a file to import", "check the path")
    if isinstance(error, IsADirectoryError):
        return IngestError(where, "is a directory", "files", f"name its files: {where}/*")
    if isinstance(error, PermissionError):
        return IngestError(where, "may not be read", "a file that you may read", "chmod +r")
    said = str(error).split("\n")[0] or type(error).__name__
    return IngestError(
        where, f"cannot be read: {said}", "a whole file", "copy it again: it may be cut off"
    )
