"""The composite action's script on a real plan with the real program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

from house import REPOSITORY, UNRULY, call

SCRIPT = REPOSITORY / "action" / "run.sh"


def test_a_plan_is_run_gated_and_reported(tmp_path: Path) -> None:
    limits, out = tmp_path / "limits.toml", tmp_path / "out"
    limits.write_text('[[limit]]\nstatistic = "p50"\nat_most = "1min"\n')
    environment = os.environ | {
        "UNRULY_PROGRAM": str(UNRULY),
        "UNRULY_PLAN": "echo",
        "UNRULY_ARGUMENTS": "--slo=p50 < 1min\n-d 1s -w 0s --set drive.transport=tcp",
        "UNRULY_LIMITS": str(limits),
        "UNRULY_OUTPUT": str(out),
        "UNRULY_UNDECIDED": "fail",
    }
    done = subprocess.run(
        ["bash", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    # The words of both lines came to the run.
    plan = (out / "run" / "plan.toml").read_text()
    assert 'slo = ["p50 < 1min"]' in plan
    assert 'duration = "1s"' in plan
    # A busy machine spoils the run; what counts is that the step ends as the gate does.
    said = call("gate", out / "run", limits)
    assert done.returncode == said.returncode, done.stdout + done.stderr
    assert said.returncode in (0, 1, 3)
    assert (out / "report.html").exists()
    suite = ElementTree.parse(out / "gate.xml").getroot()
    names = [case.get("name", "") for case in suite.findall("testcase")]
    assert any(name.startswith("at most 1 % failed") for name in names)
    assert any(name.startswith("p50 <= 1min") for name in names)


def test_without_limits_the_step_says_so_and_has_an_outcome(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    environment = {"PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(outputs)}
    done = subprocess.run(
        ["bash", SCRIPT], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "::error::limits: is not given" in done.stdout
    assert outputs.read_text() == "outcome=error\ncode=2\n"
