"""A gateway reports possibly lost writes once to each client, and only if some may be lost."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from flurry_house import Cluster, cluster
from guarded import PASSWORD, certificate, user
from house import FLURRY, wait_for
from redis_house import Wire

KEYS = [f"counter:{number}" for number in range(200)]


@contextmanager
def client(parts: Cluster, gateway: str) -> Iterator[Wire]:
    with closing(Wire(parts.address(gateway), 60)) as wire:
        yield wire


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def count_each(wire: Wire, wanted: int) -> None:
    replies = wire.ask_all(("INCR", key) for key in KEYS)
    assert set(replies) == {f":{wanted}\r\n".encode()}, replies[:3]


def lose_and_replace(parts: Cluster, server: str) -> None:
    parts.kill(server)
    wait_for(lambda: "2 of 3 copies" in parts.status(), "the loss")
    parts.start(server)
    wait_for(parts.is_whole, "its new life", 60)


def leave_in_doubt(parts: Cluster) -> None:
    """Count each key once, and lose the gateway and then a server that may have had its writes."""
    parts.start("gateway-a")
    with client(parts, "gateway-a") as wire:
        count_each(wire, 1)
    # No process is left that knows which writes only this server had.
    parts.kill("gateway-a")
    lose_and_replace(parts, "server-1")
    parts.start("gateway-b")


def sessions_in_doubt(parts: Cluster) -> int:
    words = [FLURRY, "status", "--json", "--controller", parts.controller]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    return int(json.loads(done.stdout)["sessions_in_doubt"])


def test_a_gateway_that_is_told_to_end_leaves_no_doubt(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.59.2.1") as parts:
        parts.start("gateway-a")
        with client(parts, "gateway-a") as wire:
            count_each(wire, 1)
            lose_and_replace(parts, "server-1")
            parts.running["gateway-a"].send_signal(signal.SIGTERM)
            assert parts.running["gateway-a"].wait(timeout=20) == 0
            assert wire.is_closed()
        assert "every write is on every replica" in parts.log_of("gateway-a").read_text()
        parts.start("gateway-b")
        with client(parts, "gateway-b") as wire:
            count_each(wire, 2)
            assert wire.ask("GET", "never written") == b"$-1\r\n"
            assert wire.ask("SET", "fresh", "1", "NX") == b"+OK\r\n"
            assert wire.ask("FLURRY", "LOSSES") == b"*0\r\n"


def test_a_gateway_that_is_killed_long_after_a_loss_leaves_no_doubt(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.59.2.2") as parts:
        parts.start("gateway-a")
        with client(parts, "gateway-a") as wire:
            count_each(wire, 1)
            lose_and_replace(parts, "server-1")
            # It says of itself that all it had written has outlived the loss.
            wait_for(lambda: sessions_in_doubt(parts) == 0, "the gateway's word")
            parts.kill("gateway-a")
        parts.start("gateway-b")
        with client(parts, "gateway-b") as wire:
            count_each(wire, 2)
            assert wire.ask("GET", "never written") == b"$-1\r\n"


def test_each_client_hears_once_of_a_loss_that_may_concern_it_and_nothing_is_done_then(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, "127.59.2.3") as parts:
        leave_in_doubt(parts)
        for _ in range(2):
            with client(parts, "gateway-b") as wire:
                assert wire.ask("INCR", KEYS[0]).startswith(b"-TAILUNKNOWN key: nothing was done")
                assert wire.ask("GET", KEYS[0]) == b"$1\r\n1\r\n"
        with client(parts, "gateway-b") as wire:
            assert wire.ask("GET", KEYS[1]).startswith(b"-TAILUNKNOWN ")
            count_each(wire, 2)
            listed = wire.ask("FLURRY", "LOSSES")
            assert listed.startswith(f"*{len(KEYS)}\r\n".encode())
            assert all(f"\r\n{key}\r\n".encode() in listed for key in KEYS)
        said = losses("--gateway", "{}:{}".format(*parts.address("gateway-b")))
        assert said.returncode == 1, said.stderr
        lines = said.stdout.splitlines()
        assert sorted(lines[:-1]) == sorted(f"doubt  {key}" for key in KEYS)
        assert f"the last writes to {len(KEYS)} keys may be" in lines[-1]
        assert "key=counter:0" in parts.log_of("gateway-b").read_text()
        metric = "flurry_gateway_keys_in_doubt_total"
        wait_for(lambda: parts.metric("gateway-b", metric) == len(KEYS), "the metric")


def test_a_doubt_ends_for_the_keys_that_a_client_writes_who_has_heard_of_it(tmp_path: Path) -> None:
    written, unused = KEYS[:100], KEYS[100:]
    with cluster(tmp_path, "127.59.2.7") as parts:
        leave_in_doubt(parts)
        with client(parts, "gateway-b") as wire:
            assert wire.ask("GET", KEYS[0]).startswith(b"-TAILUNKNOWN ")
            assert set(wire.ask_all(("INCR", key) for key in written)) == {b":2\r\n"}
            assert wire.ask("INCR", "new") == b":1\r\n"
        parts.kill("gateway-b")
        for number, gateway in enumerate(("gateway-a", "gateway-b")):
            parts.start(gateway)
            with client(parts, gateway) as wire:
                assert wire.ask("GET", "new") == b"$1\r\n1\r\n", number
                assert set(wire.ask_all(("GET", key) for key in written)) == {b"$1\r\n2\r\n"}
                assert wire.ask("GET", unused[number]).startswith(b"-TAILUNKNOWN ")
            parts.kill(gateway)


def losses(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FLURRY, "losses", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_losses_are_followed_as_they_are_found(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.59.2.5") as parts:
        parts.start("gateway-a")
        with client(parts, "gateway-a") as wire:
            count_each(wire, 1)
        said = losses("--gateway", "{}:{}".format(*parts.address("gateway-a")))
        assert (said.returncode, said.stderr) == (0, "")
        assert said.stdout == "no losses since the gateway took its slots\n"
        parts.kill("gateway-a")
        lose_and_replace(parts, "server-1")
        parts.start("gateway-b")
        where = "{}:{}".format(*parts.address("gateway-b"))
        words = [FLURRY, "losses", "--follow", "--gateway", where]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                with client(parts, "gateway-b") as wire:
                    for key in KEYS[:2]:
                        wire.ask("GET", key)
                        # Reads until the line is there.
                        assert process.stdout.readline() == f"doubt  {key}\n"
            finally:
                process.kill()


def test_losses_are_shown_to_those_who_may_see_all_keys(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.touch(0o600)
    users.write_text(
        user("cart", '["cart:"]', '["read", "write"]') + user("root", '[""]', '["admin"]')
    )
    secret = tmp_path / "password"
    secret.touch(0o600)
    secret.write_text(PASSWORD)
    certified, key = certificate(tmp_path, "127.59.2.6")
    guard = ["--users", str(users), "--tls-cert", str(certified), "--tls-key", str(key)]
    with cluster(tmp_path, "127.59.2.6") as parts:
        parts.start("gateway-a", *guard)
        where = ["--gateway", "{}:{}".format(*parts.address("gateway-a"))]
        login = ["--password-file", str(secret), "--cacert", str(certified)]
        said = losses(*where, "--user", "root", *login)
        assert said.returncode == 0, said.stderr
        for words, problem in [
            (["--user", "cart", *login], "NOPERM"),
            (["--cacert", str(certified)], "NOAUTH"),
            ([], "gateway 127.59.2.6:"),
            (["--user", "nobody", *login], "WRONGPASS"),
        ]:
            said = losses(*where, *words)
            assert said.returncode == 2, (words, said)
            assert problem in said.stderr, said.stderr
            assert len(said.stderr.splitlines()) == 1, said.stderr
        parts.kill("gateway-a")
        said = losses(*where, "--user", "root", *login)
        assert said.returncode == 2
        assert "Connection refused" in said.stderr, said.stderr


def test_a_gateway_that_does_not_own_its_slots_yet_says_that_it_is_loading(
    tmp_path: Path,
) -> None:
    parts = Cluster(tmp_path, "127.59.2.4")
    listen = f"{parts.host}:6390"
    words = [FLURRY, "gateway", "--controller", parts.controller, "--listen", listen]
    # There is no controller, so nobody can give it its slots.
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: answers(parts.host, 6390), "the gateway")
            with closing(Wire((parts.host, 6390), 60)) as wire:
                assert wire.ask("GET", "k").startswith(b"-LOADING ")
                assert wire.ask("SET", "k", "v").startswith(b"-LOADING ")
                assert wire.ask("FLURRY", "LOSSES").startswith(b"-LOADING ")
                # So that a health check does not take it for one that serves.
                assert wire.ask("PING").startswith(b"-LOADING ")
        finally:
            process.kill()
