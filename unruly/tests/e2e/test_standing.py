"""Standing agents: one run after another, rows that become histograms, and their collection."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from house import UNRULY, Measured, call, wait_for
from http_house import nginx
from redis_house import free_port

# Only reached by a failure.
LIMIT_S = 90.0
HOST = "127.0.0.1"
EVERY = "3s"
PLAN = """
name = "web"
tag = "here"
[run]
duration = "1s"
warmup = "0s"
[drive]
url = "{url}"
clients = 2
arrivals = "poisson"
rate = "200/s"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Path]:
    """A plan against an nginx that runs."""
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx") as url:
        yield written(tmp_path, int(url.rsplit(":", 1)[1]))


def written(folder: Path, port: int) -> Path:
    file = folder / "plan.toml"
    file.write_text(PLAN.format(url=f"http://{HOST}:{port}/page.txt"))
    return file


@contextmanager
def standing(plan: Path, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """An agent that stands while the block does; its lines are in a file beside its folder."""
    with folder.with_suffix(".log").open("a") as log:
        agent = subprocess.Popen(
            [UNRULY, "standing", plan, "-o", folder, "--every", EVERY, *words],
            stdout=log, stderr=log, text=True,
        )  # fmt: skip
        try:
            yield agent
        finally:
            agent.terminate()
            assert agent.wait(LIMIT_S) in (0, -signal.SIGKILL)


def runs(folder: Path) -> list[Path]:
    """The directories of the runs that are over, the earliest first."""
    found = sorted(folder.glob("runs/*/manifest.json"))
    return [it.parent for it in found if manifest(it.parent)["status"] != "running"]


def manifest(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text())


def failed(run: Path) -> int:
    copies = manifest(run)["counts"]["copies"]
    return int(copies["scheduled"] - copies["ok"])


def turns(folder: Path) -> list[str]:
    """The processes of runs of a standing agent."""
    return [words for _, words in processes() if "\0turn\0" in words and str(folder) in words]


def generators(folder: Path) -> list[int]:
    """The processes of load generators that write below a folder."""
    name = "drive-0-c0r0.job.json"
    return [pid for pid, words in processes() if name in words and str(folder) in words]


def processes() -> Iterator[tuple[int, str]]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield int(file.parent.name), file.read_bytes().decode(errors="replace")


def test_runs_follow_one_another_and_an_outage_is_measured(tmp_path: Path) -> None:
    """The server is away when the agent starts, comes, and goes again."""
    port = free_port(HOST)
    folder = tmp_path / "agent"
    (tmp_path / "nginx").mkdir()
    with standing(written(tmp_path, port), folder):
        wait_for(lambda: len(runs(folder)) >= 2, "runs of an outage", LIMIT_S)
        with nginx(tmp_path / "nginx", f"listen {HOST}:{port};"):
            wait_for(lambda: any(not failed(it) for it in runs(folder)), "a good run", LIMIT_S)
        wait_for(lambda: failed(runs(folder)[-1]) > 0, "the outage", LIMIT_S)
    first, second = runs(folder)[:2]
    assert failed(first) == manifest(first)["counts"]["copies"]["scheduled"] > 0
    assert manifest(second)["started_ns"] >= manifest(first)["ended_ns"]
    assert manifest(first)["seed"] != manifest(second)["seed"]
    told = folder.with_suffix(".log").read_text()
    assert f"{first}  {manifest(first)['counts']['requests']['scheduled']} requests" in told
    # What it measured is like any other run.
    said = call("verdict", first)
    assert said.returncode == 0, said.stderr
    assert "every request was refused" in said.stdout or "were refused" in said.stdout, said.stdout


def test_a_killed_agent_loses_no_row_that_it_had_and_goes_on(plan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    with standing(plan, folder, "--every", "60s") as agent:
        wait_for(lambda: list(folder.glob("runs/*/requests/*.spool")), "a run", LIMIT_S)
        (spool,) = folder.glob("runs/*/requests/*.spool")
        run = spool.parents[1]
        wait_for(lambda: spool.stat().st_size > 30_000, "rows", LIMIT_S)
        agent.kill()
        agent.wait()
        wait_for(lambda: not turns(folder), "its run to end", LIMIT_S)
    rows = Measured(run).rows("select count(*) from requests")[0][0]
    assert rows == manifest(run)["counts"]["copies"]["recorded"] >= 200
    assert manifest(run)["status"] in ("stopped", "cut off")
    with standing(plan, folder):
        wait_for(lambda: len(runs(folder)) >= 2, "another run", LIMIT_S)
    assert not turns(folder)
    assert "another standing agent" not in folder.with_suffix(".log").read_text()


def test_old_rows_become_histograms_that_say_the_same(plan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    with standing(plan, folder):
        wait_for(lambda: len(runs(folder)) >= 2, "two runs", LIMIT_S)
    kept = runs(folder)[1]
    before = Measured(kept).verdict()
    assert manifest(kept).get("merged") is None
    values = [it for (it,) in Measured(kept).rows(RESPONSES)]
    late = [it for (it,) in Measured(kept).rows(LAGS)]
    with standing(plan, folder, "--keep", "1s"):
        wait_for(lambda: manifest(kept).get("merged"), "the merger", LIMIT_S)
    after = Measured(kept).verdict()
    assert not (kept / "requests").exists()
    assert list((kept / "histograms").glob("*.parquet"))
    (was, now) = (of_response(it) for it in (before, after))
    assert now["n"] == was["n"] == len(values)
    # Each value is known within its bin, so a percentile lies beside the same two of them.
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95)):
        place = int(share * (len(values) - 1))
        low, high = values[place - 1], values[min(place + 2, len(values) - 1)]
        assert 0.995 * low <= now[name] <= 1.005 * high, name
    for name in ("mean", "max", "min"):
        assert now[name] == pytest.approx(was[name], rel=1e-9), name
    codes = {it["code"] for it in after["findings"]}
    assert "rows-merged" in codes
    # How late the load generator was is known from before.
    assert after["trustworthy"] == before["trustworthy"]
    lags = [it["self_distrust"]["send_lag_ns"] for it in (before, after)]
    assert lags[1]["max"] == lags[0]["max"] > 0
    # A few requests have a p99 between two delays of which one may be far from the other.
    place = int(0.99 * (len(late) - 1))
    low, high = late[place - 1], late[min(place + 2, len(late) - 1)]
    assert 0.99 * low <= lags[1]["p99"] <= 1.02 * high
    assert "its rows were merged" in after["conservation"]["sentence"]


LAGS = """
select greatest(sent_ns - intended_ns, 0) from requests where phase = 'measure' order by 1
"""
RESPONSES = """
select received_ns - intended_ns from requests where phase = 'measure' and status = 'ok' order by 1
"""


def test_a_run_with_a_late_generator_is_no_better_without_its_rows(
    plan: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "agent"
    with standing(plan, folder, "--every", "8s"):
        wait_for(lambda: list(folder.glob("runs/*/requests/*.spool")), "requests", LIMIT_S)
        (generator,) = generators(folder)
        for _ in range(4):
            os.kill(generator, signal.SIGSTOP)
            time.sleep(0.4)
            os.kill(generator, signal.SIGCONT)
            time.sleep(0.1)
        wait_for(lambda: runs(folder), "the run", LIMIT_S)
    run = Measured(runs(folder)[0])
    assert not run.verdict()["trustworthy"]
    with standing(plan, folder, "--keep", "1s"):
        wait_for(lambda: manifest(run.path).get("merged"), "the merger", LIMIT_S)
    after = run.verdict()
    assert not after["trustworthy"]
    assert any("late" in it for it in after["doubts"]), after["doubts"]


def of_response(verdict: dict[str, Any]) -> dict[str, Any]:
    found = [it for it in verdict["cells"] if it["latency"] == "response" and it["op"] != "*"]
    return found[0]


def test_the_room_bounds_all_runs_but_the_one_that_goes_on(plan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    with standing(plan, folder, "--room", "1B"):
        log = folder.with_suffix(".log")
        wait_for(lambda: log.read_text().count("was removed") >= 2, "runs to go", LIMIT_S)
        assert len(runs(folder)) <= 2
    assert "there is no room for more runs (--room)" in log.read_text()


def test_new_runs_are_collected_once_and_read_like_others(plan: Path, tmp_path: Path) -> None:
    folder, fleet = tmp_path / "agent", tmp_path / "fleet"
    env = f"command:env --chdir={tmp_path}"
    words = ["collect", env, "--program", str(UNRULY), "--dir", str(folder), "-o", str(fleet)]
    with standing(plan, folder, "--tag", "cluster-a"):
        wait_for(lambda: len(runs(folder)) >= 2, "two runs", LIMIT_S)
        first = call(*words)
        assert first.returncode == 0, first.stderr
        new = first.stdout.split()
        assert len(new) >= 2
        wait_for(lambda: len(runs(folder)) >= len(new) + 1, "another run", LIMIT_S)
    second = call(*words)
    more = second.stdout.split()
    assert more
    assert not set(more) & set(new)
    assert f"host-1: {len(more)} new run" in second.stderr
    assert call(*words).stdout == ""
    assert {it.name for it in runs(folder)} == {Path(it).name for it in [*new, *more]}
    for run in (runs(folder)[0], fleet / "host-1" / runs(folder)[0].name):
        assert Measured(run).verdict()["cells"][0]["n"] > 0
    history = call("history", fleet, "--json")
    (series,) = json.loads(history.stdout)["series"]
    assert series["tag"] == "cluster-a"
    old = call(*words, "-o", tmp_path / "recent", "--since", "1ms")
    assert (old.returncode, old.stdout) == (0, ""), old.stderr


def test_a_collection_that_is_cut_off_leaves_whole_runs_only(plan: Path, tmp_path: Path) -> None:
    """The way to the host ends after some bytes, wherever they are in a file."""
    folder, fleet = tmp_path / "agent", tmp_path / "fleet"
    with standing(plan, folder):
        wait_for(lambda: len(runs(folder)) >= 2, "two runs", LIMIT_S)
    cut = tmp_path / "cut.sh"
    for kilobytes in (3, 40, 70):
        cut.write_text(f'#!/bin/sh\n"$@" | head -c {kilobytes}k\nexit 255\n')
        cut.chmod(0o755)
        words = ["--program", UNRULY, "--dir", folder, "-o", fleet]
        said = call("collect", f"command:{cut}", *words)
        assert said.returncode == 2
        assert "1 of 1 hosts failed; hint: collect again" in said.stderr
        whole = list((fleet / "host-1").glob("2*"))
        assert all(sizes(it) == sizes(folder / "runs" / it.name) for it in whole)
    said = call("collect", "command:env", *words)
    assert said.returncode == 0, said.stderr
    for run in runs(folder):
        assert sizes(fleet / "host-1" / run.name) == sizes(run)
    assert not list((fleet / "host-1").glob(".part-*"))


def sizes(run: Path) -> dict[str, int]:
    files = [it for it in run.rglob("*") if it.is_file() and not it.name.startswith(".")]
    return {str(it.relative_to(run)): it.stat().st_size for it in files}


def test_a_name_that_leads_nowhere_ends_a_fresh_agent(tmp_path: Path) -> None:
    plan = written(tmp_path, 80)
    plan.write_text(plan.read_text().replace(HOST, "there-is-no-such-host.example"))
    said = call("standing", plan, "-o", tmp_path / "agent")
    assert said.returncode == 2
    assert "the run sent nothing" in said.stderr, said.stderr
    assert not list((tmp_path / "agent").glob("runs/*"))


def test_a_server_that_does_not_greet_is_measured(tmp_path: Path) -> None:
    """It takes connections and says nothing, as a server that hangs does."""
    folder = tmp_path / "agent"
    with socket.create_server((HOST, 0)) as silent:
        plan = tmp_path / "plan.toml"
        url = f"redis://{HOST}:{silent.getsockname()[1]}"
        text = PLAN.format(url=url).replace("/page.txt", "")
        plan.write_text(text.replace("[drive]", '[drive]\ntimeout = "500ms"'))
        with standing(plan, folder, "--every", "6s"):
            wait_for(lambda: runs(folder), "a run", LIMIT_S)
    assert failed(runs(folder)[0]) > 0


def test_a_host_that_greets_is_named_and_does_not_hang(tmp_path: Path) -> None:
    greeter = tmp_path / "greets.sh"
    greeter.write_text("#!/bin/sh\necho Welcome to node-1!\nexec sleep 60\n")
    greeter.chmod(0o755)
    said = call("collect", f"command:{greeter}", "-o", tmp_path / "fleet", timeout=30)
    assert said.returncode == 2
    assert 'the host printed "Welcome to node-1!"' in said.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["command:env", "--dir", "/nowhere"],
            "/nowhere: is not the directory of a standing agent",
        ),
        (["command:false"], "hint: try it yourself: false"),
        (["node-1"], 'HOSTS: "node-1" names no way to a host'),
        (["command:env", "--dir", "here"], "--dir: here is not a whole path"),
    ],
    ids=["directory", "host", "word", "path"],
)
def test_what_cannot_be_collected_is_refused_with_a_next_step(
    words: list[str], told: str, tmp_path: Path
) -> None:
    said = call("collect", *words, "--program", UNRULY, "-o", tmp_path / "fleet")
    assert said.returncode == 2
    assert told in said.stderr, said.stderr


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        ('[matrix]\n"drive.clients" = [1, 2]\n', [], "the plan has 2 cells and 1 repeats"),
        ('[[host]]\nname = "a"\nreach = ["env"]\n', [], "measures from its own host"),
        ("", ["--set", "drive.requests=5"], "the plan ends by itself"),
        ("", ["--every", "1s"], "--every: 1s is too short"),
        ("", ["--every", "soon"], "--every <TIME>"),
    ],
    ids=["matrix", "host", "requests", "every", "unit"],
)
def test_a_plan_that_cannot_stand_is_refused(
    change: str, words: list[str], told: str, tmp_path: Path
) -> None:
    plan = written(tmp_path, free_port(HOST))
    plan.write_text(plan.read_text() + change)
    said = call("standing", plan, "-o", tmp_path / "agent", *words)
    assert said.returncode == 2
    assert told in said.stderr, said.stderr
    assert not (tmp_path / "agent").exists()


