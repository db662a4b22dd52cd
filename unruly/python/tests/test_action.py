"""The composite action: what it declares is what its script reads, and its steps really run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from conftest import REPOSITORY
from synthetic import write_run
from unruly.__main__ import main

ACTION = REPOSITORY / "action" / "action.yml"
SCRIPT = REPOSITORY / "action" / "run.sh"
PAGES = (REPOSITORY / "unruly" / "docs" / "ci.md", REPOSITORY / "action" / "README.md")


def block(text, name, indent=0):
    """The lines under a key of this indentation, as YAML nests them."""
    found = re.search(
        rf"^ {{{indent}}}{name}:\n((?: {{{indent + 1},}}.*\n|\n)*)", text, re.MULTILINE
    )
    assert found, f"no {name}"
    return found[1]


def keys(text, indent):
    return re.findall(rf"^ {{{indent}}}([\w-]+):", text, re.MULTILINE)


@pytest.fixture(scope="module")
def action():
    return ACTION.read_text(encoding="utf-8")


def test_the_action_is_a_composite_of_steps_with_a_shell(action):
    assert "\t" not in action
    assert keys(action, 0) == ["name", "description", "inputs", "outputs", "runs"]
    steps = block(action, "runs").split("\n    - ")[1:]
    assert "using: composite" in block(action, "runs")
    for step in steps:
        assert ("shell: bash" in step) == ("run: " in step), step
        assert ("run: " in step) != ("uses: " in step), step


def test_every_input_is_described_and_used_and_none_is_pasted_into_a_shell(action):
    inputs = block(action, "inputs")
    for name in keys(inputs, 2):
        assert "description: " in block(inputs, name, 2)
        assert f"inputs.{name}" in block(action, "runs"), f"{name} is not used"
    assert set(re.findall(r"inputs\.(\w+)", action)) <= set(keys(inputs, 2))
    for line in re.findall(r"run: (.*)", action):
        assert "${{" not in line, "a shell would run what an input says"


def test_the_script_reads_what_the_action_sets_and_tells_the_outputs(action):
    script = SCRIPT.read_text(encoding="utf-8")
    handed = set(re.findall(r"^ +(UNRULY_\w+):", action, re.MULTILINE))
    assert handed == set(re.findall(r"\$\{(UNRULY_\w+)", script))
    for name in keys(block(action, "outputs"), 2):
        assert f"steps.gate.outputs.{name} }}" in action
        assert f"{name}=%s" in script
    assert os.access(SCRIPT, os.X_OK)


def test_every_option_of_the_script_and_the_pages_is_one_of_its_verb(capsys):
    texts = [SCRIPT.read_text(encoding="utf-8").replace('"$program"', "unruly")]
    texts += [path.read_text(encoding="utf-8") for path in PAGES]
    calls = [
        (verb, option)
        for text in texts
        for verb, rest in re.findall(r"\bunruly (gate|report) ((?:[^\n`]|\\\n)*)", text)
        for option in re.findall(r"(?<!\w)--[a-z][a-z-]*", rest)
    ]
    assert {"gate", "report"} <= {verb for verb, _ in calls}
    for verb in {verb for verb, _ in calls}:
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        known = capsys.readouterr().out
        for option in {option for of, option in calls if of == verb}:
            assert option in known, f"unruly {verb} has no {option}"


def gated(place, *, limit, undecided="warn", **shape):
    """The step of the action, with the real analyser on a run that exists."""
    place.mkdir()
    write_run(place / "run", agents=2, ops=("read",), duration_s=20, **shape)
    (place / "limits.toml").write_text(f"[[limit]]\n{limit}\n", encoding="utf-8")
    program = place / "unruly"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m unruly "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    environment = os.environ | {
        "UNRULY_LIMITS": str(place / "limits.toml"),
        "UNRULY_OUTPUT": str(place),
        "UNRULY_UNDECIDED": undecided,
        "UNRULY_PROGRAM": str(program),
        "PYTHONPATH": str(REPOSITORY / "unruly" / "python"),
        "GITHUB_OUTPUT": str(place / "outputs"),
        "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
    }
    done = subprocess.run(
        ["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )
    return done, (place / "outputs").read_text(encoding="utf-8")


@pytest.mark.slow  # each is a whole step: a run, its gate, its report
@pytest.mark.parametrize(
    ("limit", "undecided", "shape", "code", "outcome"),
    [
        ('statistic = "p99"\nat_most = "1min"', "warn", {"stalls_hz": 0}, 0, "held"),
        ('statistic = "p99"\nat_most = "1min"', "warn", {"failed_share": 0.94}, 1, "broken"),
        ('statistic = "p99.99"\nat_most = "1min"', "warn", {}, 0, "undecided"),
        ('statistic = "p99.99"\nat_most = "1min"', "fail", {}, 3, "undecided"),
        ('statistic = "p98"\nat_most = "1min"', "warn", {}, 2, "error"),
    ],
)
def test_the_step_ends_as_the_gate_says(tmp_path, limit, undecided, shape, code, outcome):
    place = tmp_path / "kept"
    done, outputs = gated(place, limit=limit, undecided=undecided, rate_hz=100, **shape)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"outcome={outcome}\n" in outputs
    assert ("::warning::" in done.stdout) == (outcome == "undecided" and undecided == "warn")
    assert ("::error::" in done.stdout) == (code != 0)
    if outcome != "error":
        assert (place / "report.html").stat().st_size > 100_000
        assert ElementTree.parse(place / "gate.xml").getroot().tag == "testsuite"
        assert "unruly gate: " in (place / "summary.md").read_text(encoding="utf-8")
