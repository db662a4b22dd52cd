"""An attacker's afternoon: whatever he tries, he gets no answer, and others notice nothing."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from guarded import PASSWORD, certificate, user
from house import FLURRY, need_root, started, wait_for
from redis_house import Wire, encoded, gateway

TLS_HOST = "127.50.0.1"


class Guarded:
    """A gateway whose users must say who they are."""

    def __init__(self, address: tuple[str, int], users: Path) -> None:
        self.address = address
        self.users = users
        self.wires: list[Wire] = []

    def stranger(self) -> Wire:
        wire = Wire(self.address)
        self.wires.append(wire)
        return wire

    def leave(self) -> None:
        for wire in self.wires:
            wire.close()
        self.wires.clear()

    def enter(self, name: str) -> Wire:
        wire = self.stranger()
        assert wire.ask("AUTH", name, PASSWORD) == b"+OK\r\n"
        return wire


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    users = folder / "users.toml"
    users.touch(0o600)
    users.write_text(
        user("cart", '["cart:"]', '["read", "write"]')
        + user("reader", '[""]', '["read"]')
        + user("writer", '[""]', '["write"]')
        + user("admin", '[""]', '["read", "write", "admin"]')
    )
    words = ["--users", str(users), "--entry-timeout", "2s", "--connections", "6000"]
    with gateway(folder, "127.47.0.1", *words) as address:
        yield Guarded(address, users)


@pytest.fixture
def guarded(house: Guarded) -> Iterator[Guarded]:
    yield house
    house.leave()


@contextmanager
def unharmed(guarded: Guarded) -> Iterator[None]:
    """Somebody who works meanwhile, and must notice nothing."""
    wire = guarded.enter("admin")
    assert wire.ask("SET", "witness", "1") == b"+OK\r\n"
    yield
    assert wire.ask("INCR", "witness") == b":2\r\n"
    wire.close()


@pytest.mark.smoke
def test_a_stranger_is_told_nothing(guarded: Guarded) -> None:
    with unharmed(guarded):
        for words in [
            ("PING",),
            ("GET", "witness"),
            ("SET", "witness", "9"),
            ("INFO",),
            ("SCAN", "0"),
            ("CLIENT", "LIST"),
            ("CLUSTER", "SLOTS"),
            ("COMMAND",),
            ("FLURRY", "LEVEL"),
            ("NOTHING",),
        ]:
            wire = guarded.stranger()
            assert wire.ask(*words) == b"-NOAUTH Authentication required.\r\n", words
            wire.close()
        assert guarded.stranger().ask("HELLO", "3").startswith(b"-NOAUTH")


def test_wrong_passwords_are_told_apart_from_nothing_and_end_the_connection(
    guarded: Guarded,
) -> None:
    with unharmed(guarded):
        for name, password in [("admin", "guess"), ("nobody", PASSWORD), ("admin", "")]:
            wire = guarded.stranger()
            for _ in range(3):
                assert wire.ask("AUTH", name, password).startswith(b"-WRONGPASS")
            assert wire.is_closed()
        assert guarded.stranger().ask("AUTH", PASSWORD).startswith(b"-WRONGPASS")
        hello = guarded.stranger().ask("HELLO", "3", "AUTH", "admin", "guess")
        assert hello.startswith(b"-WRONGPASS")


def test_a_stranger_may_not_send_much_nor_stay_long(guarded: Guarded) -> None:
    with unharmed(guarded):
        for stream in (b"*11\r\n", b"*1\r\n$20000\r\n"):
            wire = guarded.stranger()
            wire.send(stream)
            assert wire.reader.readline().startswith(b"-ERR Protocol error: unauthenticated")
            assert wire.is_closed()
        slow = guarded.stranger()
        slow.send(b"*3\r\n$4\r\nAUTH\r\n")
        assert slow.is_closed(), "it had to say who it is by now"


def test_a_user_stays_within_its_keys_and_its_rights(guarded: Guarded) -> None:
    admin = guarded.enter("admin")
    admin.ask_all([("SET", "secret", "1"), ("SET", "cart:1", "1")])
    cart, reader = guarded.enter("cart"), guarded.enter("reader")
    assert cart.ask("INCR", "cart:1") == b":2\r\n"
    for words in [
        ("GET", "secret"),
        ("MGET", "cart:1", "secret"),
        ("DEL", "cart:1", "secret"),
        ("MSET", "cart:2", "x", "secret", "x"),
        ("SET", "car", "x"),
        ("SCAN", "0"),
        ("KEYS", "*"),
        ("DBSIZE",),
        ("INFO",),
        ("CONFIG", "GET", "*"),
        # those of others
        ("CLIENT", "LIST"),
        ("CLIENT", "KILL", "ID", "1"),
    ]:
        assert cart.ask(*words).startswith(b"-NOPERM"), words
    assert reader.ask("GET", "secret") == b"$1\r\n1\r\n"
    for words in [("SET", "secret", "2"), ("DEL", "secret"), ("GETDEL", "secret"), ("INCR", "n")]:
        assert reader.ask(*words).startswith(b"-NOPERM"), words
    writer = guarded.enter("writer")
    for words in [
        ("GETDEL", "secret"),
        ("GETEX", "secret"),
        ("GETSET", "secret", "2"),
        ("SET", "secret", "2", "GET"),
    ]:
        assert writer.ask(*words).startswith(b"-NOPERM"), words
    assert writer.ask("SET", "written", "2") == b"+OK\r\n"
    assert admin.ask("KEYS", "*[" + "a" * 2_000).startswith(b"-ERR a pattern has at most")
    assert admin.ask("MGET", "secret", "cart:1", "cart:2") == (
        b"*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n"
    )
    # Whoever begins anew is a stranger again.
    assert admin.ask("RESET") == b"+RESET\r\n"
    assert admin.ask("GET", "secret").startswith(b"-NOAUTH")


def test_a_user_that_is_taken_away_is_let_go_and_comes_in_no_more(guarded: Guarded) -> None:
    before = guarded.users.read_text()
    with unharmed(guarded):
        guarded.users.write_text(before + user("guest", '[""]', '["read"]'))
        guest = guarded.stranger()
        wait_for(
            lambda: guarded.stranger().ask("AUTH", "guest", PASSWORD) == b"+OK\r\n", "the guest"
        )
        assert guest.ask("AUTH", "guest", PASSWORD) == b"+OK\r\n"
        guarded.users.write_text(before)
        assert guest.is_closed()
        assert guarded.stranger().ask("AUTH", "guest", PASSWORD).startswith(b"-WRONGPASS")


def test_a_file_of_users_that_is_broken_changes_nothing(guarded: Guarded) -> None:
    before = guarded.users.read_text()
    with unharmed(guarded):
        guarded.users.write_text("[[user]]\nname = 1")
        log = guarded.users.parent / "gateway.log"
        wait_for(
            lambda: "the version that was read before stays in use" in log.read_text(),
            "the complaint",
        )
        guarded.enter("cart").close()
    guarded.users.write_text(before)


def resident_bytes(of: str) -> int:
    """Memory of the gateway whose users are in a file of this name."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if of.encode() in words:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                return pages * resource.getpagesize()
    raise AssertionError("the gateway is gone")


