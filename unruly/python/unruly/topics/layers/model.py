"""Which layer of the services made slow requests slow: plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count, NotBelowZero
    from unruly.stats import Interval

RoleName = Literal["own", "call", "between", "outside"]
"""Whose the time is: of the service's ``own`` work, of a ``call`` to something that has no spans,
``between`` a call and the service that answers it, or ``outside`` of all spans."""


@dataclass(frozen=True)
class ServiceLayer:
    """One kind of span, and the time of requests that it took itself.

    The time of a span itself is its length without the time of the spans below it. ``share`` is the
    share of the slow requests of which most of the extra time was here, ``requests`` their number.
    ``usual_ns`` is the median over usual requests, ``slow_ns`` the mean over the slow ones.
    ``usual_calls`` and ``slow_calls`` are how many such spans a request had on average.
    """

    service: str
    name: str
    role: RoleName
    share: Interval
    requests: Count
    usual_ns: NotBelowZero
    slow_ns: NotBelowZero
    usual_calls: NotBelowZero
    slow_calls: NotBelowZero

    @property
    def label(self) -> str:
        """Its name, with its service."""
        return "outside of all spans" if self.role == "outside" else f"{self.service}: {self.name}"


@dataclass(frozen=True)
class Blame:
    """The slow requests of one (cell, op): those slower than ``limit_ns``.

    It is the p99; with fewer than 600 requests the p95, with fewer than 120 the p90.
    ``traced`` of the ``slow`` ones have spans, and ``looked_at`` of these, as chance chose, were
    read; every share is of these. ``usual`` requests, as chance chose, give the usual times;
    ``usual_ns`` is their median response time. The ``layers`` are in the order of their shares. A
    None, or no layer, has its reason in ``absent``.
    """

    cell: str
    op: str
    limit_ns: float | None
    slow: Count
    traced: Count
    looked_at: Count
    usual: Count
    usual_ns: float | None
    layers: tuple[ServiceLayer, ...]
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """The spans that came to a run; all are counts of spans but the last three.

    ``foreign`` ones were of traces that the run did not begin, ``damaged`` ones had no time or no
    id, ``early`` ones had to be judged before their trace was complete, and ``late`` ones came when
    their trace had been left out. ``refused`` batches and connections were not taken. Chance kept
    one of 2^``level`` traces. ``address`` is where the run listened; None if its plan does not say.
    """

    received: Count
    kept: Count
    foreign: Count
    damaged: Count
    early: Count
    late: Count
    refused: Count
    level: Count
    address: str | None


@dataclass(frozen=True)
class Layers:
    """What spans say of slow requests.

    The ``rows`` with the largest p99 come first, and ``left_out`` (cell, op) have none, because
    there are too many. ``received`` is None of an import, which has all spans of its files.
    ``slowest`` has the spans of the slowest request for the chart: service, layer, role, began and
    ended (ns since its scheduled time), depth. ``slowest_op`` is its operation, and ``slowest_ns``
    its response time. Operations without a limit do not count.
    """

    rows: tuple[Blame, ...]
    left_out: Count
    received: Received | None
    slowest: pd.DataFrame
    slowest_op: str = ""
    slowest_ns: float | None = None


def layers_of(analysis: Analysis) -> Layers | None:
    """Return what an analysis says of layers; None where no spans were asked for."""
    return analysis.topic("layers", Layers)
