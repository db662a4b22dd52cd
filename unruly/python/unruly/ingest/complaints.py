"""Lines of a file that could not be read, and when they are too many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from unruly.errors import IngestError

REFUSED_SHARE_MAX: Final = 0.01
KEPT: Final = 5
HOPELESS_LINES: Final = 100_000
"""The import stops early once it has read this many lines and refused more than half of them."""


@dataclass
class Complaints:
    """Lines that could not be read: counted, the first few kept.

    A reader adds every data line it has seen to ``lines``, and calls `refuse` for those among
    them that it left out.
    """

    where: str
    lines: int = 0
    refused: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, line: int, reason: str, times: int = 1) -> None:
        """Count a line that was left out, with its number (from 1) and why."""
        self.refused += times
        if len(self.first) < KEPT:
            self.first.append((line, reason))

    def check(self, *, ended: bool) -> None:
        """Give up when too much was left out: over 1 % at the end, over half on the way.

        Raises
        ------
        IngestError
            With the first lines that were refused.
        """
        limit = REFUSED_SHARE_MAX if ended else 0.5
        early = not ended and self.lines < HOPELESS_LINES
        if early or self.refused <= limit * self.lines:
            return
        shown = "; ".join(f"line {line}: {reason}" for line, reason in self.first)
        raise IngestError(
            self.where,
            f"{self.refused:,} of {self.lines:,} data lines cannot be read ({shown})",
            f"at most {REFUSED_SHARE_MAX:.0%} of them",
            "mend the file, or name the columns, the unit or --format",
        )
