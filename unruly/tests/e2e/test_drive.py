"""A load generator against one server: the schedule is kept, each request is a row, and it ends."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from house import Measured, call, pids_of, running, spooled, wait_for

PLAN = """
name = "drive"
seed = 3
[run]
duration = "{duration}"
warmup = "0s"
[drive]
transport = "{transport}"
clients = {clients}
payload = "{payload}"
{arrivals}
[probe]
enabled = false
{more}
"""


def write_drive(folder: Path, **changes: object) -> Path:
    values = {
        "duration": "1s",
        "transport": "tcp",
        "clients": 1,
        "payload": "36B",
        "arrivals": 'arrivals = "closed"',
        "more": "",
    }
    path = folder / "drive.toml"
    path.write_text(PLAN.format(**(values | changes)))
    return path


def drive(folder: Path, **changes: object) -> Measured:
    out = folder / f"run-{len(list(folder.iterdir()))}"
    said = call("run", write_drive(folder, **changes), "-q", "-o", out, timeout=60)
    assert said.returncode == 0, said.stderr
    return Measured(out)


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_closed_loop_asks_again_when_it_was_answered_and_not_before(
    tmp_path: Path, transport: str
) -> None:
    run = drive(tmp_path, transport=transport, clients=2)
    overlaps, rows, clients, bad = run.rows(
        "select sum((intended_ns < ended)::int), count(*), count(distinct connection),"
        "       sum((status <> 'ok')::int)"
        "  from (select *, lag(received_ns) over"
        "        (partition by connection order by intended_ns) ended from requests)"
    )[0]
    assert (overlaps, clients, bad) == (0, 2, 0)
    assert rows > 1000
    assert run.manifest["counts"]["requests"]["answered"] == rows


def test_a_closed_loop_does_not_hammer_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        arrivals = f'arrivals = "closed"\naddress = "127.0.0.1:{port}"'
        run = drive(tmp_path, arrivals=arrivals)
    statuses = dict(run.rows("select status, count(*) from requests group by 1"))
    assert set(statuses) <= {"refused", "error:disconnected"}
    # It asks again when the connection is tried again: after 20 ms, 40 ms, 80 ms, ...
    assert 1 <= sum(statuses.values()) <= 20


@pytest.mark.smoke
@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_an_open_loop_sends_what_the_schedule_says(tmp_path: Path, transport: str) -> None:
    run = drive(
        tmp_path, transport=transport, clients=3, arrivals='arrivals = "constant"\nrate = "1000/s"'
    )
    rows, shortest, longest, clients = run.rows(
        "select count(*), min(gap), max(gap), count(distinct connection) from (select *,"
        "  intended_ns - lag(intended_ns) over (order by intended_ns) gap from requests)"
    )[0]
    assert (rows, shortest, longest, clients) == (1000, 1_000_000, 1_000_000, 3)


def test_a_matrix_ends_each_cell_after_its_requests_and_names_its_factors(tmp_path: Path) -> None:
    matrix = """
