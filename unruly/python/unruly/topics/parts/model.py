"""How long the parts of requests took: plain frozen values; ``absent`` has why one is None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis
    from unruly.contract import Absent, Count
    from unruly.stats import Interval

LayerName = Literal["connect", "tls", "first token", "token", "first message", "message"]


@dataclass(frozen=True)
class Layer:
    """How long one part of its requests took in a cell (ns).

    ``layer`` is "connect" (TCP, from the call until the load generator knows), "tls" (from then
    until the server's last message of the handshake), "first token" (from the scheduled time of the
    request), "token" (from the token before it), "first message" or "message" (the same for the
    messages of a streamed reply). Connections are those of all phases, since most are opened before
    the measurement; tokens and messages are those of measured requests.
    """

    cell: str
    layer: LayerName
    n: Count
    p50: float | None
    p50_interval: Interval | None
    p99: float | None
    p99_interval: Interval | None
    max: float
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Opening:
    """The measured requests of a (cell, op) that waited while their connection was opened."""

    cell: str
    op: str
    n: Count
    opened: Count
    share: Interval


@dataclass(frozen=True)
class Parts:
    """How long the parts of requests took, and how many requests waited for a connection."""

    layers: tuple[Layer, ...]
    openings: tuple[Opening, ...]

    def layer(self, cell: str, name: LayerName) -> Layer | None:
        """Return a cell's layer, if it has one."""
        return next((it for it in self.layers if (it.cell, it.layer) == (cell, name)), None)


def parts_of(analysis: Analysis) -> Parts | None:
    """Return what an analysis says of the parts of requests; None where it has none."""
    return analysis.topic("parts", Parts)
