"""A sweep that was interrupted is resumed as one run: each trial once, in the same order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from house import UNRULY, Measured, call, wait_for

RATE = 500
PLAN = """
name = "sweep"
seed = 7
[run]
duration = "1s"
warmup = "0s"
repeat = 3
[drive]
arrivals = "constant"
rate = "{rate}/s"
[probe]
enabled = false
[matrix]
"drive.clients" = [1, 2]
"""
TRIALS = 6


def write_sweep(folder: Path, rate: int = RATE) -> Path:
    path = folder / "sweep.toml"
    path.write_text(PLAN.format(rate=rate))
    return path


@contextmanager
def measuring(plan: Path, folder: Path, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A runner that measures while the block does; ended by its pid."""
    words = words or ("-o", folder)
    process = subprocess.Popen(
        [UNRULY, "run", plan, "-q", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def manifest_of(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else {}


def finished(folder: Path) -> int:
    trials = manifest_of(folder).get("trials", [])
    return sum(it["status"] == "complete" for it in trials)


def in_trial(folder: Path, number: int) -> bool:
    """Whether the trial after the first `number` ones has written rows."""
    return finished(folder) == number and any(
        path.stat().st_size > 20_000 for path in folder.glob("requests/*.spool")
    )


def interrupt(
    folder: Path, plan: Path, number: int, how: signal.Signals, *words: str | Path
) -> None:
    """Measure until the trial after the first `number` ones goes on, and end the runner alone."""
    with measuring(plan, folder, *words) as process:
        wait_for(lambda: in_trial(folder, number) or process.poll() is not None, "a trial")
        assert process.poll() is None, process.communicate()
        os.kill(process.pid, how)
        process.wait(timeout=60)


def resume(plan: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return call("run", plan, "--resume", folder, "-q", *words)


def order_of(run: Measured) -> list[tuple[str, int]]:
    """The trials by the time of their first request."""
    query = "select cell, repeat from requests group by all order by min(intended_ns)"
    return run.rows(query)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """The same sweep, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    said = call("run", write_sweep(folder), "-q", "-o", folder / "run")
    assert said.returncode == 0, said.stderr
    return Measured(folder / "run")


def test_a_sweep_that_was_stopped_and_then_cut_off_ends_as_one_run(
    tmp_path: Path, whole: Measured
) -> None:
    plan, folder = write_sweep(tmp_path), tmp_path / "run"
    interrupt(folder, plan, 1, signal.SIGINT)
    assert manifest_of(folder)["status"] == "stopped"
    interrupt(folder, plan, 3, signal.SIGKILL, "--resume", folder)
    said = resume(plan, folder)
    assert (said.returncode, said.stderr) == (0, "")
    run = Measured(folder)
    assert run.manifest["status"] == "complete"
    assert run.manifest["missing"] == []
    assert order_of(run) == order_of(whole)
    assert len(order_of(run)) == TRIALS
    rows = "select cell, repeat, count(*), count(distinct request) from requests group by all"
    assert {(row[2], row[3]) for row in run.rows(rows)} == {(RATE, RATE)}
    verdict = run.verdict()
    assert {it["n"] for it in verdict["cells"]} == {3 * RATE}


def test_the_manifest_of_a_resumed_run_says_when_each_part_was_measured(tmp_path: Path) -> None:
    plan, folder = write_sweep(tmp_path), tmp_path / "run"
    interrupt(folder, plan, 2, signal.SIGKILL)
    assert resume(plan, folder).returncode == 0
    run = Measured(folder)
    first, second = run.manifest["parts"]
    assert [first["status"], second["status"]] == ["cut off", "complete"]
    assert (
        first["boot"]
        == second["boot"]
        == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    )
    assert [it["part"] for it in run.manifest["trials"]] == [0, 0, 1, 1, 1, 1]
    (cut_off,) = second["discarded"]
    cell, repeat = run.rows(
        "select cell, repeat from requests group by all order by min(intended_ns) limit 1 offset 2"
    )[0]
    assert cut_off.startswith(f"{cell}, repeat {repeat + 1}, was cut off")
    before_ns = 0
    for trial in run.manifest["trials"]:
        part = run.manifest["parts"][trial["part"]]
        ((since, until),) = run.rows(
            "select min(intended_ns), max(received_ns) from requests"
            f" where cell = '{trial['cell']}' and repeat = {trial['repeat']}"
        )
        assert max(before_ns, part["started_ns"]) < since < until < trial["ended_ns"]
        before_ns = trial["ended_ns"]


def test_a_limit_measures_a_sweep_in_slices(tmp_path: Path, whole: Measured) -> None:
    plan, folder = write_sweep(tmp_path), tmp_path / "run"
    said = call("run", plan, "-o", folder, "--for", "1ns")
    resumed = f"unruly run {folder}/plan.toml --resume {folder}"
    assert f"1 of {TRIALS} trials are measured; hint: to go on, {resumed}" in said.stderr
    assert manifest_of(folder)["missing"] == [f"1 of {TRIALS} trials are measured"]
    for number in range(2, TRIALS + 1):
        assert resume(folder / "plan.toml", folder, "--for", "1ns").returncode == 0
        assert finished(folder) == number
    run = Measured(folder)
    assert run.manifest["status"] == "complete"
    assert len(run.manifest["parts"]) == TRIALS
    assert order_of(run) == order_of(whole)


def test_a_damaged_trial_is_measured_again(tmp_path: Path) -> None:
    plan, folder = write_sweep(tmp_path), tmp_path / "run"
    assert call("run", plan, "-q", "-o", folder, "--for", "1ns").returncode == 0
    (segment,) = folder.glob("requests/*.parquet")
    segment.write_bytes(segment.read_bytes()[:-7] + b"damaged")
    assert resume(plan, folder).returncode == 0
    run = Measured(folder)
    assert len(order_of(run)) == TRIALS
    assert f"{segment.name} is damaged" in run.manifest["parts"][1]["discarded"]
    assert run.verdict()


def refused(plan: Path, folder: Path, *words: str) -> str:
    said = resume(plan, folder, *words)
    assert (said.returncode, said.stdout) == (2, "")
    return said.stderr


def test_what_cannot_be_resumed_is_refused_with_the_reason(tmp_path: Path) -> None:
    plan, folder = write_sweep(tmp_path), tmp_path / "run"
    assert call("run", plan, "-q", "-o", folder, "--for", "1ns").returncode == 0
    before = (folder / "manifest.json").read_bytes()
    other = refused(write_sweep(tmp_path, rate=501), folder)
    assert (
        f'it ran another plan: [drive] rate = "{RATE}/s" there and [drive] rate = "501/s"' in other
    )
    assert f"hint: unruly run {folder}/plan.toml --resume {folder}" in other
    plan = write_sweep(tmp_path)
    assert "there is no such directory" in refused(plan, tmp_path / "nothing")
    assert "this directory is not a run" in refused(plan, tmp_path)
    text = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(text + "# changed\n")
    assert "it is not the plan that was run" in refused(plan, folder)
    (folder / "plan.toml").write_text(text)
    assert (folder / "manifest.json").read_bytes() == before
    assert len(order_of(Measured(folder))) == 1


def test_a_run_that_goes_on_is_not_resumed(tmp_path: Path) -> None:
    plan, folder = write_sweep(tmp_path), tmp_path / "run"
    with measuring(plan, folder) as process:
        wait_for(lambda: in_trial(folder, 0), "a trial")
        assert "the run is still going on" in refused(plan, folder)
        assert process.poll() is None


def test_a_complete_run_is_left_as_it_is(whole: Measured) -> None:
    before = (whole.path / "manifest.json").read_bytes()
    said = resume(whole.path / "plan.toml", whole.path)
    assert said.returncode == 0
    assert "complete already" in said.stderr
    assert (whole.path / "manifest.json").read_bytes() == before


def test_another_version_or_host_goes_on_only_if_a_person_accepts_it(tmp_path: Path) -> None:
    plan, folder = write_sweep(tmp_path), tmp_path / "run"
    assert call("run", plan, "-q", "-o", folder, "--for", "1ns").returncode == 0
    manifest = manifest_of(folder)
    manifest["parts"][0]["host"]["kernel"] = "1.2.3"
    manifest["parts"][0]["tool"]["version"] = "0.0.1"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    told = refused(plan, folder)
    assert "unruly was 0.0.1 (" in told
    assert "the kernel was 1.2.3 and is " in told
    assert resume(plan, folder, "--yes").returncode == 0
    version, kernel = manifest_of(folder)["parts"][1]["changed"]
    assert version.startswith("unruly was 0.0.1 (")
    assert kernel.startswith("the kernel was 1.2.3 and is ")
    assert manifest_of(folder)["status"] == "complete"
