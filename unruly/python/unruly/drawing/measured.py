"""What was measured: the heading of a page, its sentence, and the command that repeats the run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unruly.drawing import format

if TYPE_CHECKING:
    from unruly.run import Run


@dataclass(frozen=True)
class Measured:
    """What one run measured.

    Attributes
    ----------
    name : str
        The address that was driven, or the group; the run's name where the manifest has neither.
    sentence : str
        The load and the time; empty in older runs.
    command : str
        The command line that repeats it; empty in an import and in older runs.
    started : str
        The time of day at which the run began; empty where it is not known.
    """

    name: str
    sentence: str
    command: str
    started: str

    @classmethod
    def of(cls, run: Run) -> Measured:
        """Read it from a manifest."""
        name, _, rest = (run.target or "").partition(": ")
        # a sentence begins with a capital; a URL or the name of a service is as it was typed
        name = format.capital(name) if " " in name else name
        started = format.moment(run.manifest.get("started_ns"))
        return cls(
            (name or run.name).encode("utf-8", "replace").decode("utf-8"),
            f"{format.capital(rest)}." if rest else "",
            shlex.join(run.command or ()),
            "" if started == format.DASH else started,
        )
