"""Values of an analysis as JSON values."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from typing import Any

from unruly.stats import Interval


def flat(value: Any) -> dict[str, Any]:
    """Return a dataclass as a dict, its intervals as dicts, with ranks where there are some."""
    found = {}
    for item in fields(value):
        held = getattr(value, item.name)
        found[item.name] = _interval(held) if isinstance(held, Interval) else held
    return found


def deep(value: Any) -> Any:
    """Return a dataclass of dataclasses as dicts and lists."""
    if isinstance(value, tuple):
        return [deep(held) for held in value]
    if is_dataclass(value) and not isinstance(value, Interval | type):
        return {name: deep(held) for name, held in flat(value).items()}
    return value


def _interval(interval: Interval) -> dict[str, Any]:
    found = asdict(interval)
    if interval.low_rank is None and interval.high_rank is None:
        del found["low_rank"], found["high_rank"]
    return found
