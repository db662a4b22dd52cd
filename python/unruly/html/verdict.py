"""The top of the page: may this be trusted, what may be promised, how unruly is it, where from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unruly.html import format
from unruly.html.document import Datum, Table, number, table, text
from unruly.html.figures.glance import glance
from unruly.html.tables import op_name
from unruly.html.view import ALL, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.findings.model import CellSummary
    from unruly.html.document import Figure


@dataclass(frozen=True)
class Statement:
    """One large answer: ``mood`` is ``good``, ``bad`` or ``plain``."""

    question: str
    answer: str
    text: str
    mood: str


@dataclass(frozen=True)
class Verdict:
    """Everything above the first section, of one environment."""

    label: str
    statements: tuple[Statement, ...]
    provenance: tuple[tuple[str, Datum], ...]
    counts: str
    figure: Figure | None = None


def verdict(view: View, *, alone: bool = True) -> Verdict:
    """Return the verdict of one run; with a picture when it is alone on its page."""
    return Verdict(
        view.label,
        (_trust(view), _promise(view), _ratio(view)) if view.rows else (_nothing(view),),
        _provenance(view),
        _counts(view),
        glance(view) if alone and view.rows else None,
    )


def _nothing(view: View) -> Statement:
    run = view.analysis.run
    why = " ".join(run.missing) or f"The run's status is “{run.status}”."
    return Statement(
        "What was measured?",
        "Nothing",
        f"No measured reply is in this run, so nothing can be said of it. {why}",
        "bad",
    )


def _trust(view: View) -> Statement:
    doubts = view.analysis.doubts
    warnings = sum(f.severity == "warns" for f in view.analysis.findings)
    question = "Can I trust it?"
    if doubts:
        return Statement(question, "No", format.capital(". ".join(doubts)) + ".", "bad")
    tail = f", but {format.plural(warnings, 'warning')} below" if warnings else ""
    return Statement(question, "Yes", f"Nothing spoils this measurement{tail}.", "good")


def _promise(view: View) -> Statement:
    question = "What can I promise?"
    if not view.analysis.trustworthy:
        return Statement(
            question, "Nothing", "A measurement that cannot be trusted promises nothing.", "bad"
        )
    kept = [
        (c.promise_p99.high, c)
        for c in view.overall("response")
        if c.promise_p99 is not None and c.promise_p99.high is not None
    ]
    if not kept:
        return _partial_promise(view, question)
    cells = len(view.overall("response"))
    high, loosest = max(kept, key=lambda pair: pair[0])
    level = loosest.promise_p99.level if loosest.promise_p99 else 0.95
    where = (
        ""
        if len(view.cells) < 2
        else f", in {loosest.cell}, the slowest of {len(kept)} configurations"
    )
    left = "" if len(kept) == cells else f" ({cells - len(kept)} more allow no promise)"
    return Statement(
        question,
        f"99{format.NBSP}% within {format.duration(high)}",
        f"Response time{where}{left}, with {format.level(level)} confidence. Measured: "
        f"{format.duration(loosest.p99)}.",
        "plain",
    )


def _partial_promise(view: View, question: str) -> Statement:
    first = view.overall("response")[0]
    why = first.absent.get("promise_p99") or first.abstained or "the analysis gives no upper bound"
    named = [
        c for c in view.by_op("response") if c.op != ALL and c.promise_p99 and c.promise_p99.high
    ]
    if named:
        best = min(named, key=lambda c: (c.promise_p99.high if c.promise_p99 else None) or 0.0)
        bound = best.promise_p99.high if best.promise_p99 else None
        return Statement(
            question,
            f"{op_name(best.op)}: 99{format.NBSP}% within {format.duration(bound)}",
            f"{_which(len(named), len(view.by_op('response')))}, all together do not: {why}.",
            "plain",
        )
    return Statement(question, "Nothing yet", f"{format.capital(why)}.", "bad")


def _which(named: int, of: int) -> str:
    """Say how many workloads allow a promise."""
    if named == of:
        return "Each workload by itself allows a promise" if of > 1 else "It allows a promise"
    return f"Only {named} of {of} workloads allow a promise"


def _spread(c: CellSummary) -> float | None:
    return c.p99 / c.p50 if c.p99 and c.p50 else None


def _ratio(view: View) -> Statement:
    question = "How unruly is it?"
    known = [(s, c) for c in view.overall("response") if (s := _spread(c)) is not None]
    if not known:
        return Statement(
            question,
            format.DASH,
            "More than 1 % failed, or too few replies came: there is no p99.",
            "bad",
        )
    spread, c = max(known, key=lambda pair: pair[0])
    where = f" in {c.cell}" if len(view.cells) > 1 else ""
    maximum = c.max if c.max is not None else c.max_ok
    tail = (
        f" The maximum is {format.times(maximum / c.p50)} the median." if maximum and c.p50 else ""
    )
    return Statement(
        question,
        f"{format.times(spread)} the median",
        f"1 reply in 100 takes longer than {format.duration(c.p99)}, half take at most "
        f"{format.duration(c.p50)}{where}.{tail}",
        "plain",
    )


def _provenance(view: View) -> tuple[tuple[str, Datum], ...]:
    run, analysis = view.analysis.run, view.analysis
    manifest = run.manifest
    tool = manifest.get("tool") or {}
    hosts = [str(h.get("name")) for h in manifest.get("hosts") or []]
    unknown = "the manifest does not say"

    def known(value: object) -> Datum:
        shown = str(value) if value not in (None, "") else format.DASH
        return Datum(shown, unknown if shown == format.DASH else "", number=False)

    return (
        ("Environment", known(run.tag)),
        ("Plan", known(run.name)),
        ("Run", known(run.id)),
        ("Started", known(format.moment(manifest.get("started_ns")))),
        ("Measured", known(format.span(analysis.measured_ns or None))),
        ("Status", known(run.status)),
        ("Hosts", known(format.listing(hosts))),
        ("Processes", known(format.count(analysis.processes))),
        ("Seed", known(manifest.get("seed"))),
        (
            "Tool",
            known(" ".join(str(v)[:12] for v in (tool.get("version"), tool.get("commit")) if v)),
        ),
    )


def _counts(view: View) -> str:
    counted = view.analysis.conservation
    if not view.rows:
        return counted.sentence
    requests = counted.requests or {}
    sentence = f"{format.plural(view.rows, 'reply', 'replies')}"
    if requests.get("scheduled"):
        # those of warm-up and wind-down too, of which no reply is counted here
        sentence += f" measured ({format.plural(int(requests['scheduled']), 'request')} in all)"
    if view.failed:
        sentence += (
            f"; {format.count(view.failed)} of them ({format.share(view.failed / view.rows)}) "
            "failed or never "
            "came. They are not left out: each counts as slower than every reply that came."
        )
    else:
        sentence += "; none failed and none is missing."
    dropped = view.analysis.self_distrust.dropped
    if dropped:
        sentence += f" {format.plural(dropped, 'row')} could not be recorded."
    return sentence


def side_by_side(views: Sequence[View]) -> Table:
    """Return the environments as columns, the answers as rows."""
    columns = ["", *(view.label for view in views)]
    verdicts = [verdict(view, alone=False) for view in views]
    rows = [
        [
            text("trustworthy"),
            *(Datum(v.statements[0].answer, strong=True) for v in verdicts),
        ]
    ]
    firsts = [next(iter(view.overall("response")), None) for view in views]
    services = [next(iter(view.overall("service")), None) for view in views]

    def row(name: str, values: list[str], reasons: list[str]) -> None:
        rows.append([text(name), *(number(v, r) for v, r in zip(values, reasons, strict=True))])

    none = ["nothing measured"] * len(views)
    row("replies", [format.count(v.rows) for v in views], none)
    row("failed", [format.share(v.failed / v.rows) if v.rows else format.DASH for v in views], none)
    row(
        "promise: 99 % within",
        [
            format.duration(c.promise_p99.high) if c and c.promise_p99 else format.DASH
            for c in firsts
        ],
        [c.absent.get("promise_p99", "no bound") if c else none[0] for c in firsts],
    )
    for field, shown in (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9")):
        for name, found in (("response", firsts), ("service", services)):
            row(
                f"{shown}, {name} time",
                [format.duration(getattr(c, field)) if c else format.DASH for c in found],
                [c.absent.get(field, "not given") if c else none[0] for c in found],
            )
    row(
        "p99 / p50",
        [format.times(_spread(c)) if c else format.DASH for c in firsts],
        [c.absent.get("p99", "not given") if c else none[0] for c in firsts],
    )
    row(
        "slow for all",
        [format.listing([n.node for n in v.analysis.slow_nodes.named]) or "nobody" for v in views],
        none,
    )
    row(
        "mean Jaccard index",
        [format.coefficient(v.analysis.slow_nodes.jaccard_mean) for v in views],
        ["no two observers see a slow node"] * len(views),
    )
    row("measured", [format.span(v.analysis.measured_ns or None) for v in views], none)
    note = "" if all(len(v.cells) < 2 for v in views) else "Of the first configuration of each run."
    return table(columns, rows, "The environments side by side", note)