def test_who_does_not_read_what_it_asks_for_costs_little_and_delays_nobody(
    guarded: Guarded,
) -> None:
    admin = guarded.enter("admin")
    admin.ask("SET", "large", b"x" * 500_000)
    before = resident_bytes(str(guarded.users))
    slow = [guarded.enter("admin") for _ in range(10)]
    for wire in slow:
        wire.socket.settimeout(0.05)
        with suppress(TimeoutError):
            while True:
                wire.send(encoded("GET", "large") * 100)
    with unharmed(guarded):
        assert resident_bytes(str(guarded.users)) - before < 100_000_000
    for wire in slow:
        wire.close()


def test_unfinished_commands_of_many_clients_do_not_fill_the_memory(guarded: Guarded) -> None:
    before = resident_bytes(str(guarded.users))
    part = b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n"
    crowd = [guarded.enter("admin") for _ in range(24)]
    with unharmed(guarded):
        for wire in crowd:
            with suppress(ConnectionError):
                wire.send(b"*31\r\n" + part * 30)
        # Each has sent 30 MB of a command that has no end, 720 MB together. 256 MiB are kept,
        # in buffers that have room for more.
        grown = resident_bytes(str(guarded.users)) - before
        assert grown < 500_000_000, grown
    for wire in crowd:
        wire.socket.settimeout(0.2)
    assert sum(wire.is_closed() for wire in crowd) >= 10


def test_thousands_of_idle_connections_keep_nobody_out(guarded: Guarded) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle = []
    try:
        with unharmed(guarded):
            for _ in range(10_000):
                idle.append(socket.create_connection(guarded.address, timeout=5))
            # There are more strangers than there may be, and still a user gets in.
            guarded.enter("cart").close()
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_browser_that_was_sent_here_is_sent_away(guarded: Guarded) -> None:
    wire = guarded.stranger()
    wire.send(b"POST / HTTP/1.1\r\nHost: gateway\r\n\r\nSET witness 9\r\n")
    assert wire.reader.read() == b""


def test_garbage_is_refused_and_delays_nobody(guarded: Guarded) -> None:
    with unharmed(guarded):
        for stream in (b"\x16\x03\x01\x02\x00" * 50, os.urandom(5_000), b"*1\r\n$-1\r\n"):
            wire = guarded.stranger()
            wire.send(stream)
            wire.socket.shutdown(socket.SHUT_WR)
            said = wire.reader.read()
            assert b"$" not in said
            assert not said or said.startswith((b"-ERR", b"-NOAUTH"))


