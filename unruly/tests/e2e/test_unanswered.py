"""Requests that get no answer or a bad one: each has a row whose status says what became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from house import UNRULY, Measured, call, pids_of, spooled, wait_for

LIAR = Path(__file__).with_name("liar.py")
RECORD_BYTES = 104


def program(what: str) -> str:
    """Return the URL of a store that lies in this way to every request."""
    return f"program:{sys.executable} {LIAR} {what} 1"


def started(folder: Path, what: str, *flags: str) -> subprocess.Popen[bytes]:
    words = [UNRULY, "drive", program(what), "-d", "60s", "-w", "0s", "-q", "-o", folder, *flags]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def statuses(run: Measured) -> Counter[str]:
    return Counter(status for (status,) in run.rows("select status from requests"))


def test_requests_beyond_those_that_may_be_open_are_shed_and_have_rows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("-d", "1s", "-w", "0s", "-r", "400", "-c", "2", "--in-flight", "7", "--timeout", "2s")
    call("drive", program("silent"), *flags, "-q", "-o", out)
    run = Measured(out)
    assert statuses(run) == {"timeout": 7, "shed": 393}
    shed = run.rows("select count(sent_ns), count(received_ns) from requests where status = 'shed'")
    assert shed == [(0, 0)], "they were not sent"
    assert run.manifest["counts"]["requests"]["scheduled"] == 400


def test_what_is_open_when_a_run_is_stopped_is_unfinished_and_what_is_late_a_timeout(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    process = started(out, "silent", "-r", "100", "--timeout", "3s")
    try:
        # Each is noted half a second after its time: some are older than the timeout by then.
        wait_for(lambda: spooled(out) > 400 * RECORD_BYTES, "four seconds of requests")
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    run = Measured(out)
    assert set(statuses(run)) == {"timeout", "unfinished"}
    ends = dict(
        run.rows(
            "select status, case status when 'timeout' then max(intended_ns)"
            " else min(intended_ns) end from requests group by status"
        )
    )
    assert ends["timeout"] < ends["unfinished"]


def test_a_request_that_had_timed_out_before_everything_was_killed_is_a_timeout(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    process = started(out, "silent", "-r", "500", "--timeout", "300ms")
    try:
        wait_for(lambda: spooled(out) > 1_000 * RECORD_BYTES, "two seconds of requests")
        for pid in [process.pid, *pids_of(out)]:
            os.kill(pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not pids_of(out), "the end of the others")
    assert call("recover", out).returncode == 0
    # A note of it is written at half a second, its row at 600 ms: some had the note alone.
    assert set(statuses(Measured(out))) == {"timeout"}


def test_each_try_has_the_whole_timeout(tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("-n", "4", "-w", "0s", "-c", "1", "--timeout", "300ms", "--retries", "2")
    call("drive", program("silent"), *flags, "-q", "-o", out)
    run = Measured(out)
    assert statuses(run) == {"timeout": 4 * 3}
    # The timeout begins when its try is due: a try that is sent late does not move the next one.
    tries = run.rows("select attempt, sent_ns - intended_ns from requests")
    for attempt, after_ns in tries:
        assert after_ns >= attempt * 300_000_000, "the one before was given up early"


def test_a_failed_request_is_tried_again_after_pauses_that_double(tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("-d", "1s", "-w", "0s", "-r", "20", "--retries", "4", "-q", "-o", out)
    call("drive", program("failed"), *flags)
    tries = Measured(out).rows(
        "select attempt, sent_ns - lag(received_ns) over (partition by request order by attempt)"
        " from requests order by request, attempt"
    )
    assert len(tries) == 20 * 5
    for attempt, pause_ns in tries:
        if attempt:
            assert pause_ns >= 1_000_000 << (attempt - 1), attempt
