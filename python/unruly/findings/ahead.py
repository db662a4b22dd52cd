"""The next pass over the trace runs while the last one's numbers are worked on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


def ahead(calls: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield what the calls return, in their order; each runs while the one before is used.

    One result at most waits, so that no more than two are in memory.

    Examples
    --------
    >>> list(ahead([lambda: 1, lambda: 2]))
    [1, 2]
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        held = None
        for call in calls:
            coming = thread.submit(call)
            if held is not None:
                yield held.result()
            held = coming
        if held is not None:
            yield held.result()
