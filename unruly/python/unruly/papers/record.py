"""The verdicts that are kept: of each claim, what each run said of it.

A run is added and replaces no other, so that runs which contradict each other stay side by side.
What a run was judged from is kept too, as far as a checkout has room for it: `check` judges all of
it again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import PaperError
from unruly.papers.claims import papers
from unruly.papers.evidence import Facts, evidence_of, read, restored, written
from unruly.papers.judgement import HOLDS, NOT, UNDECIDED, Judgement
from unruly.papers.judges import judge_run
from unruly.plan import of_file

if TYPE_CHECKING:
    from unruly.base.analysis import Analysis
    from unruly.papers.evidence import Evidence

VERDICTS: Final = "verdicts.json"
FOLDER: Final = "runs"
PAPERS: Final = "unruly/python/unruly/papers"
PLANS: Final = "unruly/plans"
DIGITS: Final = 9
"""Estimates that agree so far are the same: the last digits differ between processors."""


@dataclass(frozen=True)
class Record:
    """``runs`` by their ids, the oldest first; ``verdicts`` by claim and by run."""

    runs: dict[str, Facts] = field(default_factory=dict)
    verdicts: dict[str, dict[str, Judgement]] = field(default_factory=dict)

    def of(self, claim: str) -> list[tuple[Facts, Judgement]]:
        """Return what each run says of a claim, the newest first."""
        held = self.verdicts.get(claim, {})
        return [(facts, held[run]) for run, facts in reversed(self.runs.items()) if run in held]

    def verdict(self, claim: str) -> str:
        """Return what all runs say together; undecided if they contradict each other."""
        said = {it.verdict for _, it in self.of(claim)} & {HOLDS, NOT}
        return said.pop() if len(said) == 1 else UNDECIDED

    def contradicted(self, claim: str) -> bool:
        """Whether one run says that a claim holds, and another that it does not."""
        return {HOLDS, NOT} <= {it.verdict for _, it in self.of(claim)}


@dataclass(frozen=True)
class Check:
    """What came of judging again.

    ``same`` counts the verdicts that came out as they are kept. ``different`` has a sentence for
    each of the others, and ``lost`` the number of verdicts of each run of which nothing is kept.
    """

    same: int
    different: tuple[str, ...]
    lost: dict[str, int]

    @property
    def text(self) -> str:
        """The lines of the command ``unruly papers --check``."""
        lines = [f"{self.same} verdicts are as the kept numbers say"]
        lines += [f"differs: {it}" for it in self.different]
        lines += [
            f"cannot be recomputed: {count} verdicts of {run}: its numbers are not kept"
            for run, count in self.lost.items()
        ]
        return "\n".join(lines)


def kept() -> Record:
    """Return the verdicts that are kept."""
    place = files("unruly.papers").joinpath(VERDICTS)
    if not place.is_file():
        return Record()
    held = json.loads(place.read_text(encoding="utf-8"))
    return _sorted(restored(Record, held) if isinstance(held, dict) else Record())


def added(record: Record, evidence: Evidence) -> Record:
    """Return the record with one run more.

    Raises
    ------
    PaperError
        When the run's plan is that of no claim.
    """
    judged = judge_run(evidence)
    if not judged:
        raise _of_no_claim(evidence.facts)
    run = evidence.facts.run
    verdicts = {claim: dict(held) for claim, held in record.verdicts.items()}
    for claim, found in judged.items():
        verdicts.setdefault(claim, {})[run] = found
    return _sorted(Record({**record.runs, run: evidence.facts}, verdicts))


def _of_no_claim(facts: Facts) -> PaperError:
    known = [name for it in papers() for claim in it.claims for name in it.plans_of(claim)]
    plans = sorted(set(known))
    return PaperError(
        facts.run,
        f"was made by the plan {facts.plan!r}, which no claim is judged by",
        f"a run of {' or '.join(plans)}",
        f"unruly run {plans[0]}",
    )


def remember(analyses: list[Analysis]) -> Record:
    """Judge runs, and keep what they say and the numbers that they were judged from.

    Raises
    ------
    PaperError
        When a run's plan is that of no claim, or the place cannot be written (a wheel).
    """
    record, texts = kept(), {}
    for analysis in analyses:
        evidence = _with_place(evidence_of(analysis))
        record = added(record, evidence)
        texts[evidence.facts.run] = written(evidence)
    place = Path(str(files("unruly.papers")))
    try:
        (place / FOLDER).mkdir(exist_ok=True)
        for run, text in texts.items():
            (place / FOLDER / f"{run}.json").write_text(text, encoding="utf-8")
        (place / VERDICTS).write_text(text_of(record), encoding="utf-8")
    except OSError as error:
        raise PaperError(
            place, f"cannot be written: {error.strerror}", "a checkout", "run it from one"
        ) from error
    return record


def text_of(record: Record) -> str:
    """Return the text of the file of verdicts."""
    return json.dumps(asdict(record), indent=1) + "\n"


def root() -> Path:
    """Return the root of the repository, of which the package is a part in a checkout."""
    return Path(str(files("unruly.papers"))).parents[3]


def _with_place(evidence: Evidence) -> Evidence:
    planned = of_file(root() / PLANS / f"{evidence.facts.plan}.toml").base.duration_ns
    facts = replace(
        evidence.facts,
        planned_s=None if planned is None else planned / 1e9,
        kept=f"{PAPERS}/{FOLDER}/{evidence.facts.run}.json",
    )
    return replace(evidence, facts=facts)


def _sorted(record: Record) -> Record:
    runs = dict(sorted(record.runs.items(), key=lambda it: (it[1].date, it[0])))
    verdicts = {
        claim: {run: held[run] for run in runs if run in held}
        for claim, held in sorted(record.verdicts.items())
    }
    return Record(runs, verdicts)


def check(record: Record | None = None) -> Check:
    """Judge every run again of which the numbers are kept, and compare with the verdicts."""
    record = kept() if record is None else record
    same, different, lost = 0, [], {}
    for run, facts in record.runs.items():
        said = {claim: held[run] for claim, held in record.verdicts.items() if run in held}
        place = root() / facts.kept if facts.kept else None
        if place is None or not place.is_file():
            lost[run] = len(said)
            continue
        found = judge_run(read(place.read_text(encoding="utf-8"), facts))
        for claim in sorted({*said, *found}):
            was, now = said.get(claim), found.get(claim)
            if was is not None and now is not None and _rounded(was) == _rounded(now):
                same += 1
            else:
                different.append(f"{claim} of {run}: kept {_told(was)}, now {_told(now)}")
    return Check(same, tuple(different), lost)


def _rounded(found: Judgement) -> tuple[Any, ...]:
    bounds = (found.estimate, found.low, found.high)
    numbers = tuple(None if it is None else float(f"{it:.{DIGITS}g}") for it in bounds)
    return found.verdict, *numbers, found.sentence, found.systems


def _told(found: Judgement | None) -> str:
    if found is None:
        return "nothing"
    return f"{found.verdict} ({found.sentence})"
