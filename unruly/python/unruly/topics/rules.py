"""From numbers to findings: the rules of every topic, after those that belong to none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unruly.base import rules
from unruly.base.model import SECTIONS, SEVERITIES, Finding
from unruly.topics.registry import TOPICS

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis

RULES: Final = (*rules.RULES, *(rule for topic in TOPICS for rule in topic.rules))
CODES: Final = tuple(rule.code for rule in RULES)
"""Every code that a rule can raise, in the order of the rules."""


def find(analysis: Analysis) -> list[Finding]:
    """Apply every rule; sort by section, severity, rank. A spoiled run makes no promise."""
    silenced = {
        code
        for topic in TOPICS
        if (model := analysis.topics.get(topic.name)) is not None
        for code in topic.silences(model)
    }
    applied = (rule for rule in RULES if rule.code not in silenced)
    found = [finding for rule in applied for finding in rule.apply(analysis)]
    if any(it.severity == "spoils" for it in found):
        found = [it for it in found if it.code != "promise-made"]
    found.sort(key=lambda f: (SECTIONS.index(f.section), SEVERITIES.index(f.severity), f.rank))
    return found
