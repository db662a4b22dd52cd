"""What a run is about: which questions its plan asked, so that no other is answered unasked.

Predicates that rules, the verdict and the report share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unruly.base.model import SlowNodes
    from unruly.run import Run

OBSERVERS_LEAST: Final = 2
"""A single sender cannot distinguish a slow node from a slow path to it."""


def compares_nodes(slow: SlowNodes) -> bool:
    """Return whether several senders observed several receivers: a group, not a client."""
    if slow.windows == 0 or slow.pairs.empty:
        return False
    pairs = slow.pairs
    return bool(
        pairs["sender"].nunique() >= OBSERVERS_LEAST
        and pairs["receiver"].nunique() >= OBSERVERS_LEAST
    )


def has_foreign_arrivals(run: Run) -> bool:
    """Return whether others chose when requests came: an import or a tap, no schedule of ours."""
    return run.foreign
