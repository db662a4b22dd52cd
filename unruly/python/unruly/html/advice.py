"""Findings as they are shown: nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.findings.advice_words import by_reason
from unruly.html import format
from unruly.html.document import Advice, Remark, Table, table, text
from unruly.html.evidence import evidence_name, evidence_text

if TYPE_CHECKING:
    from unruly.findings.model import Finding
    from unruly.html.view import View


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
        (evidence_name(key), evidence_text(key, value)) for key, value in finding.evidence.items()
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
