"""The factors of a stream's cell beside its protocol and its competing load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unruly.plan import CellPlan

SHOWN_ELSEWHERE: Final = ("stream.protocol", "compete.kind")


def rest(cell: CellPlan) -> dict[str, str]:
    """Return the factors of a cell beside its protocol and its load."""
    return {key: level for key, level in cell.factors.items() if key not in SHOWN_ELSEWHERE}


def series(cell: CellPlan) -> str:
    """Return the same factors in words, such as ``mtu=1500 collector=g1``; empty without any.

    Examples
    --------
    >>> from unruly.plan import CellPlan
    >>> series(CellPlan({"stream.protocol": "tcp", "quota.reader-1": "0.3"}))
    'reader-1=0.3'
    """
    return " ".join(f"{key.rsplit('.', 1)[-1]}={level}" for key, level in rest(cell).items())
