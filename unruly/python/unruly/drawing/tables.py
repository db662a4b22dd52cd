"""The numbers for people who would rather read numbers, each absence with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.promise import next_words, share_words
from unruly.base.promise_words import refusal_words
from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text
from unruly.drawing.format import DASH
from unruly.drawing.view import ALL, LATENCIES, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from unruly.base.operation import CellSummary
    from unruly.stats import Interval

MOST_ROWS = 120
"""Rows of one table; a matrix of a thousand cells is read by a program, from summary.json."""

UNSAID = "not given by the analysis"
PERCENTILES = (
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("p99_9", "p99.9"),
    ("p99_99", "p99.99"),
    ("p99_999", "p99.999"),
)


def op_name(op: str) -> str:
    """Return the workload's name, with words for the sum over all."""
    return "all together" if op == ALL else op


def _field(c: CellSummary, name: str) -> Datum:
    return number(format.duration(getattr(c, name)), c.absent.get(name, UNSAID))


def interval(value: Interval | None, reason: str = UNSAID) -> Datum:
    """Return ``low to high``; a missing side is open, and said so."""
    if value is None or (value.low is None and value.high is None):
        return Datum(DASH, reason=reason)
    low = format.duration(value.low) if value.low is not None else "…"
    high = format.duration(value.high) if value.high is not None else "…"
    return Datum(f"{low} to {high}", aside=f"{format.level(value.level)} confidence")


def _worst_first(view: View) -> list[CellSummary]:
    rows = view.summaries
    if len(view.cells) < 2:
        order = {op: place for place, op in enumerate((ALL, *view.ops))}
        return sorted(
            rows, key=lambda c: (order.get(c.op, len(order)), c.op, LATENCIES.index(c.latency))
        )
    return sorted(rows, key=lambda c: -(c.p99 or 0.0))


def cut(rows: Sequence[Any], what: str) -> str:
    """Say how many rows a table leaves out; nothing when it has them all."""
    return (
        f"Shown: {MOST_ROWS} of {format.count(len(rows))} {what}; all are in summary.json."
        if len(rows) > MOST_ROWS
        else ""
    )


def percentiles(view: View) -> Table:
    """Return every percentile of every cell and workload, response and service time."""
    rows = _worst_first(view)
    several = len(view.cells) > 1
    head = [
        *(["cell"] if several else []),
        "workload",
        "time",
        "replies",
        "failed",
        "min",
        "mean",
        "sd",
        *(shown for _, shown in PERCENTILES),
        "max",
    ]
    body = []
    for c in rows[:MOST_ROWS]:
        fields = [
            _field(c, "min"),
            _mean(c, "mean"),
            _mean(c, "sd"),
            *(_field(c, name) for name, _ in PERCENTILES),
            _mean(c, "max"),
        ]
        body.append(
            [
                *([text(c.cell)] if several else []),
                text(op_name(c.op)),
                text(c.latency),
                number(format.count(c.n)),
                number(format.count(c.failed)),
                *fields,
            ]
        )
    return table(
        head,
        body,
        "Percentiles of response and service time",
        _note(rows[:MOST_ROWS]) + cut(rows, "rows"),
    )


def _mean(c: CellSummary, name: str) -> Datum:
    value = getattr(c, name)
    if value is None and getattr(c, f"{name}_ok", None) is not None:
        return Datum(f"{format.duration(getattr(c, f'{name}_ok'))} *")
    return _field(c, name)


def _note(rows: Sequence[CellSummary]) -> str:
    starred = any(c.mean is None and c.mean_ok is not None for c in rows)
    return (
        "* Of the replies that came well only: some failed, and a failed one has no latency. "
        if starred
        else ""
    )


def unruliness(view: View) -> Table:
    """Return the measures of the magical 1 %."""
    rows = list(_worst_first(view))
    several = len(view.cells) > 1
    head = [
        *(["cell"] if several else []),
        "workload",
        "time",
        "p99 / p50",
        "p99 / mean",
        "max / mean",
        f"over 10 {format.TIMES} mean",
        "over mean + 3 sd",
    ]
    body = []
    for c in rows[:MOST_ROWS]:
        spread = c.p99 / c.p50 if c.p99 and c.p50 else None
        body.append(
            [
                *([text(c.cell)] if several else []),
                text(op_name(c.op)),
                text(c.latency),
                number(format.times(spread), c.absent.get("p99", UNSAID), strong=True),
                number(format.times(c.p99_over_mean), c.absent.get("p99_over_mean", UNSAID)),
                number(format.times(c.max_over_mean), c.absent.get("max_over_mean", UNSAID)),
                number(format.count(c.over_10x_mean), c.absent.get("over_10x_mean", UNSAID)),
                number(format.count(c.over_3_sigma), c.absent.get("over_3_sigma", UNSAID)),
            ]
        )
    return table(head, body, "How far the tail stands from the middle", cut(rows, "rows"))