def test_without_tls_nobody_is_heard_by_a_gateway_that_has_it(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path, TLS_HOST)
    words = ["--tls-cert", str(chain), "--tls-key", str(key), "--entry-timeout", "1s"]
    with gateway(tmp_path, TLS_HOST, *words) as address:
        with closing(Wire(address)) as mute:
            assert mute.is_closed(), "who begins no handshake is let go"
        with closing(Wire(address)) as plain:
            plain.send(encoded("PING") * 3)
            assert b"PONG" not in plain.reader.read()
        context = ssl.create_default_context(cafile=str(chain))
        with (
            socket.create_connection(address, timeout=5) as raw,
            context.wrap_socket(raw, server_hostname=TLS_HOST) as safe,
        ):
            safe.sendall(encoded("ECHO", b"y" * 100_000))
            said = b""
            while len(said) < 100_000 + len(b"$100000\r\n\r\n"):
                said += safe.recv(1 << 16)
            assert said == b"$100000\r\n" + b"y" * 100_000 + b"\r\n"
            first = safe.getpeercert(binary_form=True)
        # Another certificate is used from the next connection on.
        certificate(tmp_path, TLS_HOST)

        def renewed() -> bool:
            lax = ssl.create_default_context()
            lax.check_hostname, lax.verify_mode = False, ssl.CERT_NONE
            with socket.create_connection(address, timeout=5) as raw, lax.wrap_socket(raw) as other:
                return other.getpeercert(binary_form=True) != first

        wait_for(renewed, "the new certificate")


def sniffed(host: str, port: int, packets: int) -> list[bytes]:
    """Datagrams on their way to somebody, as anybody on the network could keep them."""
    kept: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3)) as tap:
        tap.bind(("lo", 0))
        tap.settimeout(10)
        while len(kept) < packets:
            frame = tap.recv(1 << 16)
            ip = frame[14:]
            if len(ip) < 28 or ip[9] != socket.IPPROTO_UDP:
                continue
            header = (ip[0] & 15) * 4
            to = socket.inet_ntoa(ip[16:20]), struct.unpack("!H", ip[header + 2 : header + 4])[0]
            if to == (host, port):
                kept.append(ip[header + 8 :])
    return kept


def test_datagrams_that_are_replayed_forged_or_not_sealed_are_never_answered(
    tmp_path: Path,
) -> None:
    need_root("a look at the loopback network")
    key = tmp_path / "cluster.key"
    subprocess.run([FLURRY, "key", key], check=True)
    assert key.stat().st_mode & 0o777 == 0o600
    host, port = "127.48.0.1", 7700
    words = [FLURRY, "serve", "--controller", f"{host}:{port}", "--key-file", key]
    with started([*words], "ready", tmp_path / "serve.log"):
        sealed = sniffed(host, port, 12)
        assert all(packet.startswith(b"\xf3\x01") for packet in sealed)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
            attacker.settimeout(0.5)
            attacker.connect((host, port))
            for packet in sealed:
                attacker.send(packet)
                attacker.send(packet[:-1] + bytes([packet[-1] ^ 1]))
                attacker.send(packet[:20])
            attacker.send(unsealed_question(tmp_path))
            attacker.send(os.urandom(1_000))
            with pytest.raises(TimeoutError):
                attacker.recv(1 << 16)
        # Frames of a connection are no better off, and a long one ends it.
        for frame in (b"\xff\xff\xff\xff", struct.pack("<I", len(sealed[0])) + sealed[0]):
            with socket.create_connection((host, port), timeout=5) as attacker:
                attacker.sendall(frame)
                assert attacker.recv(1 << 16) == b""
        ask = [FLURRY, "status", "--controller", f"{host}:{port}", "--timeout", "1s"]
        refused = subprocess.run(ask, capture_output=True, text=True, check=False)
        assert refused.returncode == 2, "a client without the key"
        allowed = subprocess.run([*ask, "--key-file", key], capture_output=True, check=False)
        assert allowed.returncode == 0


def unsealed_question(folder: Path) -> bytes:
    """What `flurry status` sends without a key; a cluster without one answers it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.49.0.1", 0))
        listener.settimeout(5)
        host, port = listener.getsockname()
        ask = [FLURRY, "status", "--controller", f"{host}:{port}", "--timeout", "1s"]
        asking = subprocess.Popen(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        question = listener.recv(1 << 16)
        asking.wait()
    serve = [FLURRY, "serve", "--controller", f"{host}:{port}"]
    with (
        started([*serve], "ready", folder / "open.log"),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as friend,
    ):
        friend.settimeout(5)
        friend.sendto(question, (host, port))
        assert friend.recv(1 << 16)
    return question


def test_a_gateway_that_others_can_reach_must_know_them() -> None:
    words = [FLURRY, "gateway", "--listen", "10.1.2.3:6379"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "--users" in done.stderr
    assert "--insecure" in done.stderr


@pytest.mark.parametrize("secret", ["users", "key"])
def test_a_gateway_does_not_start_with_a_secret_that_others_can_read(
    tmp_path: Path, secret: str
) -> None:
    users = tmp_path / "users.toml"
    users.touch(0o600)
    users.write_text(user("cart", '["cart:"]', '["read"]'))
    chain, key = certificate(tmp_path, "127.47.0.9")
    readable = {"users": users, "key": key}[secret]
    readable.chmod(0o644)
    words = ["--listen", "127.47.0.9:6379", "--users", str(users)]
    words += ["--tls-cert", str(chain), "--tls-key", str(key)]
    done = subprocess.run(
        [FLURRY, "gateway", *words], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert f"chmod 640 {readable}" in done.stderr
