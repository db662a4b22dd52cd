"""What a gate says: a line for each limit, JUnit XML for any CI, JSON for programs."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unruly.findings import Analysis
    from unruly.findings.judging import Outcome

MARKS: Final = {"held": "  held     ", "broken": "!! broken   ", "undecided": " ? undecided"}
COLOURS: Final = {"held": "\x1b[32m", "broken": "\x1b[31m", "undecided": "\x1b[33m"}
PLAIN: Final = "\x1b[0m"
FINE_EXIT, FINDING_EXIT, SPOILED_EXIT = 0, 1, 2


def exit_code(analysis: Analysis, outcomes: Sequence[Outcome], *, strict: bool) -> int:
    """Return 2 when the run cannot be trusted, 1 when a limit is broken, else 0.

    With `strict` a limit that could not be decided counts as broken.
    """
    if not analysis.trustworthy:
        return SPOILED_EXIT
    bad = {"broken", "undecided"} if strict else {"broken"}
    return FINDING_EXIT if any(it.outcome in bad for it in outcomes) else FINE_EXIT


def gate_text(
    analysis: Analysis, outcomes: Sequence[Outcome], *, width: int = 100, colour: bool = False
) -> str:
    """Return a line or two for each limit, and the sum of them."""
    return "\n".join(_lines(analysis, outcomes, max(60, width), colour=colour))


def _lines(
    analysis: Analysis, outcomes: Sequence[Outcome], width: int, *, colour: bool
) -> Iterator[str]:
    if not analysis.trustworthy:
        yield "unruly gate: THIS RUN IS SPOILED, nothing is decided: " + "; ".join(analysis.doubts)
        yield "next: remove what spoiled it and measure again"
        return
    for found in outcomes:
        mark = MARKS[found.outcome]
        shown = f"{COLOURS[found.outcome]}{mark}{PLAIN}" if colour else mark
        yield f"{shown} {found.limit.name} [{_about(analysis, found)}]"
        yield from textwrap.wrap(
            found.sentence, width, initial_indent=" " * 13, subsequent_indent=" " * 13
        )
    counts = {name: sum(it.outcome == name for it in outcomes) for name in MARKS}
    yield "unruly gate: " + ", ".join(f"{number} {name}" for name, number in counts.items())


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

    A spoiled run is one test case with an error.
    """
    suite = ElementTree.Element("testsuite", name=f"unruly gate {analysis.run.id}")
    if not analysis.trustworthy:
        case = ElementTree.SubElement(suite, "testcase", classname="unruly", name="trustworthy")
        ElementTree.SubElement(case, "error", message="; ".join(analysis.doubts))
        outcomes = []
    for found in outcomes:
        about = _about(analysis, found)
        name = f"{found.limit.name} [{about}]"
        case = ElementTree.SubElement(suite, "testcase", classname="unruly", name=name)
        if found.outcome == "broken" or (strict and found.outcome == "undecided"):
            ElementTree.SubElement(case, "failure", message=found.sentence)
        elif found.outcome == "undecided":
            ElementTree.SubElement(case, "skipped", message=found.sentence)
        else:
            ElementTree.SubElement(case, "system-out").text = found.sentence
    for word, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
        suite.set(word, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
