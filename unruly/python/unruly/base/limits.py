"""Limits that a run is held to: what a file of them says, checked line by line."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unruly.base import ladder
from unruly.base.ladder import shown_name
from unruly.errors import UnrulyError
from unruly.tables import requests as request_tables
from unruly.terminal import plain_all

if TYPE_CHECKING:
    from pathlib import Path

PERCENTILES: Final = {shown_name(name): p for name, p in ladder.PERCENTILES.items()}
MEANS: Final = ("mean",)
SHARES: Final = ("failed_share",)
COUNTS: Final = ("failed", "over_10x_mean", "over_3_sigma")
"""Judged as shares: how many of as many requests the next run may have."""
RATIOS: Final = ("p99_over_mean",)
FACTS: Final = ("min", "max", "sd", "max_over_mean")
"""What this run saw: how it would be in the next one nobody can say."""
STATISTICS: Final = (*PERCENTILES, *MEANS, *RATIOS, *FACTS, *SHARES, *COUNTS)
LATENCIES: Final = (*PERCENTILES, *MEANS, "min", "max", "sd")
KEYS: Final = ("statistic", "at_most", "cell", "op", "latency", "name")
UNITS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}


class LimitError(UnrulyError):
    """The file of limits cannot be used, or a limit is on something that the run does not have."""


@dataclass(frozen=True)
class Limit:
    """One limit. ``at_most`` is in ns for latencies, else a share, a count or a ratio.

    ``op`` and ``cell``: None stands for every one.
    """

    name: str
    statistic: str
    at_most: float
    latency: str = "response"
    op: str | None = None
    cell: str | None = None
    built_in: bool = False
    """The limit on failures of an operation that the file has none for."""


def read_limits(path: Path) -> list[Limit]:
    """Read a TOML file of ``[[limit]]`` tables.

    Raises
    ------
    LimitError
        When it is missing, not TOML, or a limit in it is not one; with the limit's number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LimitError(path, f"cannot be read: {error}", "a file of limits", _EXAMPLE) from error
    try:
        tables = plain_all(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        said = str(error)[:200]
        raise LimitError(path, f"is not TOML: {said}", "a file of limits", _EXAMPLE) from error
    rows = tables.get("limit")
    if set(tables) != {"limit"} or not isinstance(rows, list) or not rows:
        raise LimitError(path, "has no [[limit]]", "one or more of them and nothing else", _EXAMPLE)
    return [_limit(path, number, row) for number, row in enumerate(rows, 1)]


_EXAMPLE = 'statistic = "p99", at_most = "2ms" under [[limit]]'


def _limit(path: Path, number: int, row: Any) -> Limit:
    where = f"{path}: limit {number}"
    if not isinstance(row, dict):
        raise LimitError(where, "is not a table", "keys and values", _EXAMPLE)
    for key, value in row.items():
        if key not in KEYS:
            raise LimitError(where, f"has the key {key!r}", f"one of {', '.join(KEYS)}", _EXAMPLE)
        if key != "at_most" and not isinstance(value, str):
            raise LimitError(where, f"{key} is {value!r}", "text", _EXAMPLE)
    asked = row.get("statistic")
    # summary.json writes p99_9 where people write p99.9
    statistic = str(asked) if asked in STATISTICS else str(asked).replace("_", ".")
    if statistic not in STATISTICS:
        wanted = f"one of {', '.join(STATISTICS)}"
        raise LimitError(where, f"statistic is {asked!r}", wanted, _EXAMPLE)
    kind = row.get("latency", "response")
    if kind not in request_tables.LATENCIES:
        wanted = " or ".join(request_tables.LATENCIES)
        raise LimitError(where, f"latency is {kind!r}", wanted, 'latency = "response"')
    at_most = _at_most(where, statistic, row.get("at_most"))
    name = row.get("name") or f"{statistic} <= {row['at_most']}"
    return Limit(name, statistic, at_most, kind, row.get("op"), row.get("cell"))


def _at_most(where: str, statistic: str, value: Any) -> float:
    if statistic in LATENCIES:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ns|us|ms|s|min)", str(value))
        if not isinstance(value, str) or found is None or float(found[1]) == 0:
            raise LimitError(
                where, f"at_most is {value!r}", "a latency above 0 with its unit", 'at_most = "2ms"'
            )
        return float(found[1]) * UNITS[found[2]]
    most = 1.0 if statistic in SHARES else float("inf")
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if known and 0 <= value <= most and value != float("inf"):
        return float(value)
    if statistic in SHARES:
        raise LimitError(where, f"at_most is {value!r}", "a share from 0 to 1", "at_most = 0.001")
    raise LimitError(where, f"at_most is {value!r}", "a number, 0 or more", "at_most = 25")
