"""The door of the command line: how every verb ends.

A verb ends with 0, with 1 when it has found something, or with 2 and one line on standard error. An
error that nobody foresaw is 2 as well; its traceback goes into a file, whose name is in the line.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from unruly.errors import UnrulyError
from unruly.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR_EXIT: Final = 2
DUCKDB_MEMORY_ERROR: Final = "OutOfMemoryException"
"""By its name: to import the library here would take longer than most verbs."""
STOPPED_EXIT: Final = 130
"""As shells count: 128 and the number of the signal of Ctrl-C."""


def enter(verb: Callable[[], int]) -> int:
    """Run a verb; return its exit code, whatever happens.

    Parameters
    ----------
    verb : callable
        Does the work and returns 0 or 1.

    Returns
    -------
    int
        What it returned, also when nobody reads the output; 2 after any error, 130 after Ctrl-C.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    kept, errors = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Guarded(kept), _Guarded(errors)
    show = warnings.showwarning
    warnings.showwarning = _without_deprecations(show)
    try:
        code = verb()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _ended("stopped", STOPPED_EXIT)
    except UnrulyError as error:
        return _ended(str(error))
    except Exception as error:  # noqa: BLE001 - the one place where everything ends
        if isinstance(error, MemoryError) or type(error).__name__ == DUCKDB_MEMORY_ERROR:
            hint = "close other programs, or bound it with --memory 1GB"
            return _ended(f"out of memory; hint: {hint}")
        return _ended(_unforeseen(error))
    finally:
        sys.stdout, sys.stderr = kept, errors
        warnings.showwarning = show
    return code


def _without_deprecations(show: Callable[..., None]) -> Callable[..., None]:
    """Return ``show`` for warnings that concern a user.

    The default filters hide what libraries say to each other. A library that changes the filters
    in one thread shows it in all.
    """

    def shown(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if not issubclass(category, (DeprecationWarning, PendingDeprecationWarning)):
            show(message, category, *where)

    return shown


def _ended(told: str, code: int = ERROR_EXIT) -> int:
    """Say why on one line; if even that is impossible the code has to do."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"unruly: {' '.join(told.split())}\n")
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        # writing is what failed, and the interpreter would try it again when it ends
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _unforeseen(error: Exception) -> str:
    said = str(error).strip().split("\n", maxsplit=1)[0] or "no message"
    told = f"{type(error).__name__}: {said}"
    if isinstance(error, OSError) and error.strerror:
        name = os.fsdecode(error.filename) if error.filename else "output"
        told = f"{name}: {error.strerror}"
    try:
        handle, path = tempfile.mkstemp(prefix="unruly-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
            traceback.print_exception(error, file=log)
    except OSError:
        return f"{told}; hint: is the disk full?"
    return f"{told}; hint: the whole error is in {path}"


class _Guarded(io.TextIOBase):
    """A stream that lets no control characters through, and any name, whatever its encoding."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        try:
            self._stream.write(printable(text))
        except BrokenPipeError:
            self._let_go()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._let_go()

    def _let_go(self) -> None:
        """Whoever read has enough. The verb goes on: its exit code counts."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(getattr(self._stream, "encoding", "utf-8"))
