"""Numbers with units: the only place that writes them for people, and that reads those of plans.

Three significant digits, no trailing zeros, and the unit in which the number lies between 1 and
1,000. An absent value (``None``, ``NaN``, an infinity) is an en dash, never 0. Terminal, report and
JSON sentences all call these functions, so that one latency looks the same everywhere.
"""

from __future__ import annotations

import math
import re
from typing import Final

DASH: Final = "\u2013"
TIMES: Final = "\u00d7"
MINUS: Final = "\u2212"
DIGITS: Final = 3
ROUNDED_UP: Final = 0.9995
"""999.6 us is read as 1 ms: the unit is chosen after rounding to three digits."""
NS_PER_S: Final = 1e9
TINY: Final = 1e-5
P_SHOWN: Final = 0.001
_SHORT: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_LONG: Final = ((86_400e9, "d"), (3_600e9, "h"), (60e9, "min"))
_PLAN_DURATIONS: Final = {
    "d": 86_400 * 10**9, "h": 3_600 * 10**9, "min": 60 * 10**9, "s": 10**9, "ms": 10**6,
    "us": 10**3, "ns": 1,
}  # fmt: skip
_PLAN_BANDWIDTHS: Final = {"Gbit/s": 10**9, "Mbit/s": 10**6, "kbit/s": 10**3, "bit/s": 1}
_PLAN_NUMBER: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?\s*([A-Za-z/]*)\s*")
_WHOLE_MOST: Final = (1 << 64) - 1
_BYTES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_BITS: Final = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))


def is_absent(value: float | None) -> bool:
    """Return whether there is no finite number to show.

    Examples
    --------
    >>> is_absent(None), is_absent(float("nan")), is_absent(0.0)
    (True, True, False)
    """
    return value is None or not math.isfinite(value)


def significant(value: float | None, digits: int = DIGITS) -> str:
    """Return a number with `digits` significant digits, no exponent and no trailing zeros.

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
    text = f"{rounded:,.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(ns: float | None, digits: int = DIGITS) -> str:
    """Return a latency or a length of time, given in nanoseconds.

    From two minutes on it is in minutes, hours or days.

    Examples
    --------
    >>> duration(421_337.0), duration(62e6), duration(5.6e9), duration(6e11), duration(None)
    ('421 µs', '62 ms', '5.6 s', '10 min', '–')
    """
    if ns is None or not math.isfinite(ns):
        return DASH
    scale, unit = next((it for it in _LONG if abs(ns) >= 2 * it[0]), unit_of(ns))
    return f"{significant(ns / scale, digits)} {unit}"


def as_option(ns: float) -> str:
    """Return a duration as a plan and the options of a command take it, without a space.

    Examples
    --------
    >>> as_option(30e9), as_option(300e6), as_option(5400e9)
    ('30s', '300ms', '5400s')
    """
    scale, unit = next((it for it in _SHORT[:2] if ns >= it[0]), _SHORT[2])
    return f"{ns / scale:.6g}{unit.replace('µ', 'u')}"


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration, written as a plan writes it.

    The units are ns, us, ms, s, min, h and d; a number without a unit is in seconds. The grammar is
    that of the runner, so there is no ``m``, no sign and no exponent.

    Raises
    ------
    ValueError
        If the text is no duration, or not a whole number of nanoseconds below 2**64.

    Examples
    --------
    >>> parse_duration("250us"), parse_duration("1.5h"), parse_duration("5 min")
    (250000, 5400000000000, 300000000000)
    >>> parse_duration("0.1")
    100000000
    """
    return _parse(text, "duration", _PLAN_DURATIONS, "s")


def parse_bandwidth(text: str) -> int:
    """Return the bit/s of a bandwidth, written as a plan writes it; the unit is required.

    Raises
    ------
    ValueError
        If the text is no bandwidth, or not a whole number of bit/s below 2**64.

    Examples
    --------
    >>> parse_bandwidth("1Gbit/s"), parse_bandwidth("0.5Mbit/s")
    (1000000000, 500000)
    """
    return _parse(text, "bandwidth", _PLAN_BANDWIDTHS, "")


