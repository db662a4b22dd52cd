"""Rules about nodes: which are slow, and how the observers agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base import bare_matrix, synchrony
from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.words import named
from unruly.quantity import count, duration, percent, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.base.analysis import Analysis

ALIKE: Final = 0.8


def _slow_node(analysis: Analysis) -> Iterator[Finding]:
    """Every other node that observes this node sees it as slow.

    Example: agent-1 is slow

    Raised: All other nodes that observe a node (at least two) see it as slow, in at least half of
    the windows in which it was observed, for at least one operation. It must have been observed in
    {synchrony.WINDOWS_MIN:count} windows, or in all if the run has fewer. A run with one client has
    no such finding. See the method [slow nodes](../methods/slow-nodes.md).

    Means: The node is slow, not a link to it, because every observer sees it as slow.

    Next: Find out what its host does: see [slow-because] and [correlate]. Or leave the node out of
    quorums.

    Numbers: `slow_nodes.named` in `summary.json`.
    """
    for place, node in enumerate(analysis.slow_nodes.named):
        yield Finding(
            "slow-node",
            "where",
            "warns",
            place,
            f"{node.node} is slow",
            node.words + ".",
            {
                "node": node.node,
                "ops": list(node.ops),
                "ratio": node.ratio,
                "windows": node.windows,
                "windows_slow": node.windows_slow,
                "observers": node.observers,
            },
            "Find out what its host does (see the causes), or leave it out of quorums.",
        )


def _slow_seen_alike(analysis: Analysis) -> Iterator[Finding]:
    """All observers see the same nodes as slow.

    Example: all observers see the same nodes as slow

    Raised: A node is named as slow, and the slow sets of two observers overlap by at least
    {ALIKE:percent} on average (mean Jaccard index over all pairs of observers).

    Means: The observers agree, so any one of them can detect the slow node.

    Next: Look at the node itself, not at its links. One observer is enough to watch it. See the
    method [Jaccard](../methods/jaccard.md).

    Numbers: `slow_nodes.jaccard_mean` in `summary.json`.
    """
    slow = analysis.slow_nodes
    if slow.jaccard_mean is None or slow.jaccard_mean < ALIKE or not slow.named:
        return
    yield Finding(
        "slow-seen-alike",
        "where",
        "informs",
        100,
        "all observers see the same nodes as slow",
        f"The sets of slow nodes of two observers overlap by {percent(slow.jaccard_mean)} on "
        "average "
        f"(Jaccard index over {count(len(slow.jaccard))} pairs of observers). So the node is slow, "
        "not a link.",
        {"jaccard_mean": slow.jaccard_mean, "pairs": len(slow.jaccard)},
        "Look at the node itself, not at its links.",
    )


def _slow_columns(analysis: Analysis) -> Iterator[Finding]:
    """Some nodes of a matrix of single values are slow for every sender.

    Example: 1 of 6 nodes are slow for every sender: node-3

    Raised: The run is a matrix with one value for each pair of at least
    {bare_matrix.NODES_LEAST:count} nodes, such as an imported table of round trips. The p90 of a
    node's column, its own entry left out, is at least twice that of the fastest column. Both
    numbers are defaults: `analyse(factor=, percentile=)` changes them.

    Means: A request to one of these nodes waits, whichever node sends it. This is the third rule
    for slow nodes, for runs without groups and windows. It cannot separate a slow node from a
    distant one.

    Next: Send to these nodes last, or leave them out of groups that wait for all replies. Measure
    with groups to judge the nodes by windows. See the method [slow
    nodes](../methods/slow-nodes.md).

    Numbers: The levels of the columns are in the evidence of the finding.
    """
    for place, it in enumerate(analysis.bare_matrices):
        if not it.slow:
            continue
        rule = f"the p{100 * it.percentile:g} of its column is at least {times(it.factor)}"
        yield Finding(
            "slow-columns",
            "where",
            "informs",
            50 + place,
            f"{len(it.slow)} of {it.nodes} nodes are slow for every sender: {named(list(it.slow))}",
            f"In a matrix of one value for each pair a node is slow when {rule} that of the "
            "fastest "
            f"column, {duration(it.smallest_ns)}. A node's value to itself is left out.",
            {
                "cell": it.cell,
                "op": it.op,
                "slow": list(it.slow),
                "levels_ns": [level if level < float("inf") else None for level in it.levels_ns],
                "smallest_ns": it.smallest_ns,
            },
            "Send to these nodes last, or leave them out of groups that wait for all replies.",
        )


RULES: Final = (
    Rule("slow-node", "where", ("warns",), _slow_node, (synchrony,)),
    Rule("slow-seen-alike", "where", ("informs",), _slow_seen_alike),
    Rule("slow-columns", "where", ("informs",), _slow_columns, (bare_matrix,)),
)