def promises(view: View) -> Table:
    """Return what may be promised of each cell and workload, and why not where not."""
    rows = _worst_first(view)
    several = len(view.cells) > 1
    head = [
        *(["cell"] if several else []),
        "workload",
        "time",
        "p99 measured",
        "promise",
        "interval of the p99",
        "if replies were independent",
        "n",
        "effective n",
        "next step",
    ]
    body = []
    for c in rows[:MOST_ROWS]:
        step, honest = c.ladder.highest, c.p99_interval
        promised = (
            f"{share_words(step)} within {format.duration(step.promise.high)}"
            if step and step.promise
            else DASH
        )
        effective = honest.n_effective if honest else None
        low = (
            [] if c.p99_lower_bound is None else [f"at least {format.duration(c.p99_lower_bound)}"]
        )
        span = interval(honest, c.absent.get("p99_interval", UNSAID))
        if span.text == DASH and low:
            span = Datum(low[0] + f" (97.5{format.NBSP}%)")
        body.append(
            [
                *([text(c.cell)] if several else []),
                text(op_name(c.op)),
                text(c.latency),
                _field(c, "p99"),
                number(promised, refusal_words(c), strong=True),
                span,
                interval(c.p99_interval_iid, c.absent.get("p99_interval_iid", UNSAID)),
                number(format.count(c.n)),
                number(format.significant(effective), c.absent.get("p99_interval", UNSAID)),
                text(next_words(c.ladder) or "no further step"),
            ]
        )
    return table(head, body, "What may be promised", cut(rows, "rows"))


def groups(view: View) -> Table | None:
    """Return the k-th of n replies by workload and size."""
    found = view.analysis.groups
    if not found:
        return None
    head = [
        "workload",
        "group size",
        "replies waited for",
        "group requests",
        "failed",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
    ]
    body = [
        [
            text(op_name(g.op)),
            number(str(g.size)),
            number(f"{g.k}{' (' + g.level + ')' if g.level else ''}"),
            number(format.count(g.n)),
            number(format.count(g.failed)),
            *(
                number(format.duration(getattr(g, f)), g.absent.get(f, UNSAID))
                for f in ("p50", "p90", "p99", "p99_9", "max")
            ),
        ]
        for g in found[:MOST_ROWS]
    ]
    return table(head, body, "Response time until the k-th of n replies", cut(found, "rows"))


def frame_table(frame: pd.DataFrame, names: Mapping[str, str], caption: str) -> Table | None:
    """Return a frame of percentiles by some names; response above service time."""
    if frame.empty:
        return None
    keys = [name for name in names if name in frame]
    head = [
        *(names[name] for name in keys),
        "time",
        "replies",
        "failed",
        "p50",
        "p90",
        "p99",
        "max",
    ]
    order = frame.assign(_o=[LATENCIES.index(v) if v in LATENCIES else 9 for v in frame["latency"]])
    ordered = order.sort_values([*keys, "_o"]).head(MOST_ROWS)
    why = "too few replies, or the percentile falls among the failed"
    body = [
        [
            *(text(op_name(str(row[name]))) for name in keys),
            text(row["latency"]),
            number(format.count(row["n"])),
            number(format.count(row["failed"])),
            *(number(format.duration(row[p]), why) for p in ("p50", "p90", "p99", "max")),
        ]
        for row in ordered.to_dict("records")
    ]
    return table(head, body, caption, cut(range(len(frame)), "rows"))


def slowest(view: View, most: int = 20) -> Table | None:
    """Return the slowest replies of the run."""
    frame = view.analysis.outliers
    if frame.empty:
        return None
    start = view.analysis.started_ns or 0
    ordered = frame.sort_values("response", ascending=False, na_position="last").head(most)
    body = [
        [
            number(
                format.duration(r["response"]),
                f"status {r['status']}: no reply to time",
                strong=True,
            ),
            number(format.duration(r["service"]), "never sent, or never answered"),
            number(format.duration(r["send_lag"]), "never sent, or waited for a connection"),
            text(op_name(str(r["op"]))),
            text(f"{r['sender']} → {r['receiver']}"),
            number("+ " + format.duration(r["intended_ns"] - start)),
            text(r["status"]),
        ]
        for r in ordered.to_dict("records")
    ]
    return table(
        [
            "response time",
            "service time",
            "our send delay",
            "workload",
            "from → to",
            "due",
            "status",
        ],
        body,
        f"The {len(body)} slowest replies",
    )


def decomposition(view: View) -> Table | None:
    """Return how much of the differences in p90 belongs to sender, receiver and the pair."""
    frame = view.analysis.decomposition
    if frame.empty:
        return None
    why = "too few pairs to split"
    body = [
        [
            text(op_name(str(r["op"]))),
            *(
                number(format.share(r[f"{side}_share"]), why)
                for side in ("sender", "receiver", "pair")
            ),
            number(format.count(r["pairs"])),
        ]
        for r in frame.head(MOST_ROWS).to_dict("records")
    ]
    head = [
        "workload",
        "of the sender",
        "of the receiver",
        "of the link (pair)",
        "pairs",
    ]
    return table(head, body, "Node or link? Shares of the variance of log p90")


def correlation(view: View) -> Table | None:
    """Return each metric's correlations in full."""
    rows = sorted(view.analysis.correlations.rows, key=lambda r: -abs(r.pearson.estimate or 0.0))
    if not rows:
        return None

    def shown(i: Interval) -> Datum:
        if i.estimate is None:
            return Datum(DASH, reason="the metric did not vary")
        ends = (
            f"{format.coefficient(i.low)} to {format.coefficient(i.high)}"
            if i.low is not None
            else ""
        )
        return Datum(format.coefficient(i.estimate), aside=ends)

    body = [
        [
            text(r.metric),
            text(r.scope),
            shown(r.pearson),
            shown(r.spearman),
            number(format.coefficient(r.within), "one receiver only, or no variation in time"),
            number(
                "<0.001" if 0 <= r.q_value < 0.001 else format.significant(r.q_value), "not tested"
            ),
            text(r.highest),
            text(r.words),
        ]
        for r in rows[:MOST_ROWS]
    ]
    return table(
        [
            "metric",
            "of",
            "Pearson",
            "Spearman",
            "Pearson within a receiver",
            "q",
            "highest at",
            "meaning",
        ],
        body,
        "Correlation of each metric with service time",
        cut(rows, "metrics"),
    )
