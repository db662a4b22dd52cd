"""A service level agreement as a file: what a request pays, by how long it took."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import ParameterError, UnrulyError
from unruly.stats import SlaTable

if TYPE_CHECKING:
    from pathlib import Path

UNITS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}
SECONDS: Final = "s"
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ns|us|ms|s|min)?")
_EXAMPLE: Final = 'beyond = -0.0047, then [[step]] with at_most = "200ms" and pays = 0.0020'


class SlaError(UnrulyError):
    """The agreement cannot be used."""


def read_sla(path: Path) -> SlaTable:
    """Read a TOML file of ``[[step]]`` tables and the key ``beyond``.

    Raises
    ------
    SlaError
        When it is missing, not TOML, or is no agreement; with the step's number.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SlaError(path, f"cannot be read: {error}", "an agreement", _EXAMPLE) from error
    except ValueError as error:
        raise SlaError(path, f"is not TOML: {error}", "an agreement", _EXAMPLE) from error
    unknown = set(tables) - {"step", "beyond"}
    if unknown:
        raise SlaError(path, f"has the key {min(unknown)!r}", "step and beyond", _EXAMPLE)
    steps = tables.get("step")
    if not isinstance(steps, list) or not steps:
        raise SlaError(path, "has no [[step]]", "one or more of them", _EXAMPLE)
    bounds, pays = [], []
    for number, step in enumerate(steps, 1):
        where = f"{path}: step {number}"
        if not isinstance(step, dict) or set(step) != {"at_most", "pays"}:
            raise SlaError(where, f"is {step!r}", "at_most and pays", _EXAMPLE)
        bounds.append(duration_ns(where, "at_most", step["at_most"]))
        pays.append(_money(where, "pays", step["pays"]))
    if "beyond" not in tables:
        raise SlaError(path, "has no beyond", "what a slower or failed request pays", _EXAMPLE)
    pays.append(_money(str(path), "beyond", tables["beyond"]))
    try:
        return SlaTable(tuple(bounds), tuple(pays))
    except ParameterError as error:
        raise SlaError(path, error.what, error.wanted, error.hint) from error


def duration_ns(where: str, name: str, value: Any) -> float:
    """Return a duration (``"40ms"``, or seconds without a unit) in ns.

    Raises
    ------
    SlaError
        When it is not one above 0.

    Examples
    --------
    >>> duration_ns("here", "timeout", "40ms"), duration_ns("here", "timeout", 2)
    (40000000.0, 2000000000.0)
    """
    known = isinstance(value, str | int | float) and not isinstance(value, bool)
    found = _DURATION.fullmatch(str(value)) if known else None
    if found is None or float(found[1]) == 0:
        raise SlaError(where, f"{name} is {value!r}", "a time above 0", f'{name} = "200ms"')
    return float(found[1]) * UNITS[found[2] or SECONDS]


def _money(where: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SlaError(where, f"{name} is {value!r}", "a number", f"{name} = 0.0020")
    return float(value)
