"""What a benchmark found, and where it is kept."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.program import ROOT, call

if TYPE_CHECKING:
    from pathlib import Path

RUNS = ROOT / "unruly" / "bench" / "runs"


@dataclass(frozen=True)
class Result:
    """One bar: what was wanted, what was found, whether that is enough, and every raw value."""

    name: str
    what: str
    bar: str
    measured: str
    met: bool
    raw: dict[str, Any] = field(repr=False)
    why: str = ""
    """For a missed bar: what the difference is made of, as far as it was measured."""
    commit: str = ""
    """Of the tree that was measured; a plus behind it: with changes not yet committed."""


def folder() -> Path:
    """The directory of today's results on this host, with the host's facts written into it."""
    # 1: something of this host disturbs; the facts say what.
    facts = json.loads(call("doctor", "--json", "-d", "2", fine=(0, 1)))
    facts["host"].pop("name", None)
    # of this host: another may have measured today
    place = RUNS / f"{datetime.now(UTC):%Y-%m-%d}-{_host(facts)}"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "host.json").exists():
        (place / "host.json").write_text(json.dumps(facts, indent=1) + "\n")
    return place


def _host(facts: dict[str, Any]) -> str:
    words = str(facts["host"]["cpu_model"]).split()
    brand = next((word.split("(")[0] for word in words), "host").lower()
    return f"{brand}-{facts['host']['cores']}core"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip()


def keep(place: Path, result: Result) -> None:
    """Write a result with its raw values and the commit that they are of."""
    changed = bool(_git("status", "--porcelain", "--", "crates", "python", "bench"))
    commit = _git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    result = dataclasses.replace(result, commit=result.commit or commit)
    text = json.dumps(dataclasses.asdict(result), indent=1, default=float)
    (place / f"{result.name}.json").write_text(text + "\n")


def load(place: Path) -> list[Result]:
    """The results of a directory, by name."""
    files = sorted(path for path in place.glob("*.json") if path.name != "host.json")
    return [Result(**json.loads(path.read_text())) for path in files]
