"""Servers of messages over TCP and TLS, and name servers."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest
from http_house import certificate
from message_house import HOST, lines, name_server
from redis_house import redis_server
from stall_house import conserved, counts_its_stall
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from house import Measured

FEW = ("--requests", "200", "-r", "400", "-c", "4")


def answered(run: Measured, op: str, count: int) -> bool:
    rows = run.rows("select op, status, count(*) from requests group by 1, 2")
    return rows == [(op, "ok", count)] and conserved(run)


@pytest.mark.smoke
def test_lines_are_sent_and_each_has_its_reply(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def echo(line: bytes) -> bytes:
        asked.append(line)
        return b"you said " + line

    with lines(echo) as place:
        run = drive(tmp_path, f"tcp://{place}?contains=said", "--message", "get {sequence}", *FEW)
    assert answered(run, "request", 200)
    assert sorted(asked) == sorted(b"get %d" % number for number in range(1, 201))


def test_a_reply_without_the_wanted_text_is_a_failure(tmp_path: Path) -> None:
    with lines(lambda line: b"no" if line.endswith(b"7") else b"yes") as place:
        url = f"tcp://{place}?contains=yes"
        run = drive(tmp_path, url, "--message", "{sequence}", *FEW)
    assert statuses(run) == {("ok", None): 180, ("error:content", None): 20}


def test_a_server_that_ends_connections_fails_only_the_requests_on_them(tmp_path: Path) -> None:
    with lines(lambda line: None if line.endswith(b"00") else b"fine") as place:
        run = drive(tmp_path, f"tcp://{place}", "--message", "{sequence}", *FEW)
    found = statuses(run)
    assert conserved(run)
    assert found["error:reset", None] >= 2
    assert found["ok", None] >= 150


def test_commands_of_redis_are_measured_with_their_errors(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        url = f"tcp://{host}:{port}?framing=resp"
        pipelined = ("-c", "2", "--pipeline", "8", "--requests", "400")
        added = drive(tmp_path, url, "--message", 'ZADD b {random:1..9} "a {uuid}"', *pipelined)
        wrong = drive(tmp_path, url, "--message", "LPUSH b x", *FEW)
        with socket.create_connection((host, port)) as asking:
            asking.sendall(b"ZCARD b\r\n")
            assert asking.recv(100) == b":400\r\n"
    assert answered(added, "request", 400)
    assert statuses(wrong) == {("error:store", None): 200}


@pytest.fixture
def length_server() -> Iterator[str]:
    """Answers a message of `length4` with the same, a byte at a time."""

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while message := connection.recv(100):
                for byte in message:
                    connection.sendall(bytes([byte]))

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_length_before_each_message_frames_it(tmp_path: Path, length_server: str) -> None:
    url = f"tcp://{length_server}?framing=length4"
    assert answered(drive(tmp_path, url, "--message", "a {uuid}", *FEW), "request", 200)


def test_what_is_no_frame_fails_with_its_words(tmp_path: Path) -> None:
    with lines(lambda _: b"HTTP/1.1 400 Bad Request") as place:
        run = drive(tmp_path, f"tcp://{place}?framing=resp", "--message", "PING", *FEW)
    found = statuses(run)
    assert ("ok", None) not in found
    assert found["error:protocol", None] > 0


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_name_server_is_asked_for_the_names_of_a_file(tmp_path: Path, transport: str) -> None:
    names = tmp_path / "names.csv"
    names.write_text("name\nwww.example.org\nmail.example.org\nno.example.org\n")
    with name_server(tmp_path) as place:
        words = ("--data", names, "--transport", transport, *FEW)
        run = drive(tmp_path, f"dns://{place}/{{data.name}}", *words)
        both = drive(tmp_path, f"dns://{place}/{{data.name}}?expect=NOERROR,REFUSED", *words)
    # It knows no other name server, so it refuses what it does not know.
    assert statuses(run) == {("ok", None): 134, ("error:denied", None): 66}
    assert answered(both, "query", 200)


def test_a_name_server_that_is_not_there_refuses_every_query(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
    run = drive(tmp_path, f"dns://{HOST}:{port}/a.example.org", *FEW, "--timeout", "1s")
    assert conserved(run)
    assert statuses(run) == {("refused", None): 200}


def test_lines_are_sent_by_tls(tmp_path: Path) -> None:
    with lines(lambda _: b"fine", certificate(tmp_path)) as place:
        trusted = ("--ca-cert", tmp_path / "cert.pem", "--message", "get {sequence}")
        assert answered(drive(tmp_path, f"tls://{place}", *trusted, *FEW), "request", 200)
        said = refused(tmp_path, f"tls://{place}", "--message", "a")
    assert "its certificate is not accepted" in said


def test_a_stall_of_a_server_of_messages_is_counted(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with redis_server(tmp_path, HOST) as (host, port):
        pid = server_pid(host, port)
        url = f"tcp://{host}:{port}?framing=resp"
        counts_its_stall(out, 1_000, lambda: [pid], url, "--message", "PING")


def server_pid(host: str, port: int) -> int:
    with socket.create_connection((host, port)) as asking:
        asking.sendall(b"INFO server\r\n")
        text = asking.recv(1 << 16)
    [line] = [line for line in text.split(b"\r\n") if line.startswith(b"process_id:")]
    return int(line.split(b":")[1])


@pytest.mark.parametrize(
    ("url", "flags", "wrong"),
    [
        ("tcp://127.0.0.1:7", [], "message: it is missing"),
        ("tcp://127.0.0.1", ["--message", "a"], "it has no port"),
        ("tcp://127.0.0.1:7?framing=xml", ["--message", "a"], "wanted lines, length4 or resp"),
        ("dns://127.0.0.1", [], "it has no name"),
        ("dns://127.0.0.1/a?type=NONE", [], 'the type is "NONE"'),
        ("dns://127.0.0.1/a", ["--message", "a"], "only a tcp://, tls:// or kafka:// URL has it"),
        ("redis://127.0.0.1", ["--message", "a"], "only a tcp://, tls:// or kafka:// URL has it"),
        ("tcp://127.0.0.1:7", ["--message", "a", "--value", "1KB"], "every request is one message"),
        ("tls://127.0.0.1:7", ["--message", "a", "--transport", "udp"], "not spoken over udp"),
    ],
)
def test_what_no_server_of_messages_has_is_refused(
    tmp_path: Path, url: str, flags: list[str], wrong: str
) -> None:
    assert wrong in refused(tmp_path, url, *flags)
