"""A rule: from numbers to a finding, and the text that explains the finding.

The docstring of the rule's function is that text. Its first line says in one line what the finding
means. Each later paragraph may begin with a label of `PARTS`; other paragraphs continue the part
before them. A name in braces is a constant with its unit: ``{LATE_LIMIT:percent}`` is one of the
rule's own module, ``{blocks.EPISODES_MIN:count}`` one of a module in `Rule.constants`. A code in
brackets, such as ``[slow-node]``, becomes a link to the text of that finding.
"""

from __future__ import annotations

import inspect
import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unruly.quantity import count, duration, percent, significant, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from unruly.base.analysis import Analysis
    from unruly.base.model import Finding, Section, Severity

PARTS: Final = {
    "Example": "Example",
    "Raised": "When it is raised",
    "Means": "What it means",
    "Next": "What to do next",
    "Numbers": "Where the numbers are",
}
"""The labels of a docstring, in their order, and the words that a page has for them."""
REQUIRED: Final = ("Raised", "Means", "Next", "Numbers")
UNITS: Final[dict[str, Callable[[Any], str]]] = {
    "count": count,
    "duration": duration,
    "number": significant,
    "percent": percent,
    "size": size,
}
_LABEL: Final = re.compile(rf"({'|'.join(PARTS)}): +(.+)", re.DOTALL)


@dataclass(frozen=True)
class Explanation:
    """What a code means.

    Attributes
    ----------
    meaning : str
        One sentence.
    parts : dict
        The paragraphs of each part, by its label.
    """

    meaning: str
    parts: dict[str, list[str]]


@dataclass(frozen=True)
class Rule:
    """Looks at one thing and reports it once, or is silent.

    Attributes
    ----------
    code : str
        The code of its findings.
    section : str
        The section of its findings: one of `unruly.base.model.SECTIONS`.
    severities : tuple of str
        The severities that a finding of it can have, the gravest first.
    find : callable
        Yields its findings. Its docstring explains them.
    constants : tuple of module
        Other modules whose constants the docstring names.
    """

    code: str
    section: Section
    severities: tuple[Severity, ...]
    find: Callable[[Analysis], Iterator[Finding]]
    constants: tuple[ModuleType, ...] = ()

    def apply(self, analysis: Analysis) -> Iterator[Finding]:
        """Yield the findings, each with the code, section and severity that the rule declares."""
        for it in self.find(analysis):
            declared = (it.code, it.section) == (self.code, self.section)
            assert declared, f"{self.code}: the rule does not declare {it.code} in {it.section}"
            assert it.severity in self.severities, f"{self.code}: {it.severity} is not declared"
            yield it

    @property
    def explanation(self) -> Explanation:
        """The docstring, with its constants filled in.

        Raises
        ------
        ValueError
            The docstring is missing, or lacks a part of `REQUIRED`.
        KeyError
            The docstring names a constant that its module does not have.
        """
        names = {it.__name__.rpartition(".")[2]: it for it in self.constants}
        names |= vars(inspect.getmodule(self.find))
        text = _Filler().vformat(inspect.getdoc(self.find) or "", (), names)
        meaning, *paragraphs = re.split(r"\n\n+", text.strip())
        parts: dict[str, list[str]] = {}
        label = ""
        for paragraph in paragraphs:
            if found := _LABEL.fullmatch(paragraph):
                label = found[1]
            parts.setdefault(label, []).append(found[2] if found else paragraph)
        missing = [it for it in REQUIRED if it not in parts]
        if missing or "" in parts or not meaning:
            named = ", ".join(missing) or "a label for each paragraph"
            raise ValueError(f"{self.code}: the docstring of its rule lacks {named}")
        return Explanation(meaning.removesuffix("."), parts)


class _Filler(string.Formatter):
    """Writes constants with their units."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a constant as people read it."""
        return UNITS[format_spec](value)
