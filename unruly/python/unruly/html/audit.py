"""The page of an audit: what the percentiles of other tools' files are worth, and why."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from unruly.drawing import format
from unruly.drawing.document import ABSENT, Datum, Page, Part, Section, Statement, number, table
from unruly.html.figures.audit import picture
from unruly.html.page import write_page
from unruly.output import audit as words

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from unruly.auditing import Audited
    from unruly.drawing.document import Table

PICTURES_MOST: Final = 24
"""The pictures of a page: each has up to a thousand marks."""
NAMES_MOST: Final = 4
"""The files that a statement names."""
MOODS: Final = {"sound": "good", "unsure": "bad", "omits": "bad", "failed": "bad"}
RELIABLE: Final = {"sound": "good", "unsure": "bad"}
NO_HELP: Final = "a longer run does not help: it lacks the same requests"


def write_audit(found: Sequence[Audited], output: str | os.PathLike[str]) -> Path:
    """Write one HTML page of an audit.

    Parameters
    ----------
    found : sequence of Audited
        As `unruly.audit` returns them; at least one.
    output : path-like
        The file to write; its directory is made. An older file is replaced at once.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    ValueError
        If `found` is empty.
    """
    if not found:
        raise ValueError("found is empty; wanted at least one operation; hint: unruly.audit(FILE)")
    return write_page(audit_page(found), output)


def audit_page(found: Sequence[Audited]) -> Page:
    """Return the page of an audit, the conclusion first."""
    every, found = found, words.shown(found)
    first, name, alone = found[0], words.name_of(found[0]), len(found) == 1
    return Page(
        words.glued(format.capital(words.conclusion(first))) if alone else _headline(found, name),
        f"{first.file} ({first.format}), {words.place_of(first)}: {words.glued(words.size(first))}"
        if alone
        else f"{format.capital(words.meaning(first))}. Each one here is an estimate from one run.",
        kicker=f"What is this {name} worth?" if alone else f"What are these {name} figures worth?",
        statements=_answers(first) if alone else _counts(found),
        sections=(*(() if alone else (_side_by_side(found),)), *_files(found, every)),
        title="unruly audit",
        glossary=_glossary(first),
    )


def _headline(found: Sequence[Audited], name: str) -> str:
    sound = sum(words.outcome(it) == "sound" for it in found)
    if sound == len(found):
        return f"All {len(found)} {name} figures are worth what they say"
    if not sound:
        return f"None of these {len(found)} {name} figures is known to be worth what it says"
    verb = "is worth what it says" if sound == 1 else "are worth what they say"
    return f"{sound} of {len(found)} {name} figures {verb}"


def _counts(found: Sequence[Audited]) -> tuple[Statement, ...]:
    """Return how many percentiles are of each kind, and in which files."""
    kinds = (
        ("Which can I use as they are?", ("sound",), "good"),
        ("Which look better than they are?", ("unsure", "omits"), "bad"),
        ("Which cannot be judged?", ("undecided", "silent", "failed"), "plain"),
    )
    statements = []
    for question, outcomes, mood in kinds:
        names = [_short(it, found) for it in found if words.outcome(it) in outcomes]
        listed = f"{format.listing(names, NAMES_MOST)}." if names else ""
        answer = f"{len(names)} of {len(found)}" if names else "None"
        statements.append(_statement(question, answer, listed, mood if names else "plain"))
    return tuple(statements)


def _short(it: Audited, found: Sequence[Audited]) -> str:
    """Return the name of a file, with the operation if the file has several."""
    alone = sum(other.file == it.file for other in found) == 1
    return it.file if alone else f"{it.file} ({words.place_of(it)})"


def _answers(it: Audited) -> tuple[Statement, ...]:
    """Return the questions of a reader about one percentile, each with its answer."""
    name, outcome = words.name_of(it), words.outcome(it)
    if it.claims is None or it.claims.estimate is None:
        answer = format.capital(words.OUTCOMES[outcome])
        why = f"{format.capital(words.conclusion(it))}."
        mood = MOODS.get(outcome, "plain")
        return (_statement(f"What is the {name} worth?", answer, why, mood), _omitted(it))
    claims, own = it.claims, it.claims.own.interval
    return (
        _statement(
            f"What do tools claim about the {name}?",
            _bounds(claims.low, claims.high) or "No bounds",
            f"The {name} of this file is {format.duration(it.estimate)}. {words.claimed(it)}",
        ),
        _reliable(it),
        _statement(
            "What does this file support?",
            (_bounds(own.low, own.high) if own else "") or "No bounds",
            words.supported(it) or f"{format.capital(words.reason(it))}.",
        ),
        _run_length(it),
        _omitted(it),
    )


def _bounds(low: float | None, high: float | None) -> str:
    """Return bounds in words; empty if there are none."""
    if low is None:
        return ""
    return f"{format.duration(low)} {f'to {format.duration(high)}' if high else 'or more'}"


def _reliable(it: Audited) -> Statement:
    question = "How often is that claim true here?"
    held = it.claims.interval_held if it.claims else None
    if held is None:
        why = f"{format.capital(words.reason(it))}. Nothing in this file can decide it."
        return _statement(question, "Not known", why)
    answer = f"In about {words.glued(words.share(held))} of runs"
    return _statement(question, answer, words.held(it), RELIABLE.get(words.outcome(it), "plain"))


def _statement(question: str, answer: str, text: str, mood: str = "plain") -> Statement:
    return Statement(question, words.glued(answer), words.glued(text), mood)


def _needed(it: Audited) -> float | None:
    """Return the run length (ns) to advise; None if it is this one or is not known."""
    if it.claims is None or words.outcome(it) in ("sound", "omits", "failed"):
        return None
    return it.needed_ns if it.claims.own.abstained else it.as_narrow_ns


def _run_length(it: Audited) -> Statement:
    question, needed = "How long should a run be?", _needed(it)
    took = f" This one took {format.duration(it.duration_ns)}." if it.duration_ns else ""
    if words.outcome(it) == "omits":
        why = f"{format.capital(NO_HELP)}. Send on a schedule: unruly drive URL -r RATE.{took}"
        return _statement(question, "Longer does not help", why)
    if needed:
        answer = f"{_about(it)} {format.duration(needed)}"
        return _statement(question, answer, f"{words.length(it)}{took}")
    if words.outcome(it) == "sound":
        why = f"The usual bounds are right for such a run.{took}"
        return _statement(question, "As long as this one", why, "good")
    why = "" if it.duration_ns else ", because it has no time of each request"
    return _statement(question, "Not known", f"This file cannot show it{why}.{took}")


def _about(it: Audited) -> str:
    return "At least" if words.at_least(it) else "About"


def _omitted(it: Audited) -> Statement:
    question = "Did the tool leave out waiting?"
    if it.scheduled:
        return _statement(question, "No", words.waits(it), "good")
    if it.omission:
        answer = f"Probably: about {words.missing(it.omission)} requests are missing"
        return _statement(question, answer, words.waits(it), "bad")
    return _statement(question, "No sign of it" if it.seen else "Not known", words.waits(it))


def _side_by_side(found: Sequence[Audited]) -> Section:
    name = words.name_of(found[0])
    columns = (
        "file", "what it is worth", name, "usual bounds", "true in", "this file supports",
        "run needed",
    )  # fmt: skip
    note = (
        "The usual bounds assume that each request is slow or fast by itself, and claim to be true "
        f"in {words.LEVEL_SHOWN} of runs."
    )
    rows = table(columns, [_row(it) for it in found], f"The {name} of each file", note)
    return Section("all", "All files side by side", (Part(tables=(rows,)),))


def _row(it: Audited) -> list[Datum]:
    claims, outcome = it.claims, words.outcome(it)
    held = claims.interval_held if claims else None
    own = claims.own.interval if claims else None
    none = it.why or "the file is too short"
    why = words.reason(it) if claims and claims.own.abstained else none
    if outcome == "failed":
        none = why = words.conclusion(it)
    no_length = NO_HELP if outcome == "omits" else why
    return [
        Datum(it.file, number=False, aside=words.place_of(it)),
        Datum(words.OUTCOMES[outcome], number=False, strong=outcome in MOODS),
        number(format.duration(it.estimate), none),
        number((_bounds(claims.low, claims.high) if claims else "") or format.DASH, none),
        Datum(words.glued(words.share(held)), aside=words.glued(words.span(held)))
        if held
        else number(format.DASH, why),
        number((_bounds(own.low, own.high) if own else "") or format.DASH, why),
        number("as this one" if outcome == "sound" else _length(it), no_length),
    ]


def _length(it: Audited) -> str:
    """Return the run length to advise, for a column; a dash if it is not known."""
    needed = _needed(it)
    if needed is None:
        return format.DASH
    return f"{_about(it).lower()} {format.duration(needed)}"


def _files(found: Sequence[Audited], every: Sequence[Audited]) -> list[Section]:
    """Return a section for each file, with a part for each operation that is shown."""
    sections: list[Section] = []
    drawn, alone = 0, len(found) == 1
    for file, group in groupby(found, key=lambda it: it.file):
        own, parts = list(group), []
        for it in own:
            figure = picture(it, f"audit-{drawn}") if drawn < PICTURES_MOST else None
            drawn += figure is not None
            heading = words.place_of(it) if len(own) > 1 else ""
            conclusion = words.glued(f"{format.capital(words.conclusion(it))}.")
            size = f"{it.format}, {words.place_of(it)}: {words.glued(words.size(it))}"
            parts.append(
                Part(
                    heading,
                    () if alone else _answers(it),
                    () if alone else (conclusion, size),
                    figures=(figure,) if figure else (),
                    closed_tables=_numbers(it),
                )
            )
        parts += [
            Part(lead=(it,)) for it in words.left_out([it for it in every if it.file == file])
        ]
        kept = tuple(it for it in parts if not it.empty)
        if kept:
            heading = "What the requests show" if alone else file
            sections.append(Section(f"file-{len(sections)}", heading, kept))
    return sections


def _numbers(it: Audited) -> tuple[Table, ...]:
    """Return the bounds of one percentile in a table; none if there is no claim."""
    claims = it.claims
    if claims is None or claims.estimate is None:
        return ()
    short = "the file is too short"
    no_high = "it falls among the failed requests" if claims.high_failed else short
    why = words.reason(it) if claims.own.abstained else short
    own = claims.own.interval
    rows = [
        ("usual formula", claims.low, claims.high, words.LEVEL_SHOWN, claims.interval_held),
        ("MLPerf's early stopping", None, claims.bound, words.EARLY_SHOWN, claims.bound_held),
        (
            "this file", own.low if own else None, own.high if own else None,
            words.LEVEL_SHOWN, None,
        ),
    ]  # fmt: skip
    reasons = (short, "it claims an upper bound only", why)
    laid = [
        [
            Datum(name, number=False),
            number(format.duration(low), reason),
            number(format.duration(high), no_high if name != "this file" else why),
            number(words.glued(level)),
            Datum(words.glued(words.share(held)), aside=words.glued(words.span(held)))
            if held
            else number(format.DASH, "its method allows for it" if name == "this file" else why),
        ]
        for (name, low, high, level, held), reason in zip(rows, reasons, strict=True)
    ]
    columns = ("bounds of", "from", "to", "confidence", "true in")
    return (table(columns, laid, f"All bounds of the {words.name_of(it)}"),)


def _glossary(it: Audited) -> tuple[tuple[str, str], ...]:
    name = words.name_of(it)
    return (
        (name, format.capital(words.legend(it))),
        (
            "Bounds, confidence",
            f"Two times between which the true {name} lies. At 95 % confidence, bounds miss it in "
            f"5 of 100 runs.",
        ),
        (
            "Usual formula",
            f"Order statistics: two requests of the sorted file between which the true {name} "
            f"lies, if each request is slow or fast by itself.",
        ),
        (
            "Episode",
            f"A stretch of time in which requests were slower than the {name} together, for one "
            f"reason. A pause of a second is one episode, however many requests it delays.",
        ),
        (
            "True in",
            "How often a claim is right. The page draws new runs from the file in whole blocks of "
            "time, so that a pause stays a pause, and counts in how many of them the claim holds.",
        ),
        (
            "MLPerf's early stopping",
            f"A rule of the MLPerf benchmarks. It counts the slow requests and puts an upper bound "
            f"on the {name}, as if each request were slow or fast by itself.",
        ),
        (
            "Coordinated omission",
            "A client that waits for a slow reply sends nothing meanwhile. The requests that it "
            "did not send would have been slow too, so the file shows too few slow requests.",
        ),
        ABSENT,
    )
