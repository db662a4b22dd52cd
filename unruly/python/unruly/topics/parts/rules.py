"""The rule of parts: many requests waited until their connection was open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.quantity import count, duration, percent
from unruly.topics.parts.model import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis
    from unruly.topics.parts.model import LayerName, Opening, Parts

SHARE_LEAST: Final = 0.01
"""Opening connections is then a part of the p99."""
PHRASES: Final[dict[LayerName, str]] = {"connect": "TCP", "tls": "the TLS handshake"}


def opens(analysis: Analysis) -> Iterator[Finding]:
    """Many requests opened a connection and waited for it.

    Example: 34 % [31 %, 37 %] of the “get” requests waited until their connection was open: TCP
    took 0.2 ms and the TLS handshake took 1.2 ms (medians)

    Raised: {SHARE_LEAST:percent} or more of the measured requests of an operation waited until
    their connection was open, so it is a part of the p99. A request waits if its connection was
    asked for at its scheduled time or later. Its latency includes that time.

    Means: The latency has a part that a client with an open connection does not pay. The load
    generator opens a connection when none is free: because the plan says so, because the server
    closes them, or because there are fewer connections than requests at once. The times are those
    of the load generator, and the TLS handshake includes its own work.

    Next: If your users keep their connections, use `--keep-alive true`, give as many connections
    as there are requests at once, or raise the server's limits for idle connections. If your users
    come anew each time, this is what they see.

    Numbers: `parts.openings[]` and `parts.layers[]` in `summary.json`.
    """
    found = parts_of(analysis)
    if found is None:
        return
    many = [it for it in found.openings if (it.share.estimate or 0.0) >= SHARE_LEAST]
    if not many:
        return
    most = max(many, key=lambda it: it.share.estimate or 0.0)
    yield Finding(
        "opens-connections",
        "why",
        "informs",
        35,
        f"{_share(most)} of the “{most.op}” requests waited until their connection was open"
        f"{_parts(found, most.cell)}",
        f"{count(most.opened)} of {count(most.n)} requests. A request that waits for its "
        "connection pays for TCP, and for TLS where there is TLS.",
        {
            "cell": most.cell,
            "op": most.op,
            "opened": most.opened,
            "n": most.n,
            "share": most.share.estimate,
            "low": most.share.low,
            "high": most.share.high,
        },
        "Keep connections open if your users do: by HTTP with --keep-alive true and more "
        "--connections, and with a longer idle limit of the server.",
    )


def _share(it: Opening) -> str:
    share = it.share
    if share.low is None or share.high is None:
        return percent(share.estimate or 0.0)
    return f"{percent(share.estimate or 0.0)} [{percent(share.low)}, {percent(share.high)}]"


def _parts(found: Parts, cell: str) -> str:
    """How long each part took; nothing where there are too few connections."""
    medians = [
        f"{words} took {duration(layer.p50)}"
        for name, words in PHRASES.items()
        if (layer := found.layer(cell, name)) is not None and layer.p50 is not None
    ]
    return f": {' and '.join(medians)} (medians)" if medians else ""


RULES: Final = (Rule("opens-connections", "why", ("informs",), opens),)
