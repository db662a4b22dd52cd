"""Redis clients of gateways while one machine after another has trouble.

See flurry/docs/testing.md. `make chaos CHAOS_SECONDS=1800` runs the same for as long as you like.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from house import REPOSITORY, need_root

CHAOS = Path(__file__).parent / "chaos.py"
CHECKER = REPOSITORY / "target" / "linearizability"
SECONDS = float(os.environ.get("CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))

# Only reached by a failure.
LIMIT_S = SECONDS * 2 + 300.0
DONE_MIN = 1_000

# Records beyond the keys in use: some that a server does not know it may forget yet.
RECORDS_SPARE = 1_000


def judge(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [str(CHECKER), "-timeout", "60s", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def survive(folder: Path, level: str) -> dict[str, Any]:
    """Let everything happen once at a gateway's level, and return the counts."""
    need_root("a network namespace")
    for tool in ("unshare", "setpriv", "ip", "nft"):
        assert shutil.which(tool), f"{tool} is missing; hint: make e2e installs it"
    assert CHECKER.exists(), f"{CHECKER} is missing; hint: make e2e builds it"
    words = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--pid",
        "--mount-proc",
        "--fork",
    ]
    words += ["--kill-child", sys.executable, str(CHAOS), "--folder", str(folder)]
    words += ["--seed", str(SEED), "--seconds", str(SECONDS), "--level", level]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    verdict = judge(folder)
    assert said.returncode == 0, f"in {folder}: {said.stderr}\n{verdict.stdout}"
    assert verdict.returncode == 0, verdict.stdout
    told: dict[str, Any] = json.loads((folder / "chaos.json").read_text())
    assert told["outcomes"]["done"] >= DONE_MIN
    kinds = Counter(fault["kind"] for fault in told["faults"])
    assert {"kill", "stop"} <= set(kinds), kinds
    # The processes saw that their clocks were set.
    if any(it["kind"] == "clock" and abs(it["lasts_s"]) > 1.0 for it in told["faults"]):
        logs = [path.read_text() for path in folder.glob("*.log")]
        assert any("the clock has jumped" in log for log in logs)
    # No record is left of keys that were used once.
    assert told["records"] <= told["keys"] + RECORDS_SPARE
    sys.stdout.write(summary(level, told, kinds))
    return told


def summary(level: str, told: dict[str, Any], kinds: Counter[str]) -> str:
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    lines = [f"level {level}: {sum(kinds.values())} faults ({faults})"]
    lines += [f"  {told['outcomes']}, {told['keys']} keys, {told['records']} records at most"]
    silent = sorted((it["to_ns"] - it["from_ns"]) / 1e9 for it in told["silences"])
    if silent:
        lines.append(
            f"  {len(silent)} times a client waited beside failures: median"
            f" {silent[len(silent) // 2]:.2f} s, longest {silent[-1]:.2f} s"
        )
    return "\n".join([*lines, ""])


def test_at_quorum_no_trouble_of_one_machine_loses_a_write_or_is_called_a_loss(
    tmp_path: Path,
) -> None:
    told = survive(tmp_path, "quorum")
    assert told["losses"] == []


def test_at_first_every_write_that_is_lost_is_reported(tmp_path: Path) -> None:
    told = survive(tmp_path, "first")
    # A loss needs the end of a server.
    ended = [it for it in told["faults"] if it["kind"] in {"kill", "off"} or it["lasts_s"] >= 0.5]
    first = min((it["from_ns"] for it in ended), default=None)
    assert all(first is not None and it["at_ns"] > first for it in told["losses"])


def test_a_lost_write_that_nobody_reported_would_be_noticed(tmp_path: Path) -> None:
    """The history of a client that reads an older value than it wrote."""
    lines = [
        {"line": "opened", "session": "slots", "epoch": 1, "at_ns": 1},
        {"line": "called", "call": 1, "key": "k", "level": "quorum", "ask": "set", "value": "a"},
        {"line": "returned", "call": 1, "outcome": "done", "answer": "stored"},
        {"line": "called", "call": 2, "key": "k", "level": "quorum", "ask": "get"},
        {"line": "returned", "call": 2, "outcome": "done", "answer": "not_found"},
    ]
    stamped = [line | {"at_ns": at, "is_tail_unknown": False} for at, line in enumerate(lines, 1)]
    text = "".join(json.dumps(line) + "\n" for line in stamped)
    (tmp_path / "epoch-1.jsonl").write_text(text)
    assert judge(tmp_path).returncode == 1
