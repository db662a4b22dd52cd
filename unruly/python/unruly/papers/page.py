"""The page of the papers, from the claims and the verdicts that are kept."""

from __future__ import annotations

import json
import posixpath
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import PaperError
from unruly.papers.claims import STATES, Claim, Paper, papers
from unruly.papers.judges import judge_run

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis

VERDICTS: Final = "verdicts.json"
KINDS: Final = {"fig": "figure", "tab": "table", "fin": "finding"}
FOLDER: Final = "unruly/docs"
"""Where the page is kept; its links are relative to it."""

ORDER: Final = ("holds", "does not hold", "undecided", "shown", *STATES)
HEAD: Final = """# What the papers found, and what unruly measures

Five studies are the root of this project. Each of their findings, figures and tables stands here,
with the plan and the living system (or the stand-in) that shows it, and today's verdict: *holds*,
*does not hold*, *undecided*, with its 95 % interval where there is one and the run that says so;
*shown* where it is a part of every report or document; *not judged yet* where all is built that it
needs, but no run was judged; *not built yet*; *not obtainable*, with the reason. One host is not
sixteen systems: a verdict is of that run alone.

This page is generated: `unruly papers` writes it from the verdicts that are kept, and
`unruly papers RUN...` judges runs first. To judge again:

    unruly run unruly-1-percent -o a
    unruly run demo -o b
    unruly papers a b -o unruly/docs/papers.md
"""


def kept() -> dict[str, Any]:
    """Return the verdicts that are kept: ``paper.claim`` to verdict, bounds and provenance."""
    place = files("unruly.papers").joinpath(VERDICTS)
    if not place.is_file():
        return {}
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return found


def remember(analyses: list[Analysis]) -> dict[str, Any]:
    """Judge runs and keep what they say beside the claims.

    Raises
    ------
    PaperError
        When a run's plan is that of no study, or the place cannot be written (a wheel).
    """
    found = kept()
    for analysis in analyses:
        judged = judge_run(analysis)
        if not judged:
            plans = sorted({paper.plan for paper in papers() if paper.plan})
            raise PaperError(
                analysis.run.path,
                f"was made by the plan {analysis.run.name!r}, which no claim is judged by",
                f"a run of {' or '.join(plans)}",
                f"unruly run {plans[0]}",
            )
        for claim, judgement in judged.items():
            found[claim] = asdict(judgement) | _provenance(analysis)
    place = Path(str(files("unruly.papers").joinpath(VERDICTS)))
    try:
        place.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise PaperError(
            place, f"cannot be written: {error.strerror}", "a checkout", "run it from one"
        ) from error
    return found


def _provenance(analysis: Analysis) -> dict[str, Any]:
    run = analysis.run
    hosts = run.manifest.get("hosts") or [{}]
    started = int(run.manifest.get("started_ns") or 0)
    return {
        "run": run.id,
        "tag": run.tag,
        "date": f"{datetime.fromtimestamp(started / 1e9, UTC):%Y-%m-%d}",
        "commit": (run.manifest.get("tool") or {}).get("commit"),
        "host": hosts[0].get("cpu_model"),
        "trustworthy": analysis.trustworthy,
    }


def page(verdicts: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    found = papers()
    lines = [HEAD, "| study | " + " | ".join(ORDER) + " |", "|---|" + "---|" * len(ORDER)]
    for paper in found:
        words = [_word(paper, claim, verdicts) for claim in paper.claims]
        counts = " | ".join(str(words.count(word) or "") for word in ORDER)
        lines.append(f"| {paper.number}. {paper.title} | {counts} |")
    for paper in found:
        lines += ["", f"## {paper.number}. {paper.title}", ""]
        if paper.plan:
            lines += [f"Judged by `unruly run {paper.plan}`.", ""]
        lines += ["| | what the paper found | seen here with | today |", "|---|---|---|---|"]
        lines += [_row(paper, claim, verdicts) for claim in paper.claims]
    return "\n".join(lines) + "\n"


def _word(paper: Paper, claim: Claim, verdicts: dict[str, Any]) -> str:
    if claim.judge:
        known = verdicts.get(f"{paper.number}.{claim.id}")
        return str(known["verdict"]) if known else "undecided"
    return claim.state or "shown"


def _row(paper: Paper, claim: Claim, verdicts: dict[str, Any]) -> str:
    kind = KINDS[claim.id[:3]]
    label = claim.id[3:].removeprefix("ding").removeprefix("-")
    return f"| {kind} {label} | {claim.what} | {claim.living} | {_today(paper, claim, verdicts)} |"


def _today(paper: Paper, claim: Claim, verdicts: dict[str, Any]) -> str:
    if claim.shown:
        return f"shown: [{claim.shown}]({posixpath.relpath(claim.shown, FOLDER)})"
    if claim.state:
        return f"{claim.state}: {claim.why}"
    known = verdicts.get(f"{paper.number}.{claim.id}")
    if known is None:
        return f"undecided: no run of `{claim.plan or paper.plan}` was judged"
    bounds = ""
    if known["estimate"] is not None:
        bounds = f" {known['estimate']:.2f}"
    if known["low"] is not None and known["high"] is not None:
        bounds += f" [{known['low']:.2f}, {known['high']:.2f}]"
    return (
        f"**{known['verdict']}**{bounds}: {known['sentence']} ({known['date']}, `{known['run']}`)"
    )
