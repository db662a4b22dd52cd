"""Numbers as a person reads them: three significant digits, a unit, and a dash for what is absent.

Every function takes ``None``, ``NaN`` and infinities and returns the en dash for them: an absent
value is never shown as 0.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

DASH = "\u2013"
TIMES = "\u00d7"
MINUS = "\u2212"
NBSP = "\u00a0"
HYPHEN = "\u2011"
"""A hyphen at which no line breaks."""
THIN = "\u202f"
NS_PER_S = 1e9

_LATENCY_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SPAN_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def is_absent(value: float | None) -> bool:
    """Return whether there is no finite number to show."""
    return value is None or not math.isfinite(value)


def significant(value: float | None, digits: int = 3) -> str:
    """Return the number with so many significant digits, and no exponent.

    Examples
    --------
    >>> significant(0.012345), significant(41234.0), significant(5.0), significant(None)
    ('0.0123', '41,200', '5', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - exponent)
    if rounded != 0:
        exponent = math.floor(math.log10(abs(rounded)))
    decimals = max(0, digits - 1 - exponent)
    text = f"{rounded:,.{decimals}f}"
    if float(rounded).is_integer() and "." in text:
        text = text.split(".", maxsplit=1)[0]
    return text


def duration(value_ns: float | None, digits: int = 3) -> str:
    r"""Return a latency in nanoseconds with the unit in which it is easiest to read.

    Examples
    --------
    >>> duration(1_234_567), duration(41.0), duration(float("nan"))
    ('1.23\xa0ms', '41\xa0ns', '–')
    """
    if value_ns is None or not math.isfinite(value_ns):
        return DASH
    if value_ns == 0:
        return f"0{NBSP}ns"
    scale, unit = unit_of(value_ns)
    return f"{significant(value_ns / scale, digits)}{NBSP}{unit}"


def unit_of(value_ns: float) -> tuple[float, str]:
    """Return nanoseconds in the unit that `duration` would choose, and its name.

    Examples
    --------
    >>> unit_of(250_000.0), unit_of(0.0)
    ((1000.0, 'µs'), (1.0, 'ns'))
    """
    for scale, unit in _LATENCY_UNITS:
        # 999.6 us is read as 1 ms: the unit is chosen after rounding to three digits.
        if abs(value_ns) >= scale * 0.9995:
            return scale, unit
    return _LATENCY_UNITS[-1]


def span(value_ns: float | None) -> str:
    r"""Return how long a run took: seconds below two minutes, then minutes, hours, days.

    Examples
    --------
    >>> span(90e9), span(3600e9 * 30)
    ('90\xa0s', '30\xa0h')
    """
    if value_ns is None or not math.isfinite(value_ns):
        return DASH
    seconds = value_ns / NS_PER_S
    for scale, unit in _SPAN_UNITS:
        if seconds >= 2 * scale:
            return f"{significant(seconds / scale)}{NBSP}{unit}"
    return duration(value_ns)


def count(value: float | None) -> str:
    """Return a whole number with its thousands apart."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{round(value):,}"


def share(value: float | None) -> str:
    r"""Return a share of one in per cent; a share above 0 never reads as 0 %.

    Examples
    --------
    >>> share(0.0123), share(1.0), share(0.0000001)
    ('1.23\xa0%', '100\xa0%', '<0.001\xa0%')
    """
    if value is None or not math.isfinite(value):
        return DASH
    if 0 < value < 1e-5:
        return f"<0.001{NBSP}%"
    if 0.9995 <= value < 1:
        return f">99.9{NBSP}%"
    return f"{significant(100 * value)}{NBSP}%"


def times(value: float | None) -> str:
    """Return a ratio: ``12.3 ×``."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{significant(value)}{NBSP}{TIMES}"


def coefficient(value: float | None) -> str:
    """Return a correlation with two decimals and a true minus sign."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.2f}".replace("-", MINUS)


def size(value: float | None) -> str:
    """Return a number of bytes."""
    if value is None or not math.isfinite(value):
        return DASH
    for scale, unit in _BYTE_UNITS:
        if abs(value) >= scale:
            return f"{significant(value / scale)}{NBSP}{unit}"
    return f"{count(value)}{NBSP}B"


def moment(value_ns: float | None) -> str:
    """Return a wall clock time, in UTC and to the second."""
    if value_ns is None or not math.isfinite(value_ns):
        return DASH
    return datetime.fromtimestamp(value_ns / NS_PER_S, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def level(value: float) -> str:
    """Return a confidence level: ``95 %``."""
    return f"{significant(100 * value)}{NBSP}%"


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
