"""The result of a benchmark, and the place where it is kept."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench import compact
from bench.program import ROOT, call

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Result:
    """One row of the page: a bar, a measurement, whether the bar is met, and every raw value."""

    name: str
    what: str
    bar: str
    """Empty when a row is measured for its own sake."""
    measured: str
    met: bool | None
    """True if the measurement is on the wanted side of the bar; None without a bar."""
    raw: dict[str, Any] = field(repr=False)
    why: str = ""
    """The measured causes of a missed bar."""
    commit: str = ""
    """The commit that was measured; a plus says that files of it were changed."""

    def __post_init__(self) -> None:
        """Refuse a row that judges without a bar, or has a bar and no judgement."""
        if bool(self.bar) != (self.met is not None):
            raise ValueError(f"{self.name}: bar {self.bar!r} and met {self.met!r}; give both")

    @property
    def missed(self) -> bool:
        """True if the row has a bar that the measurement does not meet."""
        return self.met is not None and not self.met


def folder(runs: Path) -> Path:
    """Return today's folder for this host, and write the facts of the host into it."""
    # Exit code 1: something on this host disturbs measurements; the facts name it.
    facts = json.loads(call("doctor", "--json", "-d", "2", fine=(0, 1)))
    facts["host"].pop("name", None)
    # with the host in its name, because another host may have measured on the same day
    place = runs / f"{datetime.now(UTC):%Y-%m-%d}-{_host(facts)}"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "host.json").exists():
        (place / "host.json").write_text(compact.text(facts))
    return place


def _host(facts: dict[str, Any]) -> str:
    words = str(facts["host"]["cpu_model"]).split()
    brand = next((word.split("(")[0] for word in words), "host").lower()
    return f"{brand}-{facts['host']['cores']}core"


RESULTS = (
    "unruly/bench/runs",
    "unruly/bench/README.md",
    "flurry/bench/runs",
    "flurry/bench/README.md",
    "unruly/docs",
)
"""Places that benchmarks write: a change there is a result, and not a change of the program."""


def commit_of(root: Path) -> str:
    """Return the commit of a checkout, with a plus behind it if its files were changed.

    Results that earlier benchmarks wrote are no change: otherwise the first of several benchmarks
    would mark all others. Benchmark code is one, because it changes the measurement.
    """
    others = [f":(exclude){place}" for place in RESULTS]
    changed = bool(_git(root, "status", "--porcelain", "--", ".", *others))
    return _git(root, "rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=root, check=False)
    return done.stdout.strip()


def keep(place: Path, result: Result) -> None:
    """Write a result with its raw values and its commit, and delete what it supersedes."""
    result = dataclasses.replace(result, commit=result.commit or commit_of(ROOT))
    path = place / f"{result.name}.json"
    path.write_text(compact.text(dataclasses.asdict(result)))
    for old in superseded(place.parent):
        if old.name == path.name:
            old.unlink()


def superseded(runs: Path) -> list[Path]:
    """Return the kept files that a host of the same kind has measured again on a later day.

    The page shows the newest result of each row on each kind of host; git has the older ones.
    """
    newest: dict[tuple[str, str], Path] = {}
    old = []
    for path in sorted(path for path in runs.glob("*/**/*.json") if path.name != "host.json"):
        day, *rest = path.relative_to(runs).parts
        kind = day.split("-", 3)[3]
        before = newest.get((kind, "/".join(rest)))
        old += [before] if before else []
        newest[kind, "/".join(rest)] = path
    return old


def load(place: Path) -> list[Result]:
    """Return the results of a folder, sorted by name."""
    files = sorted(path for path in place.glob("*.json") if path.name != "host.json")
    return [Result(**json.loads(path.read_text())) for path in files]