def test_two_agents_do_not_share_a_directory(plan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    with standing(plan, folder):
        wait_for(lambda: list(folder.glob("runs/*")), "a run", LIMIT_S)
        said = call("standing", plan, "-o", folder)
        assert said.returncode == 2
        assert "another standing agent has this directory" in said.stderr


def test_metrics_are_there_while_it_stands(plan: Path, tmp_path: Path) -> None:
    folder, port = tmp_path / "agent", free_port(HOST)
    address = f"http://{HOST}:{port}/metrics"

    def scraped() -> bool:
        try:
            with urllib.request.urlopen(address, timeout=2) as page:
                return b"unruly_" in page.read()
        except OSError:
            return False

    with standing(plan, folder, "--every", "30s", "--metrics", f"{HOST}:{port}"):
        wait_for(scraped, "metrics", LIMIT_S)


def test_the_unit_of_systemd_is_valid(tmp_path: Path) -> None:
    printed = call("hosts", "systemd")
    assert printed.returncode == 0, printed.stderr
    unit = tmp_path / "unruly.service"
    # It looks for the program where it is installed.
    unit.write_text(printed.stdout.replace("/usr/local/bin/unruly", str(UNRULY)))
    verify = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("RestartSec=5", "RestartSec=soon"))
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    assert "Failed to parse sec value" in done.stderr


def test_a_password_reaches_no_file_of_the_agent(tmp_path: Path) -> None:
    port = free_port(HOST)
    (tmp_path / "nginx").mkdir()
    secret = "a-token-that-nobody-reads"
    folder = tmp_path / "agent"
    plan = written(tmp_path, port)
    plan.write_text(plan.read_text() + 'auth = "bearer"\n')
    (tmp_path / "token").write_text(secret)
    with (
        nginx(tmp_path / "nginx", f"listen {HOST}:{port};"),
        standing(plan, folder, "--password-file", str(tmp_path / "token")),
    ):
        wait_for(lambda: runs(folder), "a run", LIMIT_S)
    files = [it for it in folder.rglob("*") if it.is_file()]
    assert not [it for it in files if secret.encode() in it.read_bytes()]
    assert not failed(runs(folder)[0])
    assert os.environ.get("UNRULY_PASSWORD") is None
