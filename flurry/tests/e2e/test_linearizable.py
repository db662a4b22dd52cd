"""Real Flurry processes under faults: the results of their owners must be linearizable.

Each run is a cluster of real processes that are killed and stopped, with losses and partitions, for
20 s; `flurry/tests/linearizability` judges the histories with Porcupine. See
flurry/docs/testing.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from house import REPOSITORY, need_root
from weather import PARTS, deal

STORM = Path(__file__).parent / "storm.py"
CHECKER = REPOSITORY / "target" / "linearizability"

SECONDS = 20.0
DONE_MIN = 1_000

# Longer than a run and its end may take; only reached by a failure.
LIMIT_S = 300.0

# Two at a time, each in its own namespaces: they share nothing but the processors.
TOGETHER = 2


@dataclass(frozen=True)
class Run:
    """A run: its weather and its seed."""

    mix: str
    seed: int
    transport: str = "udp"
    seconds: float = SECONDS

    @property
    def name(self) -> str:
        return f"{self.mix}-{self.seed}-{self.transport}"


RUNS = [
    Run("kills", 1),
    Run("pauses", 2),
    Run("network", 3),
    Run("everything", 4),
    Run("everything", 5, "tcp"),
    Run("everything", 6, "tcp"),
]
WIPE = Run("wipe", 7, seconds=6.0)


@dataclass(frozen=True)
class Survived:
    """A run that has ended, and what the checker says of it."""

    folder: Path
    verdict: subprocess.CompletedProcess[str]

    @property
    def told(self) -> dict[str, dict[str, int]]:
        return json.loads((self.folder / "storm.json").read_text())

    def lines(self) -> Iterator[dict[str, object]]:
        for path in self.folder.glob("*.jsonl"):
            # Behind the last end of a line is what a killed process did not finish.
            for row in path.read_text().split("\n")[:-1]:
                yield json.loads(row)

    def outcomes(self) -> Counter[str]:
        return Counter(str(row["outcome"]) for row in self.lines() if "outcome" in row)


def judge(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [str(CHECKER), "-timeout", "60s", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def survive(run: Run, folder: Path) -> Survived:
    """Let a run happen, and have its histories judged."""
    # Whatever happens to this process, the run ends with it, and all of its processes with the run.
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork"]
    words += ["--kill-child", sys.executable, str(STORM)]
    words += ["--folder", str(folder), "--mix", run.mix, "--seed", str(run.seed)]
    words += ["--seconds", str(run.seconds), "--transport", run.transport]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    verdict = judge(folder)
    assert said.returncode == 0, f"{run.name} in {folder}: {said.stderr}\n{verdict.stdout}"
    return Survived(folder, verdict)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Run, Future[Survived]]]:
    need_root("a network namespace")
    for tool in ("nft", "unshare", "setpriv", "ip"):
        assert shutil.which(tool), f"{tool} is missing; hint: make e2e installs it"
    assert CHECKER.exists(), f"{CHECKER} is missing; hint: make e2e builds it"
    with ThreadPoolExecutor(TOGETHER) as pool:
        yield {
            run: pool.submit(survive, run, tmp_path_factory.mktemp(run.name))
            for run in [*RUNS, WIPE]
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_owners_are_told_in_bad_weather_is_linearizable(
    runs: dict[Run, Future[Survived]], run: Run
) -> None:
    survived = runs[run].result()
    assert survived.verdict.returncode == 0, survived.verdict.stdout
    outcomes = survived.outcomes()
    assert outcomes["done"] >= DONE_MIN
    assert outcomes["refused"] == 0
    faults = survived.told["faults"]
    assert faults == Counter(fault.name for fault in deal(run.mix, run.seed, run.seconds))
    dropped = survived.told["dropped"]
    assert (dropped["lost"] > 0) == any(name.startswith("loss") for name in faults)
    cuts = ("cut", "mute", "isolate")
    assert (dropped["cut"] > 0) == any(name.startswith(cuts) for name in faults)


def test_the_runs_together_have_every_fault_of_every_part() -> None:
    names = {fault.name for run in RUNS for fault in deal(run.mix, run.seed, run.seconds)}
    wanted = {f"{kind} {role}" for kind in ("kill", "stop", "isolate") for role in PARTS}
    wanted |= {"usurp owner", "loss 1 %", "loss 5 %", "loss 20 %", "cut server", "mute server"}
    assert wanted <= names
    assert {run.transport for run in RUNS} == {"udp", "tcp"}


def test_the_weather_follows_from_its_seed() -> None:
    assert deal("everything", 4, SECONDS) == deal("everything", 4, SECONDS)
    assert deal("everything", 4, SECONDS) != deal("everything", 5, SECONDS)


def test_a_store_that_lost_everything_and_said_nothing_would_be_caught(
    runs: dict[Run, Future[Survived]], tmp_path: Path
) -> None:
    survived = runs[WIPE].result()
    assert survived.verdict.returncode == 0, survived.verdict.stdout
    assert survived.outcomes()["lost"] > 0, "the remaining owner was not notified"
    assert any(row.get("is_tail_unknown") for row in survived.lines()), "the next ones were not"
    for path in survived.folder.glob("*.jsonl"):
        silent = path.read_text().replace('"is_tail_unknown":true', '"is_tail_unknown":false')
        silent = silent.replace('"outcome":"lost"', '"outcome":"refused"')
        (tmp_path / path.name).write_text(silent)
    verdict = judge(tmp_path)
    assert verdict.returncode == 1, verdict.stdout
    assert "violation: no order" in verdict.stdout
    assert list(tmp_path.glob("violation-*.html"))
