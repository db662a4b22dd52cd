"""The JavaScript that draws the figures of a page: made once for each version, then read from disk.

Making it takes longer than all other work on a page of a short run. The bundle runs in the reader's
browser, so it is read only from a folder into which no other user may write.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

SNIPPET: Final = "window.vegaEmbed = vegaEmbed;"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@cache
def prepare() -> Future[str]:
    """Begin to read or to make the bundle, once in a process; native code makes it on a thread.

    Whoever analyses a run before its page is written calls this first: engines leave time for it.
    """
    return ThreadPoolExecutor(1).submit(bundle)


def bundle() -> str:
    """Return the bundle of the installed version of vl-convert."""
    folder = _folder()
    if folder is None:
        return _made()
    file = folder / f"vega-{version('vl-convert-python')}.js"
    kept = _kept(file)
    if kept is None:
        kept = _made()
        _keep(file, kept)
    return kept


def _made() -> str:
    import vl_convert  # noqa: PLC0415 - the library is large, and mostly the bundle is there

    made: str = vl_convert.javascript_bundle(SNIPPET)
    # An end tag inside a string of the bundle would end the element that holds it.
    return made.replace("</script", "<\\/script")


def _folder() -> Path | None:
    """Return the folder of this user's cache; None if there is none, or if others may write there.

    The runner keeps services in the same folder.
    """
    named = (os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))
    cached, home = (Path(it) if it and Path(it).is_absolute() else None for it in named)
    place = cached or (home and home / ".cache")
    if place is None:
        return None
    folder = place / "unruly"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    ours = found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS_WRITE
    return folder if ours else None


def _kept(file: Path) -> str | None:
    """Return the text of a whole file: its first line is the checksum of the rest."""
    with suppress(OSError, ValueError):
        checksum, _, text = file.read_bytes().decode("utf-8").partition("\n")
        if checksum == _checksum(text):
            return text
    return None


def _keep(file: Path, text: str) -> None:
    """Write the file as a whole; a folder that cannot be written costs time only."""
    with suppress(OSError):
        handle, half = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        try:
            with os.fdopen(handle, "wb") as written:
                written.write(f"{_checksum(text)}\n{text}".encode())
            Path(half).replace(file)
        except OSError:
            Path(half).unlink(missing_ok=True)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
