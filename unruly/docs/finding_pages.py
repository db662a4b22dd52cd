"""Write the pages of the findings from the docstrings of their rules.

Run ``make pages``. Each section of the findings has a page, and each code a heading on it, so that
``where.md#slow-node`` is a link that lasts.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unruly.base.model import SECTIONS
from unruly.base.rule import PARTS
from unruly.drawing.pieces import QUESTIONS
from unruly.topics.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from unruly.base.rule import Rule

FOLDER: Final = Path(__file__).with_name("findings")
TITLES: Final = {**QUESTIONS, "why": "What may explain the tail?"}
"""The title of each section's page: the question that the report has above these findings."""
SOURCE: Final = "`make pages` writes this page from the docstrings of the rules."
ELSEWHERE: Final = "[The index](README.md) lists all findings."
INDEX: Final = f"""# Findings

A finding is a structured piece of advice. It has a code, a section, a severity, its evidence and a
suggestion. The sections follow the questions of a reader. The severities are:

- **spoils**: the run cannot be trusted, and makes no promise.
- **warns**: look at it before you use the numbers.
- **informs**: a result.

`unruly verdict`, `unruly report` and `summary.json` (under `findings`) show the findings of a run.
{SOURCE}
"""
BULLET: Final = "- "
NO_BREAK: Final = "\u00a0%"
"""A percent sign that stays on the line of its number."""
CODE: Final = re.compile(r"\[([a-z0-9-]+)\](?!\()")


def texts(rules: Iterable[Rule] = RULES) -> dict[Path, str]:
    """Return the text of the index, and of the page of each section that has a rule."""
    known = {rule.code: rule for rule in rules}
    by_section = {
        section: own
        for section in SECTIONS
        if (own := [rule for rule in known.values() if rule.section == section])
    }
    pages = {f"{section}.md": _page(own, known) for section, own in by_section.items()}
    pages["README.md"] = _index(by_section)
    return {FOLDER / name: text for name, text in pages.items()}


def _index(by_section: Mapping[str, list[Rule]]) -> str:
    """Return every code with what it means, by section."""
    parts = [INDEX]
    for section, own in by_section.items():
        rows = "\n".join(
            _wrapped(
                f"- [{rule.code}]({section}.md#{rule.code}), {_severity(rule)}: "
                f"{rule.explanation.meaning}."
            )
            for rule in own
        )
        parts.append(f"## [{TITLES[section]}]({section}.md)\n\n{rows}\n")
    return "\n".join(parts)


def _page(own: list[Rule], known: Mapping[str, Rule]) -> str:
    """Return the page of a section."""
    section = own[0].section
    lead = f"These are the findings of the section `{section}`. {SOURCE} {ELSEWHERE}"
    head = f"# {TITLES[section]}\n\n{_wrapped(lead)}\n"
    return "\n".join([head, *(_entry(rule, known) for rule in own)])


def _entry(rule: Rule, known: Mapping[str, Rule]) -> str:
    """Return the heading of a code and its text."""

    def linked(found: re.Match[str]) -> str:
        other = known[found[1]]
        page = "" if other.section == rule.section else f"{other.section}.md"
        return f"[{other.code}]({page}#{other.code})"

    explained = rule.explanation
    paragraphs = [f"## {rule.code}", f"*{_severity(rule).capitalize()}.* {explained.meaning}."]
    for label, heading in PARTS.items():
        first, *rest = explained.parts.get(label, [""])
        if label == "Example" and first:
            paragraphs.append(f'**{heading}**: "{first}"')
        elif first:
            paragraphs += [f"**{heading}.** {first}", *rest]
    return "\n\n".join(_wrapped(CODE.sub(linked, it)) for it in paragraphs) + "\n"


def _severity(rule: Rule) -> str:
    *others, last = rule.severities
    return f"{', '.join(others)} or {last}" if others else last


def _wrapped(paragraph: str) -> str:
    """Return a paragraph or a list in lines of 100 columns."""
    items = re.split(rf"\n(?={BULLET})", paragraph)
    lines = "\n".join(
        textwrap.fill(
            " ".join(item.split()).replace(" %", NO_BREAK),
            100,
            subsequent_indent="  " if item.startswith(BULLET) else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for item in items
    )
    return lines.replace(NO_BREAK, " %")
