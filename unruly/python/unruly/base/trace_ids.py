"""The ids of traces, which follow from a process's key and a request's number.

A process that sends traces writes the first half of their ids, its key, into its events. The second
half follows from it and from the request's number, by two rounds of splitmix64: so a row of
`requests` and the trace of its request find each other without a column of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.tables import fetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unruly.base.context import Context

KIND: Final = "trace key"
_MASK: Final = (1 << 64) - 1
_STEPS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_ODD: Final = 0x9E3779B97F4A7C15


def id_of(key: int, request: int) -> str:
    """Return the id of a request's trace.

    Examples
    --------
    >>> id_of(10, 1)
    '000000000000000acf36f4119163aff4'
    """
    half = int(second_halves(key, np.array([request], dtype=np.uint64))[0])
    return f"{key:016x}{half:016x}"


def second_halves(key: int, requests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the second half of the id of each request's trace."""
    start = _finalise(np.array([key], dtype=np.uint64))
    return _finalise(start + requests.astype(np.uint64))


def _finalise(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(_ODD)
    for shift, factor in _STEPS:
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return value ^ (value >> np.uint64(31))


def keys_of(context: Context) -> dict[tuple[str, int, int], int]:
    """Return the key of each (cell, repeat, client); a line that is no key is left out."""
    events = context.run.events
    told = fetch(events.filter(events.kind == KIND).select("cell", "repeat", "detail"))
    keys = {}
    for cell, repeat, detail in told.itertuples(index=False):
        client, _, key = str(detail).partition(" ")
        try:
            keys[str(cell), int(repeat), int(client)] = int(key, 16) & _MASK
        except ValueError:
            continue
    return keys
