"""The topics of an analysis. A new one is a folder beside this file and a line in `NAMES`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unruly.topics.topic import Topic

NAMES: Final = (
    "factors",
    "over_time",
    "arrival_log",
    "causes",
    "stores",
    "streams",
    "runtimes",
    "parts",
    "goodput",
    "traces",
    "layers",
    "tiers",
)
"""In the order of ``summary.json``; of two findings that rank alike, the first topic's is first."""
TOPICS: Final[tuple[Topic, ...]] = tuple(
    import_module(f"unruly.topics.{name}").TOPIC for name in NAMES
)