[matrix]
"drive.transport" = ["tcp", "udp"]
"drive.payload" = ["16B", "4KiB"]
"drive.clients" = [1, 3]
"""
    run = drive(
        tmp_path, duration="20s", arrivals='arrivals = "closed"\nrequests = 300', more=matrix
    )
    rows = run.rows(
        "select cell, count(*), count(distinct connection), sum((status <> 'ok')::int),"
        "       max(received_ns) - min(intended_ns) from requests group by cell"
    )
    assert len(rows) == 8
    factors = {cell["name"]: cell["factors"] for cell in run.manifest["cells"]}
    for cell, count, clients, bad, lasted_ns in rows:
        assert (count, bad) == (300, 0)
        assert clients == int(factors[cell]["drive.clients"])
        assert lasted_ns < 20e9
    levels = {name: {told[name] for told in factors.values()} for name in factors[rows[0][0]]}
    assert levels == {
        "drive.transport": {"tcp", "udp"},
        "drive.payload": {"16B", "4KiB"},
        "drive.clients": {"1", "3"},
    }


def test_think_time_passes_between_an_answer_and_the_next_request(tmp_path: Path) -> None:
    run = drive(tmp_path, duration="2s", arrivals='arrivals = "closed"\nthink = "5ms"')
    (mean,) = run.rows(
        "select avg(intended_ns - ended) from (select *, lag(received_ns) over"
        "  (partition by connection order by intended_ns) ended from requests)"
    )[0]
    # some four hundred exponential times: their mean is within a quarter of theirs
    assert 3.75e6 < mean < 6.25e6


@pytest.mark.parametrize("stopped", ["echo-0", "drive-0"])
def test_a_stop_is_in_the_response_times_of_all_that_were_due_meanwhile(
    tmp_path: Path, stopped: str
) -> None:
    more = f'[[fault]]\nkind = "stop"\nprocess = "{stopped}"\nat = "1s"\nduration = "500ms"'
    run = drive(
        tmp_path,
        duration="3s",
        clients=4,
        arrivals='arrivals = "constant"\nrate = "1000/s"',
        more=more,
    )
    rows, waited, bad = run.rows(
        "select count(*), sum((received_ns - intended_ns > 250e6)::int),"
        "       sum((status <> 'ok')::int) from requests"
    )[0]
    (began, ended) = run.rows("select started_ns, ended_ns from events where kind = 'fault stop'")[
        0
    ]
    # One request was scheduled each millisecond of the stop. All but the last 250 waited 250 ms.
    # A busy runner may stop the process for somewhat less than half a second, or more.
    long = (ended - began) / 1e6 - 250
    assert (rows, bad) == (3000, 0)
    assert long - 10 <= waited <= long + 70


@pytest.mark.smoke
def test_processes_whose_runner_was_killed_end_by_themselves(tmp_path: Path) -> None:
    plan = write_drive(tmp_path, duration="60s")
    out = tmp_path / "out"
    with running(plan, out):
        wait_for(lambda: spooled(out) > 10_000, "the first rows")
    assert spooled(out) > 10_000
    wait_for(lambda: not pids_of(out), "the end of the orphans")


def test_a_run_keeps_the_command_that_started_it_and_a_sentence_of_what_it_measured(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    words = ("drive", "null:", "-r", "100", "-d", "100ms", "-w", "0s", "--keys", "5", "-q")
    said = call(*words, "-o", out)
    assert said.returncode == 0, said.stderr
    manifest = Measured(out).manifest
    assert manifest["command"] == ["unruly", *words, "-o", str(out)]
    assert manifest["target"].startswith("null:: 1 client, 100/s, evenly; write then read, 5 keys")


def test_a_rate_beyond_the_host_ends_with_the_timeout_and_says_what_was_reached(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    words = ["null:", "-r", "10M/s", "-d", "1s", "-w", "0s", "--timeout", "1s", "--keys", "9"]
    said = call("drive", *words, "-o", out)
    assert said.returncode == 1, said.stderr
    run = Measured(out)
    counts = run.manifest["counts"]
    assert counts["requests"]["scheduled"] + counts["requests"]["unsent"] == 10_000_000
    assert counts["requests"]["unsent"] > 0
    assert counts["copies"]["scheduled"] == counts["requests"]["scheduled"]
    assert run.rows("select count(*) from requests") == [(counts["copies"]["recorded"],)]
    # The generator waits for its recorder; it sends later, and loses no row.
    assert counts["copies"]["dropped"] == 0
    _, conclusions, *_ = said.stdout.split("\n\n")  # the numbers come before them
    assert "of 10,000,000 requests per second" in " ".join(conclusions.split())
    assert "of 10,000,000 requests per second" in said.stderr
    assert "0 s left" not in said.stderr


def test_the_exit_code_of_a_run_is_that_of_its_verdict(tmp_path: Path) -> None:
    words = ["-r", "200", "-d", "1s", "-w", "0s", "--keys", "9"]
    out = tmp_path / "good"
    said = call("drive", "null:", *words, "-o", out)
    summary = json.loads((out / "summary.json").read_text())
    fine = summary["trustworthy"] and summary["worked"]["ok"]
    assert said.returncode == (0 if fine else 1), said.stdout


def test_a_run_whose_requests_failed_ends_with_1_and_its_live_line_says_how(
    tmp_path: Path,
) -> None:
    liar = f"program:{sys.executable} {Path(__file__).with_name('liar.py')} failed 2"
    # Longer than the time from one line to the next.
    words = [liar, "-r", "100", "-d", "6s", "-w", "0s", "--keys", "9"]
    said = call("drive", *words, "-o", tmp_path / "out")
    assert said.returncode == 1, said.stderr
    assert "failed: error reply" in said.stderr
    # A quiet run says where it is and nothing of how it went.
    said = call("drive", *words[:3], "-d", "100ms", *words[5:], "-q", "-o", tmp_path / "quiet")
    assert (said.returncode, said.stdout.strip()) == (0, str(tmp_path / "quiet"))
