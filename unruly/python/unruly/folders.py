"""Folders of runs, on a disk or in an object store, with their small files.

One question about a folder of an object store is one request of some milliseconds, so folders are
asked beside one another.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from unruly.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AT_ONCE: Final = 16
"""Requests to an object store at the same time."""
Found = TypeVar("Found")


@dataclass(frozen=True)
class Inside:
    """The content of a folder: its files with their bytes, and the folders in it."""

    files: dict[str, int]
    folders: tuple[Folder, ...]


class Folder(Protocol):
    """A folder of runs."""

    @property
    def name(self) -> str:
        """Its own name, without those above it."""

    @property
    def place(self) -> str:
        """What it is known by, however it was named."""

    @property
    def may_lack(self) -> bool:
        """Whether a folder in it that cannot be read is a stranger's, or was removed meanwhile."""

    def inside(self) -> Inside:
        """Look into it.

        Raises
        ------
        FileNotFoundError
            When there is no such folder.
        OSError
            When it cannot be read.
        """

    def read(self, file: str) -> bytes:
        """Return the content of a file in it.

        Raises
        ------
        OSError
            When it cannot be read.
        """

    def together(self, ask: Callable[[Any], Found], what: Sequence[Any]) -> list[Found]:
        """Ask the same of several folders or runs, beside one another if that helps."""


def folder_of(place: str | Path) -> Folder:
    """Return the folder at a path, or at an address such as ``s3://BUCKET/FOLDER``.

    Raises
    ------
    ParameterError
        When the address is of no object store, or is not whole.
    """
    if isinstance(place, str) and "://" in place:
        return _in_store(place)
    return OnDisk(Path(place))


@dataclass(frozen=True)
class OnDisk:
    """A folder of this machine. What it links to is not part of it."""

    path: Path

    def __str__(self) -> str:
        """Return its path as it was given."""
        return str(self.path)

    @property
    def name(self) -> str:
        """Its own name."""
        return self.path.name

    @property
    def place(self) -> str:
        """Its path without links."""
        return os.path.realpath(self.path)

    @property
    def may_lack(self) -> bool:
        """Folders of others, and mounts that are gone, are none of runs."""
        return True

    def inside(self) -> Inside:
        """Look into it."""
        files, folders = {}, []
        with os.scandir(self.path) as entries:
            for it in entries:
                if it.is_dir(follow_symlinks=False):
                    folders.append(OnDisk(self.path / it.name))
                elif it.is_file():
                    files[it.name] = it.stat().st_size
        return Inside(files, tuple(sorted(folders, key=str)))

    def read(self, file: str) -> bytes:
        """Return the content of a file in it."""
        return (self.path / file).read_bytes()

    def together(self, ask: Callable[[Any], Found], what: Sequence[Any]) -> list[Found]:
        """Ask one after the other: a disk answers at once."""
        return [ask(it) for it in what]


@dataclass(frozen=True)
class InStore:
    """A folder of an object store, as pyarrow reads it (S3 and its like, Google Cloud, Azure)."""

    store: Any
    path: str
    shown: str
    """Its address without credentials and options."""
    options: str = ""
    """Such as the server."""

    def __str__(self) -> str:
        """Return its address, without credentials."""
        return self.shown

    @property
    def name(self) -> str:
        """Its own name."""
        return self.path.rpartition("/")[2]

    @property
    def place(self) -> str:
        """Its address, with the options."""
        return f"{self.shown}?{self.options}"

    @property
    def may_lack(self) -> bool:
        """Where some cannot be read none can, and a list of the others would look whole."""
        return False

    def inside(self) -> Inside:
        """Look into it, in one request."""
        from pyarrow import fs  # noqa: PLC0415 - a fifth of a second that a disk does not need

        files, folders = {}, []
        for it in self.store.get_file_info(fs.FileSelector(self.path)):
            if it.type == fs.FileType.Directory:
                shown = f"{self.shown.rstrip('/')}/{it.base_name}"
                folders.append(InStore(self.store, it.path, shown, self.options))
            elif it.type == fs.FileType.File:
                files[it.base_name] = int(it.size)
        return Inside(files, tuple(sorted(folders, key=str)))

    def read(self, file: str) -> bytes:
        """Return the content of a file in it."""
        with self.store.open_input_stream(f"{self.path}/{file}") as stream:
            content: bytes = stream.read()
        return content

    def together(self, ask: Callable[[Any], Found], what: Sequence[Any]) -> list[Found]:
        """Ask several beside one another."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(ask, what))


def _in_store(address: str) -> InStore:
    from pyarrow import ArrowException, fs  # noqa: PLC0415

    whole = urlsplit(address)
    shown = f"{whole.scheme}://{whole.netloc.rpartition('@')[2]}{whole.path}".rstrip("/")
    try:
        store, path = fs.FileSystem.from_uri(address)
    except (ArrowException, OSError, ValueError) as error:
        raise unreachable(shown, error) from None
    if not path.strip("/"):
        raise ParameterError(
            "directory", f"{shown} names no bucket", "a folder of runs", "s3://BUCKET/FOLDER"
        )
    return InStore(store, path.rstrip("/"), shown, whole.query)


def unreachable(shown: str, error: BaseException) -> ParameterError:
    """Return the error of a folder that cannot be read."""
    reason = str(error).partition("\n")[0].rstrip(". ")
    return ParameterError(
        "directory", f"{shown} cannot be read: {reason}", "a directory of runs, or s3://BUCKET/FOLDER",
        "check the address, and the credentials in the environment",
    )  # fmt: skip
