"""What the papers found: one file a paper, checked for completeness."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from unruly.errors import PaperError

FILES: Final = ("unruly-1-percent", "synchrony", "bursts", "stores", "streams")
STATES: Final = ("not judged yet", "not built yet", "not obtainable")
KEYS: Final = frozenset({"id", "what", "living", "judge", "state", "why", "shown", "plan", "about"})


@dataclass(frozen=True)
class Claim:
    """A finding, figure or table: judged by runs, shown in a document, or not (yet) possible.

    ``plan`` are the names of plans whose runs can judge it, where they are not those of the paper.
    ``about`` are the systems that the claim is about, where it is about several. A claim that has
    a judge may say ``why`` no run was judged.
    """

    id: str
    what: str
    living: str = ""
    judge: str = ""
    state: str = ""
    why: str = ""
    shown: str = ""
    plan: str = ""
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paper:
    """One paper: its claims in order, and the plans that most of them are judged by."""

    number: int
    name: str
    title: str
    plan: str
    figures: int
    tables: int
    claims: tuple[Claim, ...]

    def plans_of(self, claim: Claim) -> tuple[str, ...]:
        """Return the plans whose runs can judge a claim, the best first."""
        return tuple((claim.plan or self.plan).split())


def papers() -> tuple[Paper, ...]:
    """Read all papers.

    Raises
    ------
    PaperError
        When a file lacks a figure or table of its paper, or a claim is neither judged, shown nor
        excused.
    """
    return tuple(_read(name) for name in FILES)


def _read(name: str) -> Paper:
    place = files("unruly.papers").joinpath(f"{name}.toml")
    told = tomllib.loads(place.read_text(encoding="utf-8"))
    claims = tuple(_claim(name, row) for row in told["claim"])
    paper = Paper(
        told["number"], name, told["title"], told["plan"], told["figures"], told["tables"], claims
    )
    ids = [claim.id for claim in claims]
    wanted = [f"fig{n}" for n in range(1, paper.figures + 1)]
    wanted += [f"tab{n}" for n in range(1, paper.tables + 1)]
    lacking = [it for it in wanted if it not in ids]
    if lacking or len(set(ids)) < len(ids):
        raise PaperError(
            f"{name}.toml",
            f"lacks {', '.join(lacking)}" if lacking else "names a claim twice",
            "every figure and table once",
            "add a [[claim]]",
        )
    return paper


def _claim(name: str, row: dict[str, Any]) -> Claim:
    about = tuple(row.get("about", ()))
    claim = Claim(**{**row, "about": about}) if set(row) <= KEYS else None
    given = claim and [bool(claim.judge), bool(claim.shown), claim.state in STATES]
    if claim is None or sum(given or []) != 1 or (claim.state and not claim.why):
        raise PaperError(
            f"{name}.toml: {row.get('id')}",
            "is neither judged, shown, nor excused with a reason, or has an unknown key",
            "one of judge, shown, state (with why)",
            "mend the [[claim]]",
        )
    return claim
