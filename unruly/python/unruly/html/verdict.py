"""The top of the page: did it work, can it be trusted, what can be promised, what made it slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.base.promise import CONFIDENCE, SPOILED, next_words, share_words
from unruly.base.promise_words import refusal_words
from unruly.base.worked import kinds_words
from unruly.drawing import format
from unruly.drawing.document import Statement, Verdict
from unruly.drawing.findings import sentence
from unruly.drawing.tables import op_name
from unruly.drawing.view import ALL, View
from unruly.html.figures.glance import glance
from unruly.output.verdict import next_step
from unruly.topics.causes.because import because, sent_late
from unruly.topics.causes.figures import nothing_explains
from unruly.topics.causes.model import causes_of

if TYPE_CHECKING:
    from unruly.base.operation import CellSummary
    from unruly.base.promise import PromiseStep

OUTAGES_MOST = 2


def verdict(view: View, *, alone: bool = True) -> Verdict:
    """Return the verdict of one run; with a picture when it is alone on its page."""
    return Verdict(
        statements(view),
        sentence(next_step(view.analysis)),
        _provenance(view),
        _counts(view),
        glance(view) if alone and view.rows else None,
    )


def statements(view: View) -> tuple[Statement, ...]:
    """Return the four large answers, or the one that nothing was measured.

    A run without a latency, such as a stream between two hosts, has two answers.
    """
    if not view.rows and view.analysis.measured_ns:
        return (_flowed(view), _trust(view))
    if not view.rows:
        return (_nothing(view),)
    return (_worked(view), _trust(view), _promise(view), _slow(view))


def _nothing(view: View) -> Statement:
    run = view.analysis.run
    why = " ".join(run.missing) or f"The run's status is “{run.status}”."
    return Statement(
        "What was measured?",
        "Nothing",
        f"No measured reply is in this run, so nothing can be said of it. {why}",
        "bad",
    )


def _flowed(view: View) -> Statement:
    worked = view.analysis.worked
    head, _, told = worked.sentence.partition(": ")
    return Statement("Did it work?", head, format.capital(told), "good" if worked.ok else "bad")


def _worked(view: View) -> Statement:
    question, worked = "Did it work?", view.analysis.worked
    if not worked.failed:
        return Statement(
            question, "Yes", f"All {format.count(worked.requests)} requests were answered.", "good"
        )
    kinds = kinds_words(worked.kinds)
    if worked.ok:
        told = f"{format.count(worked.failed)} of {format.count(worked.requests)} requests failed"
        return Statement(
            question, "Yes", f"{told} ({format.share(worked.share)}): {kinds}.", "good"
        )
    outages = [it.words for it in worked.outages[:OUTAGES_MOST]]
    more = len(worked.outages) - len(outages)
    rest = [f"{format.plural(more, 'more outage')}."] if more else []
    told = f"Of {format.count(worked.requests)} requests {kinds}."
    return Statement(
        question, f"{format.share(worked.share)} failed", " ".join([*outages, *rest, told]), "bad"
    )


def _trust(view: View) -> Statement:
    doubts = view.analysis.doubts
    warnings = sum(f.severity == "warns" for f in view.analysis.findings)
    question = "Can I trust it?"
    if doubts:
        return Statement(question, "No", format.capital(". ".join(doubts)) + ".", "bad")
    tail = f", but {format.plural(warnings, 'warning')} below" if warnings else ""
    # a green yes beside a red outage would be read as "all is well"
    mood = "good" if view.analysis.worked.ok else "plain"
    return Statement(question, "Yes", f"Nothing spoils this measurement{tail}.", mood)


def _promise(view: View) -> Statement:
    question = "What can I promise?"
    if not view.analysis.trustworthy:
        return Statement(question, "Nothing", f"{format.capital(SPOILED)}.", "bad")
    rows = view.overall("response")
    kept = [(step, c) for c in rows if (step := c.ladder.highest)]
    if not kept:
        return _partial_promise(view, question)
    step, loosest = min(kept, key=_looseness)
    where = (
        ""
        if len(view.cells) < 2
        else f", in {loosest.cell}, the slowest of {len(kept)} configurations"
    )
    left = "" if len(kept) == len(rows) else f" ({len(rows) - len(kept)} more allow no promise)"
    said = (next_words(loosest.ladder), step.note)
    further = "".join(f" {format.capital(it)}." for it in said if it)
    return Statement(
        question,
        _bound(step),
        f"Response time{where}{left}, with {CONFIDENCE}. Measured: "
        f"{format.duration(step.estimate)}.{further}",
    )


def _looseness(kept: tuple[PromiseStep, CellSummary]) -> tuple[float, float]:
    """The lowest step first, and of these the highest bound."""
    step, _ = kept
    return step.p, -((step.promise.high if step.promise else None) or 0.0)


def _bound(step: PromiseStep) -> str:
    """Write the bound of a step that has a promise, its share unbroken."""
    share = share_words(step).replace(" ", format.NBSP)
    return f"{share} within {format.duration(step.promise.high if step.promise else None)}"


def _partial_promise(view: View, question: str) -> Statement:
    overall = view.first_of_all("response")
    why = refusal_words(overall) if overall else "several histograms are not added up"
    named = [
        (step, c) for c in view.by_op("response") if c.op != ALL and (step := c.ladder.highest)
    ]
    if named:
        step, best = max(named, key=_looseness)
        return Statement(
            question,
            f"{op_name(best.op)}: {_bound(step)}",
            f"{_which(len(named), len(view.by_op('response')))}, all together do not: {why}.",
        )
    return Statement(question, "Nothing yet", f"{format.capital(why)}.", "bad")


def _which(named: int, of: int) -> str:
    """Say how many workloads allow a promise."""
    if named == of:
        return "Each workload by itself allows a promise" if of > 1 else "It allows a promise"
    return f"Only {named} of {of} workloads allow a promise"


def _slow(view: View) -> Statement:
    """Name what made the slow requests slow: the first cause of the worst p99, or a slow node."""
    question, found = "Why were some slow?", causes_of(view.analysis)
    rows = {(row.cell, row.op): row for row in (found.rows if found else ()) if row.causes}
    worst = sorted(view.analysis.cells, key=lambda c: -(c.p99 or 0.0))
    row = next((rows[c.cell, c.op] for c in worst if (c.cell, c.op) in rows), None)
    if row is not None:
        top = row.causes[0]
        unknown = row.unknown.estimate if row.unknown else None
        left = f" {format.share(unknown)} is unexplained." if unknown else ""
        where = f" ({row.cell})" if len(view.cells) > 1 else ""
        return Statement(
            question,
            format.capital(top.label),
            f"It explains {format.share(top.explained.estimate)} of the slow requests of "
            f"{op_name(row.op)}{where}.{left}",
        )
    slow = view.analysis.slow_nodes.named
    if slow:
        # a name is not broken at its hyphen
        name = slow[0].node.replace("-", format.HYPHEN)
        return Statement(question, f"{name} is slow", f"{slow[0].words}.")
    if not view.analysis.worked.ok:
        return Statement(question, "It did not work", "First find out why requests failed.")
    late = sent_late(view.analysis)
    if late is not None:
        return Statement(question, "The load generator", f"{format.capital(late)}.")
    layer = next((it for it in view.analysis.findings if it.code == "slow-layer"), None)
    if layer is not None:
        service, name = layer.evidence["service"], layer.evidence["layer"]
        outside = layer.evidence["role"] == "outside"
        head = "Outside of all spans" if outside else f"{service}: {name}"
        return Statement(question, head, f"{format.capital(layer.title)}.")
    why = because(view.analysis) if view.analysis.findings else None
    _, _, candidates = (why or "").partition("; ")
    told = f" {format.capital(candidates)}." if candidates else ""
    return Statement(question, "Not explained", f"{nothing_explains(view)}{told}")


def spread(c: CellSummary) -> float | None:
    """Return how many times its median a p99 is."""
    return c.p99 / c.p50 if c.p99 and c.p50 else None


def _provenance(view: View) -> tuple[tuple[str, str], ...]:
    """Return the facts that the manifest knows, each with its name."""
    run, analysis = view.analysis.run, view.analysis
    manifest = run.manifest
    tool = manifest.get("tool") or {}
    hosts = [str(h.get("name")) for h in manifest.get("hosts") or []]
    seed = manifest.get("seed")
    known = (
        ("Environment", run.tag),
        ("Plan", run.name),
        ("Run", run.id),
        ("Measured", format.span(analysis.measured_ns or None)),
        ("Status", run.status),
        ("Hosts", format.listing(hosts)),
        ("Processes", format.count(analysis.processes) if analysis.processes else ""),
        ("Seed", "" if seed is None else str(seed)),
        ("Tool", " ".join(str(v)[:12] for v in (tool.get("version"), tool.get("commit")) if v)),
    )
    return tuple((name, shown) for name, shown in known if shown not in ("", format.DASH))


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
    elif view.analysis.run.keeps_bins_alone:
        sentence += " in histograms, and no failure."
    else:
        sentence += "; none failed and none is missing."
    dropped = view.analysis.self_distrust.dropped
    if dropped:
        sentence += f" {format.plural(dropped, 'row')} could not be recorded."
    return sentence
