"""A run in which a process died never looks whole: it names the process, the cause and the loss."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from house import UNRULY, Measured, call, pids_of, running, spooled, wait_for
from test_drive import write_drive

LIMITS = '[[limit]]\nstatistic = "p50"\nat_most = "1min"\n'
LOSS = re.compile(r"of ([\d,]+) requests that were due until then, ([\d,]+) have no row")
BEGUN = re.compile(
    r"of ([\d,]+) requests that it had begun, ([\d,]+) have no row;"
    r" the last was scheduled ([\d.]+) s after the start"
)
OPEN = {"arrivals": 'arrivals = "constant"\nrate = "2000/s"', "duration": "5s"}


def pid_of(folder: Path, name: str) -> int:
    """The process of a run by its name: its job file is named after it."""
    for pid in pids_of(folder):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if any(Path(word).name.startswith(f"{name}-") for word in words):
            return pid
    raise AssertionError(f"{name} is not there")


def measures(process: subprocess.Popen[str], folder: Path) -> bool:
    assert process.poll() is None, f"the run ended with {process.returncode}"
    return spooled(folder) > 100_000


def killed(tmp_path: Path, name: str, **changes: object) -> tuple[Measured, int]:
    """A run whose process `name` was killed while it measured, and the exit code of its runner."""
    folder = tmp_path / "out"
    plan = write_drive(tmp_path, **{**OPEN, **changes})
    plan.write_text(plan.read_text().replace("enabled = false", 'period = "50ms"'))
    with running(plan, folder) as process:
        wait_for(lambda: measures(process, folder), "the first rows")
        os.kill(pid_of(folder, name), signal.SIGKILL)
        code = process.wait(timeout=60)
    return Measured(folder), code


def rows_of(run: Measured) -> int:
    (number,) = run.rows("select count(*) from requests")[0]
    return int(number)


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["drive-0", "probe-0"])
def test_a_killed_process_spoils_the_run_and_is_named_with_its_signal(
    tmp_path: Path, name: str
) -> None:
    run, code = killed(tmp_path, name)
    assert code == 1
    assert run.manifest["status"] == "incomplete"
    (told,) = run.manifest["broken"]
    assert told.startswith(f"{name} was killed by signal 9 (SIGKILL) before its time, ")
    assert run.manifest["counts"]["copies"]["recorded"] == rows_of(run)
    verdict = run.verdict()
    assert not verdict["trustworthy"]
    assert "run-incomplete" in {it["code"] for it in verdict["findings"]}


def test_what_a_killed_generator_took_with_it_is_counted(tmp_path: Path) -> None:
    run, _ = killed(tmp_path, "drive-0")
    found = LOSS.search(run.manifest["broken"][0])
    assert found, run.manifest["broken"]
    due, lost = (int(it.replace(",", "")) for it in found.groups())
    assert due - lost == rows_of(run) > 0
    asked, without_row, _ = begun(run.manifest["missing"])
    assert asked - without_row == rows_of(run)
    # A starved generator has not begun all that was due.
    assert asked <= due


def begun(sentences: list[str]) -> tuple[int, int, float]:
    """Requests that a dead process had begun, those without a row, and when the last was due."""
    found = [it for it in map(BEGUN.search, sentences) if it]
    assert found, sentences
    asked, lost = (int(it.replace(",", "")) for it in found[0].groups()[:2])
    return asked, lost, float(found[0][3])


def test_what_a_killed_closed_loop_had_begun_is_counted(tmp_path: Path) -> None:
    run, _ = killed(tmp_path, "drive-0", arrivals='arrivals = "closed"')
    asked, lost, _ = begun(run.manifest["broken"])
    assert asked - lost == rows_of(run) > 0


def test_a_generator_that_dies_with_its_runner_leaves_the_exact_number_of_lost_requests(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    with running(write_drive(tmp_path, **OPEN), folder) as process:
        wait_for(lambda: measures(process, folder), "the first rows")
        for victim in [pid_of(folder, "drive-0"), process.pid]:
            os.kill(victim, signal.SIGKILL)
        process.wait()
    assert call("recover", folder).returncode == 0
    run = Measured(folder)
    asked, lost, last_s = begun(run.manifest["missing"])
    assert asked - lost == rows_of(run) > 0
    # One each 500 us, so the time of the last one says how many there are.
    ((first_ns,),) = run.rows("select min(intended_ns) from requests")
    elapsed_s = last_s - (first_ns - run.manifest["started_ns"]) / 1e9
    assert asked == round(elapsed_s * 2000) + 1


def test_the_gate_takes_a_broken_run_for_an_error(tmp_path: Path) -> None:
    run, _ = killed(tmp_path, "drive-0")
    limits = tmp_path / "limits.toml"
    limits.write_text(LIMITS)
    said = call("gate", run.path, limits)
    assert said.returncode == 2, said.stdout
    assert "drive-0 was killed by signal 9" in said.stdout


def test_recovery_names_who_still_writes_and_takes_nothing_from_it(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with running(write_drive(tmp_path, **OPEN), folder) as process:
        wait_for(lambda: measures(process, folder), "the first rows")
        victims = [process.pid, pid_of(folder, "drive-0")]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        process.wait()
    wait_for(lambda: not pids_of(folder), "the end of the others")
    (spool,) = folder.glob("requests/drive-0-*.spool")
    # A generator that is alive holds these, also when it is stopped or waits for its disk.
    with (folder / ".writers").open("w") as writers, spool.open() as rows:
        fcntl.flock(writers, fcntl.LOCK_SH)
        fcntl.flock(rows, fcntl.LOCK_EX)
        said = call("recover", folder)
    assert said.returncode == 2
    assert "drive-0 still writes although the runner is gone" in said.stderr
    assert spool.exists()
    assert call("recover", folder).returncode == 0
    run = Measured(folder)
    assert run.manifest["counts"]["copies"]["recorded"] == rows_of(run) > 0
    assert not list(folder.rglob("*.unread"))


def test_a_run_whose_runner_died_counts_what_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with running(write_drive(tmp_path, **OPEN), folder) as process:
        wait_for(lambda: measures(process, folder), "the first rows")
        process.kill()
        process.wait()
        wait_for(lambda: not pids_of(folder), "the end of the others")
    assert call("recover", folder).returncode == 0
    run = Measured(folder)
    assert run.manifest["status"] == "cut off"
    assert run.manifest["counts"]["copies"]["recorded"] == rows_of(run) > 0
    assert {it["name"] for it in run.manifest["processes"]} >= {"drive-0", "echo-0"}
    limits = tmp_path / "limits.toml"
    limits.write_text(LIMITS)
    assert call("gate", folder, limits).returncode == 2


def test_a_run_that_may_open_too_few_files_is_refused_with_the_number(tmp_path: Path) -> None:
    plan, out = write_drive(tmp_path, **OPEN), tmp_path / "out"
    said = subprocess.run(
        ["prlimit", "--nofile=16:16", UNRULY, "run", plan, "-o", out],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 2
    assert "open files in a process, and 16 are granted; hint: ulimit -n " in said.stderr
    assert not out.exists()
