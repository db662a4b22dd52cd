"""HTTP servers under load: failures, writes, and the requests of a connection."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from house import Measured, call
from http_house import Connection, nginx, python_server, server


def drive(folder: Path, url: str, *flags: str) -> Measured:
    """Drive it without a warm-up; a run whose requests fail is a finding and no error."""
    out = folder / f"run-{len(list(folder.iterdir()))}"
    said = call("drive", url, "-d", "60s", "-w", "0s", "-q", "-o", out, *flags, timeout=100)
    assert said.returncode in (0, 1), said.stderr
    return Measured(out)


def statuses(run: Measured) -> dict[tuple[str, int | None], int]:
    found = run.rows("select status, code, count(*) from requests group by 1, 2")
    return {(status, code): count for status, code, count in found}


def events(run: Measured, kind: str) -> int:
    found = run.rows(f"select sum(detail::int) from events where kind = '{kind}'")
    return int(found[0][0] or 0)


def is_whole(run: Measured) -> bool:
    """Whether each scheduled request is one row."""
    copies = run.manifest["counts"]["copies"]
    (rows, distinct) = run.rows("select count(*), count(distinct request) from requests")[0]
    return bool(copies["scheduled"] == rows == distinct and copies["dropped"] == 0)


@pytest.mark.parametrize("clients", ["1", "16"])
@pytest.mark.parametrize("pace", [[], ["-r", "2000"]], ids=["closed", "open"])
def test_a_stock_nginx_fails_no_request_when_it_closes_connections(
    tmp_path: Path, clients: str, pace: list[str]
) -> None:
    with nginx(tmp_path) as url:
        run = drive(tmp_path, f"{url}/page.txt", "-c", clients, "-n", "5000", *pace)
    assert statuses(run) == {("ok", 200): 5000}
    assert is_whole(run)
    # It closes a connection after 1,000 requests.
    if clients == "1":
        assert events(run, "reconnects") >= 4
    (keys, connections) = run.rows("select count(key), count(distinct connection) from requests")[0]
    assert (keys, connections) == (0, int(clients))


@pytest.mark.parametrize("pace", [[], ["-r", "100"]], ids=["closed", "open"])
def test_a_server_of_http_1_0_fails_no_request(tmp_path: Path, pace: list[str]) -> None:
    with python_server(tmp_path) as url:
        run = drive(tmp_path, f"{url}/page.txt", "-c", "3", "-n", "200", *pace)
    assert statuses(run) == {("ok", 200): 200}
    assert is_whole(run)
    assert events(run, "reconnects") >= 200 - 3


def test_a_page_that_is_not_there_is_a_failure_unless_it_is_expected(tmp_path: Path) -> None:
    with nginx(tmp_path) as url:
        words = [f"{url}/typo", "-n", "50"]
        failed = drive(tmp_path, *words)
        fine = drive(tmp_path, *words, "--expect", "2xx, 404")
    assert statuses(failed) == {("error:404", 404): 50}
    assert failed.manifest["counts"]["requests"]["answered"] == 0
    assert statuses(fine) == {("ok", 404): 50}


def test_a_key_that_nobody_wrote_is_missing_and_one_that_was_written_is_found(
    tmp_path: Path,
) -> None:
    with nginx(tmp_path, f"dav_methods PUT; client_body_temp_path {tmp_path}/put;") as root:
        url = f"{root}/keys-{{key}}"
        read = drive(tmp_path, url, "-n", "50", "--operations", "read", "--keys", "5")
        both = drive(tmp_path, url, "-n", "50", "--operations", "write then read", "--keys", "5")
    assert statuses(read) == {("ok", 404): 50}
    codes = both.rows("select op, status, code, count(*) from requests group by all order by op")
    assert {(op, status) for op, status, _, _ in codes} == {("read", "ok"), ("write", "ok")}
    assert {code for op, _, code, _ in codes if op == "read"} == {200}
    assert {code for op, _, code, _ in codes if op == "write"} <= {201, 204}


@pytest.mark.smoke
def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path) -> None:
    seen: list[str] = []

    def handle(connection: Connection) -> None:
        while line := connection.request():
            seen.append(line)
            connection.reply()

    with server(handle) as url:
        run = drive(tmp_path, f"{url}/one?a=b", "-n", "40")
        said = call("drive", f"{url}/{{key}}", "-q", "-o", tmp_path / "none")
    assert seen == ["GET /one?a=b HTTP/1.1"] * 40
    assert run.rows("select distinct phase from requests") == [("measure",)]
    assert said.returncode == 2
    assert "an HTTP server is written to only when asked" in said.stderr
    assert "hint: --operations read" in said.stderr


class Withholding:
    """Holds its first reply back until the other connections have had so many."""

    def __init__(self, others: int) -> None:
        self.others = others
        self.lock = threading.Condition()
        self.first: int | None = None
        self.outstanding = 0
        self.replies = 0

    def handle(self, connection: Connection) -> None:
        while connection.request():
            with self.lock:
                if self.first is None:
                    self.first = connection.number
                    self.lock.wait_for(lambda: self.replies >= self.others)
                self.outstanding = max(self.outstanding, 1 + connection.more())
                self.replies += 1
                self.lock.notify_all()
            connection.reply()


@pytest.mark.smoke
def test_a_connection_carries_one_request_at_a_time(tmp_path: Path) -> None:
    held = Withholding(others=40)
    with server(held.handle) as url:
        run = drive(tmp_path, url, "-c", "2", "-r", "200", "-n", "100")
    assert held.outstanding == 1
    assert statuses(run) == {("ok", 200): 100}
    assert is_whole(run)


def test_requests_wait_in_the_client_and_count_from_their_scheduled_time(tmp_path: Path) -> None:
    held: list[int] = []

    def handle(connection: Connection) -> None:
        while connection.request():
            if not held:
                # Long enough for others to be due: it is the server that is late.
                threading.Event().wait(0.5)
            held.append(1 + connection.more())
            connection.reply()

    with server(handle) as url:
        run = drive(tmp_path, url, "-c", "4", "--connections", "1", "-r", "100", "-n", "100")
    assert held == [1] * 100
    assert statuses(run) == {("ok", 200): 100}
    (first,) = run.rows("select received_ns from requests order by intended_ns limit 1")[0]
    waited = run.rows(
        "select count(*), min(sent_ns), bool_and(waited), count(distinct connection)"
        f"  from (from requests order by intended_ns offset 1) where intended_ns < {first}"
    )
    (count, sent, flagged, connections) = waited[0]
    assert count > 0
    assert sent >= first
    assert (flagged, connections) == (True, 1)
    assert not run.verdict()["self_distrust"]["tail_explained_share"]


def test_requests_that_a_stopped_generator_sent_late_are_counted_though_they_waited(
    tmp_path: Path,
) -> None:
    fault = '[[fault]]\nkind = "stop"\nprocess = "drive-0"\nat = "1s"\nduration = "1s"\n'
    plan = tmp_path / "plan.toml"

    def fine(connection: Connection) -> None:
        while connection.request():
            connection.reply()

    with server(fine) as url:
        plan.write_text(
            f'name = "late"\n[run]\nduration = "3s"\nwarmup = "0s"\n[drive]\nurl = "{url}"\n'
            f'clients = 4\nconnections = 1\narrivals = "constant"\nrate = "100/s"\n{fault}'
        )
        said = call("run", plan, "-q", "-o", tmp_path / "out")
    assert said.returncode in (0, 1), said.stderr
    (late,) = (
        it["counts"]["requests"].get("late", 0)
        for it in Measured(tmp_path / "out").manifest["processes"]
        if it["name"] == "drive-0"
    )
    # A hundred were due during the stop, and one connection carries one of them at a time.
    assert late > 50


def test_connections_are_opened_as_they_are_needed_up_to_their_number(tmp_path: Path) -> None:
    together = threading.Barrier(5)

    def handle(connection: Connection) -> None:
        while connection.request():
            # Nobody is answered before five are asked for on five connections.
            together.wait()
            connection.reply()

    with server(handle) as url:
        run = drive(tmp_path, url, "-c", "1", "--connections", "5", "-r", "200", "-n", "50")
    assert statuses(run) == {("ok", 200): 50}
    assert run.rows("select count(distinct connection) from requests") == [(5,)]


@pytest.mark.smoke
def test_a_request_that_met_only_the_end_of_its_connection_is_sent_again(tmp_path: Path) -> None:
    def handle(connection: Connection) -> None:
        # The second request of a connection is read, and never answered.
        if connection.request():
            connection.reply()
            connection.request()

    with server(handle) as url:
        run = drive(tmp_path, url, "-c", "2", "-n", "60")
    assert statuses(run) == {("ok", 200): 60}
    assert is_whole(run)
    assert events(run, "requests sent again") >= 50


def test_a_request_is_sent_again_once_and_then_it_has_failed(tmp_path: Path) -> None:
    asked: list[str] = []

    def handle(connection: Connection) -> None:
        if line := connection.request():
            asked.append(line)

    with server(handle) as url:
        run = drive(tmp_path, url, "-n", "5")
    assert statuses(run) == {("error:reset", None): 5}
    assert is_whole(run)
    assert 5 <= len(asked) <= 10


def test_a_response_ends_where_it_says_or_with_its_connection(tmp_path: Path) -> None:
    replies = [
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n"
        b"Content-Length: 4\r\n\r\nfine",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nfine",
    ]
    count = iter(range(1_000))

    def handle(connection: Connection) -> None:
        while connection.request():
            number = next(count) % len(replies)
            connection.stream.sendall(replies[number])
            if number in (0, 2):
                return

    with server(handle) as url:
        run = drive(tmp_path, url, "-n", "50")
    assert statuses(run) == {("ok", 200): 40, ("ok", 204): 10}
    assert events(run, "reconnects") >= 19


def test_a_server_that_answers_no_more_fails_each_request_that_follows(tmp_path: Path) -> None:
    left = threading.Semaphore(30)

    def handle(connection: Connection) -> None:
        while connection.request() and left.acquire(blocking=False):
            connection.reply()

    with server(handle) as url:
        run = drive(tmp_path, url, "-c", "3", "-r", "200", "-n", "100")
    found = statuses(run)
    assert found.pop(("ok", 200)) == 30
    assert {status for status, _ in found} <= {"error:reset", "error:disconnected"}
    assert sum(found.values()) == 70
    assert is_whole(run)


def test_a_request_that_times_out_ends_its_connection(tmp_path: Path) -> None:
    first = threading.Semaphore(1)

    def handle(connection: Connection) -> None:
        while connection.request():
            if first.acquire(blocking=False):
                # Answered by nobody: the client goes away.
                assert connection.request() is None
                return
            connection.reply()

    with server(handle) as url:
        run = drive(tmp_path, url, "-n", "20", "--timeout", "2s")
    assert statuses(run) == {("timeout", None): 1, ("ok", 200): 19}
    assert is_whole(run)
