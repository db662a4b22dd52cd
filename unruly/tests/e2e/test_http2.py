"""Servers of HTTP/2: many requests at once over each connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from http_house import Connection, certificate, nginx, server
from stall_house import conserved, counts_its_stall
from test_https import drive, fine, refused, statuses


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "clear"])
@pytest.mark.parametrize("pace", [[], ["-r", "2000"]], ids=["closed", "open"])
def test_a_stock_nginx_fails_no_request(tmp_path: Path, pace: list[str], tls: bool) -> None:
    """It says after a thousand requests that a connection takes no more of them."""
    certificate(tmp_path)
    with nginx(tmp_path, tls=tls, http2=True) as url:
        words = [f"{url}/page.txt", "--http2", "-c", "8", "--connections", "2", "-n", "5000", *pace]
        trust = ["--ca-cert", str(tmp_path / "cert.pem")] if tls else []
        run = drive(tmp_path, *words, *trust)
    assert statuses(run) == {("ok", 200): 5000}
    assert conserved(run)
    assert run.rows("select count(distinct connection), min(received_bytes) from requests") == [
        (2, 140)
    ]
    ((reconnects,),) = run.rows("select detail::int from events where kind = 'reconnects'")
    assert 3 <= reconnects <= 8
    assert "HTTP/2" in run.manifest["target"]


def test_many_requests_at_once_survive_the_end_of_each_connection(tmp_path: Path) -> None:
    """More clients than the server allows streams, and an end after each hundred requests."""
    limits = "keepalive_requests 100; http2_max_concurrent_streams 20;"
    with nginx(tmp_path, "", http2=True, keepalive=limits) as url:
        words = ["--http2", "-c", "150", "--connections", "1", "-n", "3000"]
        run = drive(tmp_path, f"{url}/page.txt", *words)
    assert statuses(run) == {("ok", 200): 3000}
    assert conserved(run)


def test_more_requests_than_the_server_allows_at_once_wait_and_say_so(tmp_path: Path) -> None:
    with nginx(tmp_path, "http2_max_concurrent_streams 2;", http2=True) as url:
        words = ["--http2", "-c", "12", "--connections", "1", "-n", "600"]
        run = drive(tmp_path, f"{url}/page.txt", *words)
    assert statuses(run) == {("ok", 200): 600}
    ((waited, sent),) = run.rows(
        "select count(*) filter (waited), count(*) filter (sent_ns >= intended_ns) from requests"
    )
    assert waited > 300
    assert sent == 600


def test_a_request_has_its_method_headers_and_body(tmp_path: Path) -> None:
    (tmp_path / "body").write_text("a=1")
    check = (
        'location = /form { if ($request_method != "PUT") { return 405; }'
        ' if ($http_x_one != "1") { return 406; }'
        ' if ($http_content_length != "3") { return 411; } return 204; }'
    )
    with nginx(tmp_path, check, http2=True) as url:
        flags = ["--http2", "-X", "PUT", "-H", "X-One: 1", "--body", str(tmp_path / "body")]
        run = drive(tmp_path, f"{url}/form", "-n", "50", *flags)
    assert statuses(run) == {("ok", 204): 50}
    assert run.rows("select distinct op from requests") == [("put",)]


def test_a_status_code_that_is_not_expected_is_a_failure(tmp_path: Path) -> None:
    with nginx(tmp_path, http2=True) as url:
        run = drive(tmp_path, f"{url}/nowhere", "-n", "50", "--http2")
    assert statuses(run) == {("error:404", 404): 50}


def test_a_server_that_does_not_speak_it_is_named_before_the_run(tmp_path: Path) -> None:
    with server(fine, certificate(tmp_path)) as url:
        by_tls = refused(tmp_path, url, "--http2", "-k")

    def old(connection: Connection) -> None:
        connection.request()
        connection.reply("what?", "HTTP/1.1 400 Bad Request")

    with server(old) as url:
        clear = refused(tmp_path, url, "--http2")
    assert "the server does not speak h2" in by_tls
    assert "leave out --http2" in by_tls
    assert "HTTP/2: " in clear
    assert "does it speak HTTP/2?" in clear
    assert not (tmp_path / "none").exists()


def test_one_connection_each_has_no_meaning_there(tmp_path: Path) -> None:
    said = refused(tmp_path, "http://127.0.0.1:1/", "--http2", "--keep-alive", "false")
    assert "--keep-alive: " in said
    assert "a connection of HTTP/2 carries many requests" in said


def workers(folder: Path) -> list[int]:
    """The processes of the nginx of a folder."""
    master = int((folder / "nginx.pid").read_text())
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return [master, *map(int, children)]


@pytest.mark.parametrize("flags", [["--http2"], []], ids=["http2", "http1"])
def test_a_stall_counts_against_every_request_that_was_scheduled_in_it(
    tmp_path: Path, flags: list[str]
) -> None:
    certificate(tmp_path)
    with nginx(tmp_path, tls=True, http2=True) as url:
        words = [f"{url}/page.txt", "-k", "-c", "64", *flags]
        counts_its_stall(tmp_path / "out", 1000, lambda: workers(tmp_path), *words)


@contextmanager
def one_that_hangs(port: int, run: Path) -> Iterator[tuple[int, list[socket.socket]]]:
    """Pass connections on to a port, but let the first one of a run hang; yield the own port."""
    hung: list[socket.socket] = []
    passed: list[socket.socket] = []

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for it in (source, sink):
            with suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                if run.exists() and not hung:
                    hung.append(client)
                    continue
                upstream = socket.create_connection(("127.0.0.1", port))
                passed.extend((client, upstream))
                for pair in ((client, upstream), (upstream, client)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1], hung
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for it in (*hung, *passed):
                it.close()


def test_a_handshake_that_nobody_answers_is_given_up(tmp_path: Path) -> None:
    """Whoever waits on such a connection waits for ever, though a new one would be answered."""
    certificate(tmp_path)
    out = tmp_path / "hung" / "run-0"
    out.parent.mkdir()
    with nginx(tmp_path, tls=True, http2=True) as url:
        port = int(url.rpartition(":")[2])
        with one_that_hangs(port, out) as (own, hung):
            words = ["--http2", "-k", "-c", "1", "--timeout", "1s", "-n", "30"]
            run = drive(out.parent, f"https://127.0.0.1:{own}/page.txt", *words)
    assert hung, "no connection was begun during the run"
    found = statuses(run)
    assert found[("ok", 200)] >= 20, found
    assert sum(found.values()) == 30
