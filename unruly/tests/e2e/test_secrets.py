"""Passwords and tokens: a store gets them, and nobody else on this host can read them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from house import UNRULY, Measured, call, pids_of, spooled, wait_for
from redis_house import Wire, redis_server

SECRET = "s3c/r3t@x:%"
HOST = "127.57.10.1"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A Redis server that lets in who knows the password."""
    with redis_server(tmp_path, HOST) as address:
        with closing(Wire(address)) as wire:
            assert wire.ask("CONFIG", "SET", "requirepass", SECRET) == b"+OK\r\n"
        yield address


def words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def texts(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


def test_a_password_in_a_url_lets_in_and_is_nowhere_to_be_read(
    tmp_path: Path, guarded: tuple[str, int]
) -> None:
    out = tmp_path / "out"
    url = f"redis://default:{quote(SECRET, safe='')}@{guarded[0]}:{guarded[1]}/0"
    command = [UNRULY, "drive", url, "-c", "2", "-r", "1000", "-d", "4s", "-w", "0s", "-o", out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: spooled(out) > 50_000 or process.poll() is not None, "some rows")
        shown = {pid: words_of(pid) for pid in [process.pid, *pids_of(out)]}
        said, errors = process.communicate(timeout=120)
    assert process.returncode in (0, 1), errors
    assert len(shown) > 1
    assert b"redis://default@" in shown[process.pid]
    secrets = SECRET.encode(), quote(SECRET, safe="").encode()
    everywhere = {**shown, "output": said, "errors": errors, **dict(texts(out))}
    for place, text in everywhere.items():
        assert not any(secret in text for secret in secrets), place
    run = Measured(out)
    assert run.rows("select count(*) from requests where status = 'ok'")[0][0] > 1_000
    assert "redis://default@" in " ".join(run.manifest["command"])


def test_a_password_of_a_file_lets_in(tmp_path: Path, guarded: tuple[str, int]) -> None:
    secret, out = tmp_path / "secret", tmp_path / "out"
    secret.write_text(SECRET + "\n")
    url = f"redis://{guarded[0]}:{guarded[1]}"
    short = ("-d", "1s", "-w", "0s", "-q")
    said = call("drive", url, *short, "--password-file", secret, "-o", out)
    # A busy host spoils the run, which is a finding and no error.
    assert said.returncode in (0, 1), said.stderr
    assert Measured(out).rows("select count(*) from requests where status = 'ok'")[0][0] > 100
    refused = call("drive", url, *short, "-o", tmp_path / "none")
    assert refused.returncode == 2
    assert "NOAUTH" in refused.stderr


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr3t@127.0.0.1:bad",
        "redis://user:s3cr3t/ss@h",
        "redis://user:12/s3cr3t@h",
        "redis://user:s3cr3t@h h",
        "http://h:1/x?a@b&token=s3cr3t",
        "http://u:s3cr3t@h/?token=s3cr3t",
        "memcached://u:s3cr3t@127.0.0.1:1",
        "nosuch://u:s3cr3t@h",
    ],
)
def test_a_url_that_is_refused_is_not_echoed_with_its_secret(url: str) -> None:
    said = call("drive", url, "-d", "1s")
    assert said.returncode == 2
    assert "s3cr3t" not in said.stderr + said.stdout


def test_a_token_of_a_query_is_sent_and_kept_nowhere(tmp_path: Path) -> None:
    asked: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.add(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    out = tmp_path / "out"
    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{HOST}:{server.server_address[1]}/cart?a=1&token=s3c%2Fr3t"
        said = call("drive", url, "-d", "1s", "-w", "0s", "-r", "50", "-o", out)
        server.shutdown()
    assert said.returncode in (0, 1), said.stderr
    assert asked == {"/cart?a=1&token=s3c%2Fr3t"}
    for place, text in [("output", (said.stdout + said.stderr).encode()), *texts(out)]:
        assert b"r3t" not in text, place
    assert "token={password}" in (out / "plan.toml").read_text()
