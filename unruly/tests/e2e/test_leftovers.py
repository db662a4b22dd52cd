"""What a run finds in a store and leaves there: data of others stays, its own keys go."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from house import call, wait_for
from redis_house import Wire, free_port, redis_server

LIAR = Path(__file__).with_name("liar.py")
MOMENT = ("-r", "200", "-d", "500ms", "-w", "0s", "--keys", "40")


class Lines:
    """A connection to memcached."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.wire = Wire(address)

    def items(self) -> int:
        self.wire.send(b"stats\r\n")
        found = 0
        while (line := self.wire.reader.readline().strip()) != b"END":
            if line.startswith(b"STAT curr_items "):
                found = int(line.split()[2])
        return found

    def close(self) -> None:
        self.wire.close()

    def put(self, key: str) -> None:
        self.wire.send(f"set {key} 0 0 1\r\nx\r\n".encode())
        assert self.wire.reader.readline() == b"STORED\r\n"


@contextmanager
def memcached(folder: Path) -> Iterator[tuple[str, int]]:
    program = shutil.which("memcached")
    assert program, "memcached: not installed; hint: apt-get install memcached"
    port = free_port("127.0.0.1")
    words = [program, "-u", "nobody", "-l", "127.0.0.1", "-p", str(port), "-U", str(port)]
    with (folder / "memcached.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            wait_for(lambda: answers(("127.0.0.1", port)), "memcached")
            yield ("127.0.0.1", port)
        finally:
            process.kill()
            process.wait()


def answers(address: tuple[str, int]) -> bool:
    try:
        Wire(address, 1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def store(folder: Path) -> Iterator[tuple[str, Wire]]:
    """A Redis of its own: its URL, and a connection to look into it."""
    with redis_server(folder, "127.0.0.1") as address, closing(Wire(address)) as wire:
        yield "redis://{}:{}".format(*address), wire


def drive(folder: Path, url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    out = folder / f"run-{len(list(folder.iterdir()))}"
    return call("drive", url, *MOMENT, "-q", "-o", out, *flags)


@pytest.mark.parametrize(
    "mix", ["write then read", "read 90%, write 10%"], ids=["written", "written before"]
)
def test_the_keys_of_a_run_are_gone_after_it_unless_they_are_kept(tmp_path: Path, mix: str) -> None:
    with store(tmp_path) as (url, wire):
        kept = drive(tmp_path, url, "--operations", mix, "--keep")
        assert kept.returncode == 0, kept.stderr
        assert wire.ask("DBSIZE") == b":40\r\n"
        # Keys of an earlier run of ours are no data of others.
        gone = drive(tmp_path, url, "--operations", mix)
        assert gone.returncode == 0, gone.stderr
        assert wire.ask("DBSIZE") == b":0\r\n"


def test_what_was_only_read_stays(tmp_path: Path) -> None:
    with store(tmp_path) as (url, wire):
        drive(tmp_path, url, "--keep")
        wire.ask("SET", "of-somebody", "1")
        read = drive(tmp_path, url, "--operations", "read", "--preload", "false")
        assert read.returncode == 0, read.stderr
        assert wire.ask("DBSIZE") == b":41\r\n"


def test_a_redis_with_other_keys_is_written_to_only_when_that_is_asked_for(
    tmp_path: Path,
) -> None:
    with store(tmp_path) as (url, wire):
        wire.ask("SET", "of-somebody", "1")
        refused = drive(tmp_path, url)
        assert refused.returncode == 2
        assert 'it holds other data, such as "of-somebody"; hint: ' in refused.stderr
        assert "--yes" in refused.stderr
        assert wire.ask("DBSIZE") == b":1\r\n"
        # Another database of it is empty.
        assert drive(tmp_path, f"{url}/1").returncode == 0
        done = drive(tmp_path, url, "--yes")
        assert done.returncode == 0, done.stderr
        assert wire.ask("KEYS", "*") == b"*1\r\n$11\r\nof-somebody\r\n"


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_memcached_is_left_as_it_was_found(tmp_path: Path, transport: str) -> None:
    with memcached(tmp_path) as address, closing(Lines(address)) as lines:
        url = "memcached://{}:{}".format(*address)
        assert drive(tmp_path, url, "--transport", transport).returncode == 0
        assert lines.items() == 0
        lines.put("of-somebody")
        refused = drive(tmp_path, url, "--transport", transport)
        assert refused.returncode == 2
        assert 'it holds other data, such as "curr_items 1"' in refused.stderr
        assert drive(tmp_path, url, "--yes", "--transport", transport).returncode == 0
        assert lines.items() == 1


def test_a_driver_that_cannot_remove_keys_is_said_to_have_left_them(tmp_path: Path) -> None:
    url = f"program:{sys.executable} {LIAR} honest 1"
    said = call("drive", url, *MOMENT, "-o", tmp_path / "out")
    assert "left 40 keys unruly:* on program:" in said.stderr
