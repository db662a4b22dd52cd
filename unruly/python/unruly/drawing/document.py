"""What a page is made of: plain values between the figures, the tables and the template.

Strings in these values are text, never markup: the template escapes all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from unruly.drawing.format import DASH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.drawing.measured import Measured

Spec = dict[str, Any]
ABSENT: Final = (DASH, "Cannot be said. The small number leads to the reason below the table.")
REPORT_WORDS: Final = (
    (
        "Response time",
        "From the moment a request was due by its schedule until its reply was here. What a user "
        "waits.",
    ),
    ("Service time", "From the moment it was sent. What the system took, once it was asked."),
    ("p99", "99 % of the replies took at most so long, 1 % took longer."),
    (
        "Failed, censored",
        "A request without a good reply has no latency. It is not left out: it counts as slower "
        "than every reply that came. A percentile that falls among such requests cannot be said.",
    ),
    (
        "Interval, level",
        "Where the true value lies; at a level of 95 %, such an interval misses it once in 20 runs "
        "at most.",
    ),
    (
        "Promise",
        "The upper end of the interval of the p99: it allows for stalls that come in bursts, and "
        "is withheld when the run is too short to know.",
    ),
    ABSENT,
)
"""What the words of a report mean."""


@dataclass(frozen=True)
class Panel:
    """One Vega-Lite chart of a figure. ``alt`` says in words what the chart shows."""

    spec: Spec
    alt: str
    title: str = ""
    height: int = 280


@dataclass(frozen=True)
class Key:
    """One entry of a legend: a colour of the palette by its index, or a neutral mark."""

    label: str
    colour: int
    mark: str = "dot"


@dataclass(frozen=True)
class Datum:
    """One field of a table: its text, or the reason why it is absent."""

    text: str
    reason: str = ""
    number: bool = True
    strong: bool = False
    aside: str = ""
    """A second line: the interval of a number, for example."""
    url: str = ""
    """Where the text leads to."""


@dataclass(frozen=True)
class Table:
    """A table whose absent fields are explained below it, each reason once."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Datum, ...], ...]
    caption: str
    note: str = ""

    @property
    def blank(self) -> bool:
        """No field holds a number, although some should."""
        numbers = [d for row in self.rows for d in row if d.number]
        return bool(numbers) and all(d.reason for d in numbers)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason for an absent value, once, in order of appearance."""
        return tuple(dict.fromkeys(d.reason for row in self.rows for d in row if d.reason))


@dataclass(frozen=True)
class Figure:
    """A picture with the sentence it proves; ``narrow`` panels stand side by side."""

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[Key, ...] = ()
    tables: tuple[Table, ...] = ()
    narrow: bool = False


@dataclass(frozen=True)
class Remark:
    """One finding's own words."""

    title: str
    text: str
    evidence: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Advice:
    """Findings of one code as they are shown: one in full, several as a list."""

    code: str
    severity: str
    suggestion: str
    remarks: tuple[Remark, ...]


@dataclass(frozen=True)
class Part:
    """A stretch of a section: of one environment where there are several."""

    heading: str = ""
    statements: tuple[Statement, ...] = ()
    lead: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    closed_tables: tuple[Table, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing to say."""
        return not (
            self.statements
            or self.lead
            or self.advice
            or self.figures
            or self.tables
            or self.closed_tables
        )


@dataclass(frozen=True)
class Section:
    """One question of the reader."""

    key: str
    heading: str
    parts: tuple[Part, ...] = field(default_factory=tuple)


@dataclass(frozen=True)
class Statement:
    """One large answer: ``mood`` is ``good``, ``bad`` or ``plain``."""

    question: str
    answer: str
    text: str
    mood: str = "plain"


@dataclass(frozen=True)
class Chapter:
    """Everything about one of several runs; closed until a reader asks for it."""

    key: str
    label: str
    measured: Measured
    verdict: Verdict
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Verdict:
    """What stands above the first section of one run."""

    statements: tuple[Statement, ...]
    next_step: str
    provenance: tuple[tuple[str, str], ...]
    counts: str
    figure: Figure | None = None


@dataclass(frozen=True)
class Page:
    """A whole page: its heading, the answers, the questions, and the runs that were compared."""

    headline: str
    sentence: str = ""
    command: str = ""
    kicker: str = ""
    statements: tuple[Statement, ...] = ()
    verdict: Verdict | None = None
    sections: tuple[Section, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    title: str = "unruly report"
    """Follows the headline in the title of the window."""
    glossary: tuple[tuple[str, str], ...] = REPORT_WORDS
    """Words and their explanations, at the end of the page."""

    @property
    def figures(self) -> list[Figure]:
        """Every figure, in order."""
        verdicts = [self.verdict, *(it.verdict for it in self.chapters)]
        found = [it.figure for it in verdicts if it is not None and it.figure is not None]
        every = [*self.sections, *(it for chapter in self.chapters for it in chapter.sections)]
        return [*found, *(f for section in every for part in section.parts for f in part.figures)]


def text(value: object, *, strong: bool = False) -> Datum:
    """Return a field of words."""
    return Datum(str(value), number=False, strong=strong)


def link(value: str, url: str | None) -> Datum:
    """Return a field of words that lead to a URL, where there is one."""
    return Datum(value, number=False, url=url or "")


def number(shown: str, reason: str = "", *, strong: bool = False) -> Datum:
    """Return a field of a number; the reason is kept only when the number is absent."""
    return Datum(shown, reason=reason if shown == DASH else "", strong=strong)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Datum]], caption: str, note: str = ""
) -> Table:
    """Return a table from any sequences."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows), caption, note)
