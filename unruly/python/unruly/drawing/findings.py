"""Findings as they are shown: nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.drawing import format
from unruly.drawing.document import Advice, Remark
from unruly.drawing.evidence import evidence_name, evidence_text

if TYPE_CHECKING:
    from unruly.base.model import Finding
    from unruly.drawing.view import View


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
