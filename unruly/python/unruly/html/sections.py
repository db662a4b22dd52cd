"""The order of the page: a reader's questions, and what answers each.

Those from the causes on, and those on streams and on an arrival log, appear only when they have
something to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unruly.html import arrival_log as arrivals
from unruly.html import runtimes, steadiness, stores, tables, trust
from unruly.html import streams as stream_part
from unruly.html.advice import absent_advice, advice, sentence
from unruly.html.document import Figure, Part, Section, Table
from unruly.html.figures import (
    causes,
    correlation,
    distribution,
    groups,
    matrix,
    nodes,
    promise,
    slow,
)
from unruly.html.figures import cells as cells_figure
from unruly.html.figures.advice_detection import advice_detection
from unruly.html.figures.advice_hedge import advice_hedge
from unruly.html.figures.advice_profit import advice_profit
from unruly.html.figures.advice_replicas import advice_replicas
from unruly.html.figures.advice_xft import advice_xft
from unruly.html.figures.faults import faults
from unruly.html.figures.flow import flow
from unruly.html.figures.loads import ramps, scalings
from unruly.html.figures.runtimes import by_runtime
from unruly.html.figures.tails import tails
from unruly.html.figures.timeline import timeline
from unruly.html.figures.trust import send_lag
from unruly.html.figures.windows import short_windows
from unruly.html.view import View
from unruly.html.warmup import warm_ups

if TYPE_CHECKING:
    from unruly.findings.advice_model import Part as AdvicePart

Build = Callable[[View], Part]
MOST_SPOTS = 6
MOST_TEXTS = 3
"""From so many findings of one kind on, only their titles stand on the page."""


def advice_alone(view: View) -> list[Section]:
    """Return the section on what would help, for a page of nothing else."""
    part = _help(view)
    return [] if part.empty else [Section("help", "What would help?", (part,))]


def sections(view: View) -> list[Section]:
    """Return the sections that have something to say, in the order of the questions."""
    questions: tuple[tuple[str, str, Build], ...] = (
        ("trust", "Can I trust this measurement?", _trust),
        ("streams", stream_part.HEADING, stream_part.streams),
        ("promise", "What can I promise?", _promise),
        ("unruly", "How unruly is it?", _unruly),
        ("arrivals", arrivals.HEADING, arrivals.arrival_log),
        ("where", "When and where?", _where),
        ("slow", "What made the slow ones slow?", _slow),
        ("help", "What would help?", _help),
    )
    found = []
    for key, heading, build in questions:
        if not view.rows and key not in ("trust", "streams"):
            continue
        part = build(view)
        if not part.empty:
            found.append(Section(key, heading, (part,)))
    return found


def _kept(*figures: Figure | None) -> tuple[Figure, ...]:
    return tuple(f for f in figures if f is not None)


def _filled(*found: Table | None) -> tuple[Table, ...]:
    return tuple(t for t in found if t is not None and t.rows and not t.blank)


def _trust(view: View) -> Part:
    return Part(
        lead=tuple(sentence(words) for words in view.analysis.run.missing),
        advice=advice(view, "trust"),
        figures=_kept(send_lag(view)),
        tables=_filled(trust.status_table(view), trust.code_table(view)),
        closed_tables=_filled(
            trust.self_table(view), trust.process_table(view), trust.host_table(view)
        ),
    )


def _promise(view: View) -> Part:
    found = advice(view, "promise")
    said = " ".join(
        remark.text for a in found for remark in a.remarks if len(a.remarks) < MOST_TEXTS
    )
    spots = dict.fromkeys(s.sentence for s in view.analysis.blind_spot if s.sentence not in said)
    return Part(
        lead=tuple(sentence(spot) for spot in list(spots)[:MOST_SPOTS]),
        advice=found,
        figures=_kept(promise.promises(view), ramps(view)),
        tables=_filled(stores.targets(view)),
        closed_tables=_filled(tables.promises(view), stores.loads(view)),
    )


def _unruly(view: View) -> Part:
    by = view.analysis.by
    return Part(
        advice=advice(view, "unruly"),
        figures=_kept(
            distribution.distribution(view),
            distribution.workloads(view),
            tails(view),
            matrix.haircut(view) or cells_figure.cells(view),
            matrix.ratios(view),
            matrix.p99_on_mean(view),
            matrix.outliers(view),
            matrix.by_level(view),
            groups.group_sizes(view),
            groups.kth_of_n(view),
            *scalings(view),
        ),
        # a row for each cell is a page of rows: beside a matrix it is closed
        tables=_filled(
            stores.tails(view), None if view.analysis.magical else tables.unruliness(view)
        ),
        closed_tables=_filled(
            matrix.matrix_table(view),
            tables.unruliness(view) if view.analysis.magical else None,
            tables.percentiles(view),
            tables.frame_table(by["by_op"], {"op": "workload"}, "By workload")
            if "by_op" in by
            else None,
            tables.frame_table(
                by["by_size"],
                {"op": "workload", "size": "group size"},
                "Single replies by group size",
            )
            if "by_size" in by
            else None,
            tables.groups(view),
        ),
    )


def _where(view: View) -> Part:
    by = view.analysis.by
    names = {"op": "workload", "sender": "initiator", "receiver": "receiver"}
    senders, receivers = view.observers > 1, view.receivers > 1
    captions = {
        "by_sender": "By initiator" if senders else "",
        "by_receiver": "By receiver" if receivers else "",
        "pairs": "By initiator and receiver" if senders and receivers else "",
    }
    drawn = (
        nodes.matrix, nodes.members, slow.slow_by_window, slow.slow_counts, slow.sensitivity,
    )  # fmt: skip
    return Part(
        advice=advice(view, "where"),
        figures=_kept(
            flow(view),
            faults(view),
            timeline(view),
            short_windows(view),
            # who is slow for whom is a question for two observers and two of the observed
            *(draw(view) for draw in drawn if senders and receivers),
        ),
        tables=_filled(stores.faults(view), steadiness.recoveries(view)),
        closed_tables=_filled(
            steadiness.steadiness(view),
            warm_ups(view),
            tables.slowest(view),
            *(
                tables.frame_table(by[key], names, caption)
                for key, caption in captions.items()
                if caption and key in by
            ),
        ),
    )


def _slow(view: View) -> Part:
    """Return what struck while requests were slow, and then what rises with latency."""
    return Part(
        lead=(*causes.lead(view), *runtimes.lead(view)),
        advice=(*advice(view, "slow"), *advice(view, "why")),
        figures=_kept(
            causes.explained(view),
            causes.over_time(view),
            matrix.explained(view),
            by_runtime(view),
            correlation.correlations(view),
            correlation.scatters(view),
        ),
        tables=_filled(runtimes.tails(view), runtimes.meetings(view), _decomposition(view)),
        closed_tables=_filled(
            causes.cause_table(view),
            causes.part_table(view),
            runtimes.collecting(view),
            tables.correlation(view),
            matrix.resource_table(view),
        ),
    )


def _decomposition(view: View) -> Table | None:
    """Return whether node or link is slow, where there are several of both."""
    return tables.decomposition(view) if view.observers > 1 and view.receivers > 1 else None


def _help(view: View) -> Part:
    return Part(
        # they begin with the name of an op, which keeps its spelling
        lead=tuple(f"{words}." for words in _sentences(view)),
        advice=advice(view, "help"),
        figures=_kept(
            advice_detection(view),
            advice_replicas(view),
            advice_xft(view),
            advice_profit(view),
            advice_hedge(view),
        ),
        tables=_filled(absent_advice(view)),
    )


def _sentences(view: View) -> list[str]:
    """One of each part, of what needs the longest time: the op that decides."""
    if view.advice is None:
        return []
    parts: tuple[AdvicePart[Any], ...] = (
        view.advice.detection, view.advice.replicas, view.advice.xft, view.advice.hedge,
    )  # fmt: skip
    return [
        max(part.rows, key=lambda row: row.chosen_ns or 0.0).sentence for part in parts if part.rows
    ]
