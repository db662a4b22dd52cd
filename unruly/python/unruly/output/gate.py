"""What a gate says: a line for each limit, JUnit XML for any CI, JSON for programs."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from unruly.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.base.analysis import Analysis
    from unruly.base.judging import Outcome

MARKS: Final = {"held": "  held     ", "broken": "!! broken   ", "undecided": " ? undecided"}
COLOURS: Final = {"held": "\x1b[32m", "broken": "\x1b[31m", "undecided": "\x1b[33m"}
PLAIN: Final = "\x1b[0m"
INDENT: Final = " " * 13
FINE_EXIT, FINDING_EXIT, ERROR_EXIT, UNDECIDED_EXIT = 0, 1, 2, 3
"""2 is an error: a file that cannot be read, an operation that the run does not have."""


def exit_code(analysis: Analysis, outcomes: Sequence[Outcome], *, strict: bool) -> int:
    """Return 1 when a limit is broken or the run is spoiled, 3 when one is undecided, else 0.

    With `strict` an undecided limit counts as broken. A run that is not whole is no measurement,
    but an error: 2.
    """
    if not analysis.run.whole:
        return ERROR_EXIT
    found = {it.outcome for it in outcomes}
    if not analysis.trustworthy or "broken" in found:
        return FINDING_EXIT
    if "undecided" in found:
        return FINDING_EXIT if strict else UNDECIDED_EXIT
    return FINE_EXIT


def gate_text(
    analysis: Analysis, outcomes: Sequence[Outcome], *, width: int = 100, colour: bool = False
) -> str:
    """Return a line or two for each limit, and the sum of them."""
    return "\n".join(_lines(analysis, outcomes, max(60, width), colour=colour))


def _lines(
    analysis: Analysis, outcomes: Sequence[Outcome], width: int, *, colour: bool
) -> Iterator[str]:
    if not analysis.run.whole:
        yield "unruly gate: THIS RUN IS NOT WHOLE, which is an error"
        yield from _wrapped(_missing(analysis), width)
    if not analysis.trustworthy:
        yield "unruly gate: THIS RUN IS SPOILED, only failures are judged"
        yield from _wrapped("; ".join(analysis.doubts), width)
    quiet = [it for it in outcomes if it.limit.built_in and it.outcome == "held"]
    for found in outcomes:
        if found in quiet and len(quiet) > 1:
            continue
        mark, about = _mark(found.outcome, colour=colour), _about(analysis, found)
        yield f"{mark} {found.limit.name} [{about}{', built in' if found.limit.built_in else ''}]"
        yield from _wrapped(found.sentence, width)
    if len(quiet) > 1:
        line = quiet[0].limit.name
        yield f"{_mark('held', colour=colour)} {line} [{len(quiet)} operations, built in]"
    counts = {name: sum(it.outcome == name for it in outcomes) for name in MARKS}
    yield "unruly gate: " + ", ".join(f"{number} {name}" for name, number in counts.items())
    if not analysis.trustworthy:
        yield "next: remove what spoiled the run and measure again"


def _missing(analysis: Analysis) -> str:
    why = "; ".join(analysis.run.missing)
    return why or f"its status is {analysis.run.status}"


def _mark(outcome: str, *, colour: bool) -> str:
    return f"{COLOURS[outcome]}{MARKS[outcome]}{PLAIN}" if colour else MARKS[outcome]


def _wrapped(sentence: str, width: int) -> list[str]:
    return textwrap.wrap(sentence, width, initial_indent=INDENT, subsequent_indent=INDENT)


def _about(analysis: Analysis, found: Outcome) -> str:
    several = len({row.cell for row in analysis.cells}) > 1
    op = "all ops" if found.op == "*" else found.op
    return ", ".join([*([found.cell] if several else []), op, found.limit.latency])


def gate_json(analysis: Analysis, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the outcomes as one JSON object; an infinite bound is null."""

    def plain(value: Any) -> Any:
        return (
            None if isinstance(value, float) and value in (float("inf"), -float("inf")) else value
        )

    return {
        "schema": 1,
        "run": analysis.run.id,
        "trustworthy": analysis.trustworthy,
        "doubts": analysis.doubts,
        "limits": [
            {
                **asdict(it.limit),
                **{
                    key: plain(getattr(it, key))
                    for key in (
                        "cell", "op", "outcome", "estimate", "low", "high", "needed_ns", "sentence"
                    )
                },
            }
            for it in outcomes
        ],
    }  # fmt: skip


def junit(analysis: Analysis, outcomes: Sequence[Outcome], *, strict: bool) -> str:
    """Return JUnit XML: broken is a failure, undecided is skipped (a failure when `strict`).

    A held limit says so in its output. A spoiled run, and one that is not whole, has one test case
    more, with an error.
    """
    suite = ElementTree.Element("testsuite", name=f"unruly gate {analysis.run.id}")
    if not analysis.run.whole:
        case = ElementTree.SubElement(suite, "testcase", classname="unruly", name="whole")
        ElementTree.SubElement(case, "error", type="not whole", message=_missing(analysis))
    if not analysis.trustworthy:
        case = ElementTree.SubElement(suite, "testcase", classname="unruly", name="trustworthy")
        doubts = "; ".join(analysis.doubts)
        ElementTree.SubElement(case, "error", type="spoiled", message=doubts)
    for found in outcomes:
        name = f"{found.limit.name} [{_about(analysis, found)}]"
        case = ElementTree.SubElement(suite, "testcase", classname="unruly", name=name)
        if found.outcome == "held":
            ElementTree.SubElement(case, "system-out").text = f"held: {found.sentence}"
        elif found.outcome == "broken" or strict:
            kind, message = found.outcome, f"{found.outcome}: {found.sentence}"
            ElementTree.SubElement(case, "failure", type=kind, message=message)
        else:
            ElementTree.SubElement(case, "skipped", message=f"undecided: {found.sentence}")
    for word, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
        suite.set(word, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    for element in suite.iter():
        # XML has no place for control characters, not even escaped
        element.text = element.text and plain(element.text)
        for name, value in element.items():
            element.set(name, plain(value))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
