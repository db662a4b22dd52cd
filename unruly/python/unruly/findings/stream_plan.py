"""What the plan says of a stream's cells: when they are measured, what joins and loads them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z/]*)")
_TIMES: Final = {
    "d": 86_400e9, "h": 3_600e9, "min": 60e9, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0, "": 1e9,
}  # fmt: skip
_BITS: Final = {"Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3, "bit/s": 1.0}
PROTOCOL: Final = "stream.protocol"
LOAD: Final = "compete.kind"
SHOWN_ELSEWHERE: Final = (PROTOCOL, LOAD)


@dataclass(frozen=True)
class StreamPlan:
    """A resolved plan and the factors of its cells; what neither says is None."""

    plan: dict[str, Any]
    factors: dict[str, dict[str, str]]

    @classmethod
    def of(cls, path: Path, factors: dict[str, dict[str, str]]) -> StreamPlan:
        """Read the plan that is kept with a run; of a run without one nothing is known."""
        try:
            with path.open("rb") as file:
                return cls(tomllib.load(file), factors)
        except (OSError, ValueError):
            return cls({}, factors)

    def said(self, cell: str, key: str) -> str | None:
        """Return what holds in a cell for a key like ``stream.link``: its factor, else the plan."""
        level = self.factors.get(cell, {}).get(key)
        if level is not None:
            return level
        section, _, name = key.partition(".")
        held = self.plan.get(section)
        value = held.get(name) if isinstance(held, dict) else None
        return None if value is None else str(value)

    def protocol(self, cell: str) -> str:
        """Return how messages travel in a cell."""
        return self.said(cell, PROTOCOL) or "unknown"

    def load(self, cell: str) -> str:
        """Return what competes in a cell: none, cpu, gc."""
        return self.said(cell, LOAD) or "none"

    def link_bps(self, cell: str) -> float | None:
        """Return what joins the hosts, in bit/s; None where nothing bounds it."""
        return quantity(self.said(cell, "stream.link") or "", _BITS)

    def measured_ns(self, cell: str) -> tuple[int, int] | None:
        """Return from when to when a leg is measured, since it began; None where nobody says."""
        lasts = self.duration_ns(cell, "run.duration")
        if lasts is None:
            return None
        before = self.duration_ns(cell, "run.warmup") or 0.0
        return int(before), int(before + lasts)

    def duration_ns(self, cell: str, key: str) -> float | None:
        """Return a length of time that holds in a cell; None where nobody says."""
        return quantity(self.said(cell, key) or "", _TIMES)

    def series(self, cell: str) -> str:
        """Return the factors of a cell beside its protocol and its load, in words."""
        rest = self.rest(cell)
        return " ".join(f"{name.rsplit('.', 1)[-1]}={level}" for name, level in rest.items())

    def rest(self, cell: str) -> dict[str, str]:
        """Return the factors of a cell beside its protocol and its load."""
        found = self.factors.get(cell, {})
        return {name: level for name, level in found.items() if name not in SHOWN_ELSEWHERE}

    def quota(self, cell: str, process: str) -> float:
        """Return the cores whose time a process is given at most; infinite where nobody says."""
        return float(self.said(cell, f"quota.{process}") or "inf")

    def pinned(self, process: str) -> frozenset[int]:
        """Return the cores that a process is kept on; none where it may run on all."""
        held = self.plan.get("pin")
        cores = held.get(process) if isinstance(held, dict) else None
        return frozenset(int(core) for core in cores) if isinstance(cores, list) else frozenset()


def quantity(text: str, units: dict[str, float]) -> float | None:
    """Read a number with its unit, as plans write it; a duration without one is in seconds.

    Examples
    --------
    >>> quantity("500ms", _TIMES), quantity("1Gbit/s", _BITS), quantity("none", _BITS)
    (500000000.0, 1000000000.0, None)
    >>> quantity("5", _TIMES), quantity("5", _BITS)
    (5000000000.0, None)
    """
    found = _NUMBER.fullmatch(text.strip())
    return float(found[1]) * units[found[2]] if found and found[2] in units else None
