"""The page of the papers, from the claims and the verdicts that are kept."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from unruly.papers.claims import STATES, Claim, Paper, papers
from unruly.papers.judgement import HOLDS, NOT, UNDECIDED

if TYPE_CHECKING:
    from unruly.papers.evidence import Facts
    from unruly.papers.judgement import Judgement
    from unruly.papers.record import Record

KINDS: Final = {"fig": "figure", "tab": "table", "fin": "finding"}
FOLDER: Final = "unruly/docs"
"""Where the page is kept; its links are relative to it."""

ORDER: Final = (HOLDS, NOT, UNDECIDED, "shown", *STATES)
HEAD: Final = """# What the papers found, and what unruly measures

Five studies are the root of this project. Each of their findings, figures and tables stands here,
with the plan and the living system (or the stand-in) that shows it, and today's verdict: *holds*,
*does not hold*, *undecided*, with its 95 % interval where there is one and the run that says so;
*shown* where it is a part of every report or document; *not judged yet* where all is built that it
needs, but nothing judges it; *not built yet*; *not obtainable*, with the reason.

How a verdict is made:

- It follows the interval. A claim holds if the whole interval is on its side, does not hold if the
  whole of it is on the other side, and is undecided otherwise. A missing significance decides
  nothing. "No strong correlation" holds only if the interval lies within 0.5 of zero.
- A run that is not trustworthy by its own verdict decides nothing, whatever its numbers are. The
  same is true of a run whose trust is not known, and of cells whose competing load was off its
  share.
- A claim of several parts holds only if all of them do.
- A later run is added and replaces none. If two runs contradict each other the claim is undecided,
  and both stand here.
- One machine is not sixteen systems: a verdict is of the systems and the machine of its run. A
  claim about several systems names those that it was judged on, and those that it was not.

This page is generated: `unruly papers` writes it from the verdicts that are kept, and
`unruly papers RUN...` judges runs first. To judge again:

    unruly run unruly-1-percent -o a
    unruly run demo -o b
    unruly papers a b -o unruly/docs/papers.md

`unruly papers --check` judges every run again of which the repository has the numbers, and names
the verdicts that it cannot recompute.
"""


def page(record: Record) -> str:
    """Return the page as Markdown."""
    found = papers()
    lines = [HEAD, "| study | " + " | ".join(ORDER) + " |", "|---|" + "---|" * len(ORDER)]
    for paper in found:
        words = [_word(paper, claim, record) for claim in paper.claims]
        counts = " | ".join(str(words.count(word) or "") for word in ORDER)
        lines.append(f"| {paper.number}. {paper.title} | {counts} |")
    for paper in found:
        lines += ["", f"## {paper.number}. {paper.title}", ""]
        if paper.plan:
            plans = " or ".join(f"`unruly run {it}`" for it in paper.plan.split())
            lines += [f"Judged by {plans}, where the line of a claim names no other plan.", ""]
        lines += ["| | what the paper found | seen here with | today |", "|---|---|---|---|"]
        lines += [_row(paper, claim, record) for claim in paper.claims]
        lines += _runs(paper, record)
    return "\n".join(lines) + "\n"


def _key(paper: Paper, claim: Claim) -> str:
    return f"{paper.number}.{claim.id}"


def _word(paper: Paper, claim: Claim, record: Record) -> str:
    return record.verdict(_key(paper, claim)) if claim.judge else claim.state or "shown"


def _row(paper: Paper, claim: Claim, record: Record) -> str:
    kind = KINDS[claim.id[:3]]
    label = claim.id[3:].removeprefix("ding").removeprefix("-").replace("-", ", ")
    return f"| {kind} {label} | {claim.what} | {claim.living} | {_today(paper, claim, record)} |"


def _today(paper: Paper, claim: Claim, record: Record) -> str:
    if claim.shown:
        return f"shown: [{claim.shown}]({posixpath.relpath(claim.shown, FOLDER)})"
    if claim.state:
        return f"{claim.state}: {claim.why}"
    key = _key(paper, claim)
    parts = [_said(facts, found, record) for facts, found in record.of(key)]
    if record.contradicted(key):
        parts.insert(0, "**undecided**: the runs contradict each other")
    if not parts:
        plans = " or ".join(f"`{it}`" for it in paper.plans_of(claim))
        parts = [f"undecided: no run of {plans} was judged"]
    if claim.why:
        parts.append(claim.why)
    if claim.about:
        parts.append(_judged_on(claim, record.of(key)))
    return ". ".join(parts)


def _judged_on(claim: Claim, said: list[tuple[Facts, Judgement]]) -> str:
    """Say on which systems a claim about several was judged, and on which it was not."""
    held = {name for _, found in said for name in found.systems}
    on = [name for name in claim.about if name in held] + sorted(held - set(claim.about))
    not_on = [name for name in claim.about if name not in held]
    words = f"Judged on: {', '.join(on) or 'no system'}"
    return f"{words}; not judged on: {', '.join(not_on)}" if not_on else words


def _said(facts: Facts, found: Judgement, record: Record) -> str:
    bounds = "" if found.estimate is None else f" {_number(found.estimate)}"
    if found.low is not None and found.high is not None:
        bounds += f" [{_number(found.low)}, {_number(found.high)}]"
    return f"**{found.verdict}**{bounds}: {found.sentence} (run {_letter(facts, record)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _letter(facts: Facts, record: Record) -> str:
    return str(list(record.runs).index(facts.run) + 1)


def _runs(paper: Paper, record: Record) -> list[str]:
    """Return the table of the runs that say something of a paper."""
    keys = [_key(paper, claim) for claim in paper.claims]
    said = {run for key in keys for run in record.verdicts.get(key, {})}
    if not said:
        return []
    head = ["run", "of plan", "when", "machine", "a trial took", "trustworthy", "numbers kept"]
    lines = ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for run, facts in record.runs.items():
        if run in said:
            cells = [
                f"{_letter(facts, record)}: `{run}`", f"`{facts.plan}`", facts.date,
                facts.host or "unknown", _length(facts), _trust(facts), _place(facts),
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _length(facts: Facts) -> str:
    if facts.trial_s is None:
        return "unknown"
    words = f"{facts.trial_s:g} s"
    if facts.planned_s is not None and facts.trial_s < facts.planned_s:
        words += f", shortened: the plan has {facts.planned_s:g} s"
    return words


def _trust(facts: Facts) -> str:
    if facts.trustworthy is None:
        return "nobody knows: its own verdict is not kept"
    if facts.trustworthy:
        return "yes"
    return "no" + (f": {'; '.join(facts.doubts)}" if facts.doubts else "")


def _place(facts: Facts) -> str:
    if facts.kept is None:
        return "no: its verdicts cannot be recomputed"
    return f"[yes]({posixpath.relpath(facts.kept, FOLDER)})"
