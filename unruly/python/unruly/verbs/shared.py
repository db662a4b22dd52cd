"""What several verbs share: the engine, the terminal, files that are written."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING, Any

from unruly.errors import UnrulyError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from unruly.base.analysis import Analysis
    from unruly.base.target import Target
    from unruly.run import Run

FINE_EXIT, FINDING_EXIT = 0, 1
READING = (
    "value", "unit", "time", "time_unit", "time_is", "op", "status", "failed_if", "regex",
    "log_format", "format",
)  # fmt: skip
"""Options that say how the files of other tools are read."""


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that say how the files of other tools are read."""
    return {name: getattr(options, name) for name in READING}


def target_of(options: argparse.Namespace) -> Target | None:
    """The target that was asked for."""
    from unruly.base.target import parse_target  # noqa: PLC0415 - --help stays quick

    return parse_target(options.target) if options.target else None


def open_for(directory: str | os.PathLike[str], options: argparse.Namespace) -> Run:
    """Open a run with the engine that was asked for."""
    from unruly import open_run  # noqa: PLC0415 - --help stays quick

    return open_run(directory, engine=options.engine, memory=options.memory)


def terminal(asked: int | None) -> tuple[int, bool]:
    """Columns, and whether to colour."""
    is_terminal = sys.stdout.isatty()
    width = asked or (shutil.get_terminal_size((100, 40)).columns if is_terminal else 100)
    return width, is_terminal and "NO_COLOR" not in os.environ


def finding_exit(analysis: Analysis) -> int:
    """Return the exit code of a run whose verdict was shown: 1 when it did not go well, else 0.

    A run did not go well when more than 1 % of its requests failed, when one of its targets is
    broken, or when something spoils it.
    """
    broken = any(it.outcome == "broken" for it in analysis.slos)
    fine = analysis.worked.ok and analysis.trustworthy and not broken
    return FINE_EXIT if fine else FINDING_EXIT


def print_slos(analysis: Analysis, width: int) -> None:
    """Print what became of the targets of a run, if it has any."""
    from unruly.output.slo import slo_text  # noqa: PLC0415 - --help stays quick

    if analysis.slos:
        print(slo_text(analysis.slos, width=width), flush=True)


def print_json(document: dict[str, Any]) -> None:
    """Print a document as JSON that every reader takes: no NaN, no infinity."""
    print(json.dumps(document, indent=1, allow_nan=False))


def write_text(path: Path, text: str) -> None:
    """Write a file, or say why not."""

    def write() -> Path:
        path.write_text(text, encoding="utf-8")
        return path

    written(path, write)


def written(output: Path, write: Callable[[], Path]) -> Path:
    """Return what ``write`` returns, with an error of the file system in our words.

    Only a new file is written, or a regular one: a device, a pipe or a link stays what it is.

    Raises
    ------
    UnrulyError
        When ``output`` is something else, or cannot be written.
    """
    _refuse_special(output)
    try:
        return write()
    except OSError as error:
        raise UnrulyError(
            output,
            f"cannot be written: {error.strerror}",
            "a file in a directory that exists",
            "choose another with -o",
        ) from error


def _refuse_special(output: Path) -> None:
    try:
        mode = output.lstat().st_mode
    except OSError:
        # there is no such file, or writing it will report the error
        return
    # writing to a directory reports its own error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a link" if stat.S_ISLNK(mode) else "a device or a pipe"
        raise UnrulyError(output, f"is {kind}", "a new or a regular file", "name another with -o")
