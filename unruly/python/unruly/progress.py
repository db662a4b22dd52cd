"""What is being done, said on stderr once it has taken two seconds."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

QUIET_SECONDS = 2.0


@dataclass
class Progress:
    """Reports the current step on stderr once the work has taken two seconds."""

    started: float = field(default_factory=time.monotonic)
    shown: bool = False

    def __call__(self, what: str) -> None:
        """Report the step `what`; the empty string ends the line."""
        interactive = sys.stderr.isatty()
        if not what:
            if self.shown and interactive:
                _clear()
            return
        if time.monotonic() - self.started < QUIET_SECONDS:
            return
        self.shown = True
        if interactive:
            _clear()
        sys.stderr.write(f"unruly: {what} ..." if interactive else f"unruly: {what}\n")
        sys.stderr.flush()


def _clear() -> None:
    """Clear the line, past the filter that removes control characters from the output of verbs."""
    if sys.__stderr__ is not None:
        sys.__stderr__.write("\r\x1b[K")
        sys.__stderr__.flush()
