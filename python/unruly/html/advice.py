"""Findings as they are shown: nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unruly.findings.advice_words import by_reason
from unruly.html import format
from unruly.html.document import Advice, Remark, Table, table, text
from unruly.stats import Interval

if TYPE_CHECKING:
    from unruly.findings.model import Finding
    from unruly.html.view import View

MOST_CHARACTERS = 240


def advice(view: View, section: str) -> tuple[Advice, ...]:
    """Return the findings of a section in the order of their rank, those of one kind together."""
    kinds: dict[tuple[str, str, str], list[Finding]] = {}
    for f in view.analysis.findings:
        if f.section == section:
            kinds.setdefault((f.code, f.severity, f.suggestion), []).append(f)
    names = {*view.node_names(), *(c.op for c in view.analysis.cells), *view.cells}
    return tuple(
        Advice(code, severity, sentence(suggestion), tuple(_remark(f, names) for f in found))
        for (code, severity, suggestion), found in kinds.items()
    )


def absent_advice(view: View) -> Table | None:
    """Return what could not be advised, and why."""
    if view.advice is None:
        return None
    said = view.advice
    rows = [
        [text(part.title or part.name), text(format.listing(who)), text(reason)]
        for part in (said.detection, said.replicas, said.xft, said.profit, said.hedge)
        for reason, who in by_reason(part.absent).items()
    ]
    rows += [
        [text("Timeouts"), text(f"T = {asked}"), text(why)] for asked, why in said.left_out.items()
    ]
    return table(("question", "of", "why there is no answer"), rows, "What cannot be advised")


def _remark(finding: Finding, names: set[str]) -> Remark:
    evidence = tuple(
        (key.replace("_", " "), evidence_text(key, value))
        for key, value in finding.evidence.items()
    )
    title = finding.title
    # A name keeps its spelling, even at the start of a title.
    if title.split(" ")[0] not in names:
        title = format.capital(title)
    return Remark(title, sentence(finding.text), evidence)


def sentence(text: str) -> str:
    """Return the text with a large first letter and a full stop."""
    text = format.capital(text.strip())
    return text if not text or text[-1] in ".!?" else text + "."


def evidence_text(key: str, value: Any) -> str:
    r"""Return one piece of evidence in words; the end of its key says its unit.

    Examples
    --------
    >>> evidence_text("p99_ns", 1_234_567), evidence_text("failed_share", 0.25)
    ('1.23\xa0ms', '25\xa0%')
    """
    shown = _text(key, value)
    return shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 1] + "…"


def _text(key: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: format.DASH, True: "yes", False: "no"}[value]
    if isinstance(value, int | float):
        return _number(key, float(value), whole=isinstance(value, int))
    if isinstance(value, Interval):
        low, high = _text(key, value.low), _text(key, value.high)
        return f"{_text(key, value.estimate)} ({low} to {high}, {format.level(value.level)})"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{k} {_text(f'{key}_{k}' if not _unit(key) else key, v)}" for k, v in value.items()
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(key, v) for v in value)
    return str(value)


def _unit(key: str) -> str:
    return next((u for u in ("_ns", "_share", "_bytes") if key.endswith(u)), "")


def _number(key: str, value: float, *, whole: bool) -> str:
    unit = _unit(key)
    if unit == "_ns":
        return format.duration(value) if abs(value) < 120e9 else format.span(value)
    if unit == "_share":
        return format.share(value)
    if unit == "_bytes":
        return format.size(value)
    return format.count(value) if whole else format.significant(value)
