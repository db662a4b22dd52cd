"""Numbers and names in the report: those of `unruly.quantity`, with their units kept on the line.

Between a number and its unit stands a space that does not break. An absent value is an en dash.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from unruly import quantity
from unruly.quantity import (
    DASH,
    MINUS,
    NS_PER_S,
    TIMES,
    coefficient,
    count,
    is_absent,
    significant,
    unit_of,
)

__all__ = [
    "DASH", "MINUS", "NBSP", "NS_PER_S", "THIN", "TIMES", "capital", "coefficient", "count",
    "duration", "is_absent", "level", "listing", "moment", "plural", "quoted", "share",
    "significant", "size", "span", "times", "unit_of",
]  # fmt: skip

NBSP = "\u00a0"
HYPHEN = "\u2011"
"""A hyphen at which no line breaks."""
THIN = "\u202f"


def duration(value_ns: float | None, digits: int = quantity.DIGITS) -> str:
    """Return a latency or a length of time: ``1.23 ms``."""
    return _glued(quantity.duration(value_ns, digits))


span = duration


def share(value: float | None) -> str:
    """Return a share of one in per cent: ``1.23 %``."""
    return _glued(quantity.percent(value))


level = share


def times(value: float | None) -> str:
    """Return a ratio: ``12.3 ×``."""
    return _glued(quantity.times(value))


def size(value: float | None) -> str:
    """Return a number of bytes: ``2.5 GB``."""
    return _glued(quantity.size(value))


def _glued(text: str) -> str:
    return text.replace(" ", NBSP)


def moment(value_ns: float | None) -> str:
    """Return a wall clock time, in UTC and to the second."""
    if value_ns is None or not math.isfinite(value_ns):
        return DASH
    return datetime.fromtimestamp(value_ns / NS_PER_S, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def plural(number: int, noun: str, many: str = "") -> str:
    """Return the number and its noun: ``1 request``, ``2 requests``."""
    return f"{count(number)} {noun if number == 1 else many or noun + 's'}"


def listing(words: list[str], most: int = 5) -> str:
    """Return words as a person enumerates them: ``a, b and 3 more``."""
    if len(words) > most:
        return ", ".join(words[: most - 1]) + f" and {len(words) - most + 1} more"
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1]


def quoted(name: str) -> str:
    """Return a name from the run in quotation marks, so that it is not read as a word of ours."""
    return f"“{name}”"


def capital(sentence: str) -> str:
    """Return the sentence with its first letter large, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]
