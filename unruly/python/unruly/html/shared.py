"""What the shared sections show of every run, whatever its topics are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.drawing import distribution, tables
from unruly.drawing.findings import sentence
from unruly.drawing.pieces import Piece
from unruly.html import trust
from unruly.html.figures import correlation, groups, nodes, promise, slow
from unruly.html.figures.trust import send_lag

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.drawing.document import Figure, Table
    from unruly.drawing.view import View

MOST_SPOTS = 6
MOST_TEXTS = 3
"""If a kind has this many findings or more, the page shows only their titles."""


def _missing(view: View) -> tuple[str, ...]:
    return tuple(sentence(words) for words in view.analysis.run.missing)


def _blind_spots(view: View) -> tuple[str, ...]:
    """Return the blind spots of the run that no finding on the page mentions."""
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for it in view.analysis.findings:
        if it.section == "promise":
            kinds.setdefault((it.code, it.severity, it.suggestion), []).append(sentence(it.text))
    said = " ".join(it for texts in kinds.values() if len(texts) < MOST_TEXTS for it in texts)
    spots = dict.fromkeys(s.sentence for s in view.analysis.blind_spot if s.sentence not in said)
    return tuple(sentence(spot) for spot in list(spots)[:MOST_SPOTS])


def _by_op(view: View) -> Table | None:
    return _breakdown(view, "by_op", {"op": "workload"}, "By workload")


def _by_size(view: View) -> Table | None:
    names = {"op": "workload", "size": "group size"}
    return _breakdown(view, "by_size", names, "Single replies by group size")


def _by_node(view: View) -> tuple[Table | None, ...]:
    names = {"op": "workload", "sender": "initiator", "receiver": "receiver"}
    senders, receivers = view.observers > 1, view.receivers > 1
    captions = {
        "by_sender": "By initiator" if senders else "",
        "by_receiver": "By receiver" if receivers else "",
        "pairs": "By initiator and receiver" if senders and receivers else "",
    }
    return tuple(
        _breakdown(view, key, names, caption) for key, caption in captions.items() if caption
    )


def _breakdown(view: View, key: str, names: dict[str, str], caption: str) -> Table | None:
    by = view.analysis.by
    return tables.frame_table(by[key], names, caption) if key in by else None


def _between_nodes(draw: Callable[[View], Figure | None]) -> Callable[[View], Figure | None]:
    """Draw only where there are two observers and two of the observed: who is slow for whom."""

    def drawn(view: View) -> Figure | None:
        return draw(view) if view.observers > 1 and view.receivers > 1 else None

    return drawn


def _decomposition(view: View) -> Table | None:
    """Return whether node or link is slow, where there are several of both."""
    return tables.decomposition(view) if view.observers > 1 and view.receivers > 1 else None


PIECES: Final = (
    Piece("trust", "lead", 100, _missing),
    Piece("trust", "figures", 100, send_lag),
    Piece("trust", "tables", 100, trust.status_table),
    Piece("trust", "tables", 110, trust.code_table),
    Piece("trust", "closed_tables", 100, trust.self_table),
    Piece("trust", "closed_tables", 110, trust.process_table),
    Piece("trust", "closed_tables", 115, trust.throttled_table),
    Piece("trust", "closed_tables", 120, trust.host_table),
    Piece("promise", "lead", 100, _blind_spots),
    Piece("promise", "figures", 100, promise.promises),
    Piece("promise", "closed_tables", 100, tables.promises),
    Piece("unruly", "figures", 100, distribution.distribution),
    Piece("unruly", "figures", 110, distribution.workloads),
    Piece("unruly", "figures", 200, groups.group_sizes),
    Piece("unruly", "figures", 210, groups.kth_of_n),
    Piece("unruly", "closed_tables", 300, tables.percentiles),
    Piece("unruly", "closed_tables", 310, _by_op),
    Piece("unruly", "closed_tables", 320, _by_size),
    Piece("unruly", "closed_tables", 330, tables.groups),
    Piece("where", "figures", 200, _between_nodes(nodes.matrix)),
    Piece("where", "figures", 210, _between_nodes(nodes.members)),
    Piece("where", "figures", 220, _between_nodes(slow.slow_by_window)),
    Piece("where", "figures", 230, _between_nodes(slow.slow_counts)),
    Piece("where", "figures", 240, _between_nodes(slow.sensitivity)),
    Piece("where", "closed_tables", 200, tables.slowest),
    Piece("where", "closed_tables", 210, _by_node),
    Piece("slow", "figures", 400, correlation.correlations),
    Piece("slow", "figures", 410, correlation.scatters),
    Piece("slow", "tables", 200, _decomposition),
    Piece("slow", "closed_tables", 300, tables.correlation),
)