def _parse(text: str, quantity: str, units: dict[str, int], bare: str) -> int:
    found = _PLAN_NUMBER.fullmatch(text)
    scale = units.get(found[3] or bare) if found else None
    if found is None or scale is None:
        raise ValueError(f"{text!r} is not a {quantity} ({', '.join(reversed(units))})")
    part = found[2] or ""
    divisor: int = 10 ** len(part)
    value, rest = divmod(int(found[1] + part) * scale, divisor)
    if rest or value > _WHOLE_MOST:
        smallest = list(units)[-1]
        raise ValueError(f"{text!r} is not a whole number of {smallest} below 2**64")
    return value


def unit_of(ns: float) -> tuple[float, str]:
    """Return the unit, up to seconds, that `duration` chooses: its length in ns, and its name.

    Examples
    --------
    >>> unit_of(250_000.0), unit_of(0.0)
    ((1000.0, 'µs'), (1000000000.0, 's'))
    """
    return _unit(ns, _SHORT) if ns else _SHORT[0]


def count(value: float | None) -> str:
    """Return a whole number with its thousands apart.

    Examples
    --------
    >>> count(1234567), count(None)
    ('1,234,567', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{round(value):,}"


def about(number: float) -> str:
    """Return a count that is only roughly known, rounded up.

    Examples
    --------
    >>> about(368887), about(42)
    ('370,000', '42')
    """
    step = 10 ** max(0, len(str(int(number))) - 2)
    return count(-(-int(number) // step) * step)


def percent(share: float | None) -> str:
    """Return a share in per cent; one close to 1 has enough nines to differ from 100 %.

    Examples
    --------
    >>> percent(0.123), percent(0.00042), percent(1.0), percent(0.999987), percent(1e-7)
    ('12.3 %', '0.042 %', '100 %', '99.9987 %', '<0.001 %')
    """
    if share is None or not math.isfinite(share):
        return DASH
    if 0 < share < TINY:
        return "<0.001 %"
    if ROUNDED_UP - 5e-4 < share < 1:
        places = max(1, 1 - math.floor(math.log10(100 * (1 - share))))
        return f"{100 * share:.{places}f}".rstrip("0").rstrip(".") + " %"
    return f"{significant(100 * share)} %"


def times(ratio: float | None) -> str:
    """Return a ratio.

    Examples
    --------
    >>> times(12.345)
    '12.3 ×'
    """
    return DASH if is_absent(ratio) else f"{significant(ratio)} {TIMES}"


def coefficient(value: float | None) -> str:
    """Return a correlation with two decimals and a true minus sign.

    Examples
    --------
    >>> coefficient(0.763), coefficient(-0.48)
    ('0.76', '−0.48')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.2f}".replace("-", MINUS)


def p_value(value: float | None) -> str:
    """Return a p value as it stands in a sentence.

    Examples
    --------
    >>> p_value(4.2e-12), p_value(0.0123)
    ('p < 0.001', 'p = 0.012')
    """
    if value is not None and 0 <= value < P_SHOWN:
        return f"p < {P_SHOWN}"
    return f"p = {significant(value, 2)}"


def rate(hz: float | None) -> str:
    """Return how often something happens.

    Examples
    --------
    >>> rate(20000.0), rate(1234.5), rate(0.5)
    ('20,000/s', '1,230/s', '0.5/s')
    """
    return DASH if is_absent(hz) else f"{significant(hz)}/s"


def size(value: float | None) -> str:
    """Return an amount of data, given in bytes.

    Examples
    --------
    >>> size(2.5e9), size(-3.0e6), size(512), size(None)
    ('2.5 GB', '−3 MB', '512 B', '–')
    """
    return _with_unit(value, _BYTES)


def bandwidth(bits_hz: float | None) -> str:
    """Return a bandwidth, given in bits per second.

    Examples
    --------
    >>> bandwidth(957.6e6), bandwidth(1e9), bandwidth(None), bandwidth(0.0)
    ('958 Mbit/s', '1 Gbit/s', '–', '0 bit/s')
    """
    return _with_unit(bits_hz, _BITS)


def _with_unit(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    scale, unit = _unit(value, units)
    return f"{significant(value / scale).replace('-', MINUS)} {unit}"


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """Return the largest unit of which there is at least one."""
    return next((it for it in units if abs(value) >= it[0] * ROUNDED_UP), units[-1])
