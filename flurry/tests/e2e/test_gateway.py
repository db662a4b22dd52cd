"""A gateway in trouble: another takes over, and no write that was acknowledged is lost."""

from __future__ import annotations

import select
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from guarded import PASSWORD, user
from house import FLURRY, started, wait_for
from redis_house import Wire, encoded, gateway

HOST = "127.55.0.1"
CONTROLLER = f"{HOST}:7700"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    log = tmp_path_factory.mktemp("servers") / "serve.log"
    with started([FLURRY, "serve", "--controller", CONTROLLER], "ready", log):
        yield


class Gateway:
    """A process of its own, which may be killed."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *words: str,
        listen: str = f"{HOST}:0",
        controller: str = CONTROLLER,
    ) -> None:
        self.said, self.log = folder / f"{name}.out", folder / f"{name}.log"
        where = ["--listen", listen, "--controller", controller]
        with self.said.open("wb") as said, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [FLURRY, "gateway", *where, *words], stdout=said, stderr=log
            )
        wait_for(lambda: "ready" in self.said.read_text() or self.process.poll() is not None, name)
        assert self.process.poll() is None, self.log.read_text()
        host, _, port = self.said.read_text().split()[1].rpartition(":")
        self.address = (host, int(port))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def gateways() -> Iterator[list[Gateway]]:
    running: list[Gateway] = []
    try:
        yield running
    finally:
        for it in running:
            it.kill()


class Counter(threading.Thread):
    """Adds to a few keys as long as a gateway answers, and counts acknowledged additions."""

    def __init__(self, address: tuple[str, int], name: str, told: threading.Event) -> None:
        super().__init__()
        self.wire = Wire(address)
        self.sums = {f"{name}:{number}": 0 for number in range(8)}
        self.told = told

    def run(self) -> None:
        try:
            while True:
                for key in self.sums:
                    reply = self.wire.ask("INCR", key)
                    if not reply.startswith(b":"):
                        return
                    self.sums[key] = int(reply[1:])
                    self.told.set()
        except OSError:
            return
        finally:
            self.wire.close()


@pytest.mark.parametrize("end", ["killed", "fenced off"])
@pytest.mark.usefixtures("servers")
def test_another_gateway_goes_on_where_one_has_ended(tmp_path: Path, end: str) -> None:
    with gateways() as running:
        running.append(Gateway(tmp_path, "first"))
        told = threading.Event()
        counters = [Counter(running[0].address, f"{end}-{it}", told) for it in range(6)]
        for counter in counters:
            counter.start()
        assert told.wait(20)
        if end == "killed":
            running[0].kill()
        running.append(Gateway(tmp_path, "second"))
        for counter in counters:
            counter.join(20)
            assert not counter.is_alive()
        assert any(sum(counter.sums.values()) for counter in counters)
        with closing(Wire(running[1].address)) as wire:
            for counter in counters:
                for key, acknowledged in counter.sums.items():
                    # What was under way at the end may have been done, and was not acknowledged.
                    found = int(wire.ask("INCRBY", key, 0)[1:])
                    assert acknowledged <= found <= acknowledged + 1, key
        if end == "fenced off":
            assert running[0].process.wait(20) == 2
            assert "owned by epoch" in running[0].log.read_text()
            assert "another gateway has these slots" in running[0].log.read_text()


@pytest.mark.usefixtures("servers")
def test_a_value_that_has_ended_is_let_go_though_nobody_asks_for_it(tmp_path: Path) -> None:
    with gateways() as running:
        running.append(Gateway(tmp_path, "only"))
        with closing(Wire(running[0].address)) as wire:
            wire.ask_all([("SET", f"short:{number}", "v", "PX", "1") for number in range(500)])
            assert wire.ask("SET", "long", "v", "EX", "1000") == b"+OK\r\n"

            def records() -> int:
                lines = wire.ask("INFO", "stats").split(b"\r\n")
                [swept] = [line for line in lines if line.startswith(b"ended_values_removed:")]
                return int(swept.partition(b":")[2])

            wait_for(lambda: records() >= 500, "values that have ended to be removed")
            assert wire.ask("GET", "long") == b"$1\r\nv\r\n"


@pytest.mark.parametrize("command", ["MGET", "DEL", "EXISTS"])
@pytest.mark.usefixtures("servers")
def test_a_command_of_very_many_keys_leaves_room_for_other_clients(
    tmp_path: Path, command: str
) -> None:
    keys = [f"key:{number}" for number in range(100_000)]
    with gateways() as running:
        running.append(Gateway(tmp_path, "only"))
        address = running[0].address
        with closing(Wire(address)) as greedy, closing(Wire(address)) as other:
            greedy.send(encoded(command, *keys))
            before = 0
            while not select.select([greedy.socket], [], [], 0)[0]:
                assert other.ask("SET", "other", f"{before}") == b"+OK\r\n"
                assert other.ask("GET", "other").endswith(b"\r\n%d\r\n" % before)
                before += 1
            # A gateway that does it in one piece answers the other client once, when it is done.
            assert before >= 20
            told = greedy.reply()
            wanted = b"*100000\r\n" + b"$-1\r\n" * len(keys) if command == "MGET" else b":0\r\n"
            assert told == wanted
            said = greedy.ask(command, *keys, "one more")
            assert said == b"-ERR 100001 keys; at most 100000 are taken in one command\r\n"


def count(wire: Wire) -> int:
    return int(wire.ask("DBSIZE").removeprefix(b":"))


@pytest.mark.usefixtures("servers")
def test_half_of_the_slots_moves_to_another_gateway_with_its_keys_and_back(tmp_path: Path) -> None:
    """One gateway becomes two and one again, and no key is lost or has two values."""
    # As `CLUSTER KEYSLOT` says: `foo` is in 12182, and `hello` in 866.
    lower, upper = "moving:{hello}", "moving:{foo}"
    with gateways() as running:
        running.append(Gateway(tmp_path, "all", "--other", f"{HOST}:7801=8192-16383"))
        all_slots = running[0]
        with closing(Wire(all_slots.address)) as wire:
            for key in (lower, upper):
                assert wire.ask("SET", key, "one") == b"+OK\r\n"
            whole = count(wire)
            running.append(
                Gateway(tmp_path, "upper", "--slots", "8192-16383", listen=f"{HOST}:7801")
            )
            with closing(Wire(running[1].address)) as other:
                assert other.ask("GET", upper) == b"$3\r\none\r\n"
                assert other.ask("SET", upper, "two") == b"+OK\r\n"
                assert other.ask("GET", lower).startswith(b"-CLUSTERDOWN ")
                upper_half = count(other)
            # The first one hears of it at once, and goes on with the rest.
            assert wire.ask("SET", upper, "of old").startswith((b"-FENCED ", b"-MOVED "))
            moved = b"-MOVED 12182 %s:7801\r\n" % HOST.encode()
            wait_for(lambda: wire.ask("GET", upper) == moved, "the first gateway to know")
            assert wire.ask("SET", lower, "two") == b"+OK\r\n"
            wait_for(lambda: b"connected 0-8191\n" in wire.ask("CLUSTER", "NODES"), "its half")
            assert count(wire) + upper_half == whole
            assert min(count(wire), upper_half) > 0
            assert "another gateway has these slots" in all_slots.log.read_text()
            assert all_slots.process.poll() is None
        for it in running:
            it.process.terminate()
            assert it.process.wait(20) == 0, it.log.read_text()
        running.append(Gateway(tmp_path, "again"))
        with closing(Wire(running[-1].address)) as wire:
            assert {wire.ask("GET", key) for key in (lower, upper)} == {b"$3\r\ntwo\r\n"}
            assert count(wire) == whole
            assert wire.ask("DEL", lower, upper) == b":2\r\n"


@pytest.mark.usefixtures("servers")
def test_slots_that_are_no_whole_parts_are_refused() -> None:
    words = ["--listen", f"{HOST}:0", "--controller", CONTROLLER, "--slots", "8000-9000"]
    done = subprocess.run(
        [FLURRY, "gateway", *words], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert "slots are 8000-9000; wanted whole parts of 256 slots" in done.stderr
    assert "hint: 0-8191 and 8192-16383" in done.stderr


@pytest.mark.usefixtures("servers")
def test_nobody_takes_slots_from_a_gateway_by_writing_a_key_by_hand(tmp_path: Path) -> None:
    with gateways() as running:
        running.append(Gateway(tmp_path, "by-hand"))
        words = ["set", "k", "v", "--controller", CONTROLLER, "--session", "slots/3"]
        done = subprocess.run(
            [FLURRY, *words], capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 2
        assert "session slots/3: it belongs to a gateway" in done.stderr
        with closing(Wire(running[0].address)) as wire:
            assert wire.ask("SET", "by hand", "one") == b"+OK\r\n"
            assert wire.ask("DEL", "by hand") == b":1\r\n"


@pytest.mark.smoke
def test_each_connection_and_each_user_has_its_level(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    careful = user("careful", '[""]', '["read", "write"]') + 'level = "quorum"\n'
    users.touch(0o600)
    users.write_text(careful + user("quick", '[""]', '["read", "write"]'))
    words = ["--users", str(users), "--level", "hedge:1ms"]
    with gateway(tmp_path, "127.56.0.1", *words) as address, closing(Wire(address)) as wire:
        for name, level in [("careful", b"quorum"), ("quick", b"hedge 1000")]:
            assert wire.ask("AUTH", name, PASSWORD) == b"+OK\r\n"
            assert wire.ask("FLURRY", "LEVEL") == b"$%d\r\n%s\r\n" % (len(level), level)
        assert wire.ask("FLURRY", "LEVEL", "HEDGE", "500") == b"+OK\r\n"
        assert wire.ask("FLURRY", "LEVEL") == b"$9\r\nhedge 500\r\n"
        assert wire.ask("SET", "k", "v") == b"+OK\r\n"
        assert wire.ask("FLURRY", "LEVEL", "most").startswith(b"-ERR level")


def test_a_gateway_that_promises_several_copies_lets_nobody_choose_fewer(tmp_path: Path) -> None:
    with (
        gateway(tmp_path, "127.56.0.2", "--level", "quorum") as address,
        closing(Wire(address)) as wire,
    ):
        for level in (["ALL"], ["QUORUM"]):
            assert wire.ask("FLURRY", "LEVEL", *level) == b"+OK\r\n"
        for level in (["FIRST"], ["AUTO"], ["HEDGE", "500"]):
            refusal = wire.ask("FLURRY", "LEVEL", *level)
            assert refusal.startswith(b"-ERR level: this gateway promises several copies")
        assert wire.ask("FLURRY", "LEVEL") == b"$6\r\nquorum\r\n"
        assert wire.ask("SET", "k", "v") == b"+OK\r\n"
    users = tmp_path / "users.toml"
    users.touch(0o600)
    users.write_text(user("quick", '[""]', '["read", "write"]') + 'level = "first"\n')
    listen = ["--listen", "127.56.0.3:0", "--controller", "127.56.0.3:7700"]
    words = [FLURRY, "gateway", *listen, "--users", str(users), "--level", "quorum"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "promises fewer copies of a write than the gateway does" in done.stderr


def test_wait_tells_how_many_copies_there_are(tmp_path: Path) -> None:
    with gateway(tmp_path, "127.57.9.1") as address, closing(Wire(address)) as wire:
        for number in range(100):
            wire.ask("SET", f"k{number}", "v")
        assert wire.ask("WAIT", 2, 5_000) == b":2\r\n"
        wire.ask("SET", "k", "v")
        assert int(wire.ask("WAIT", 1, 5_000)[1:]) >= 1
        # As many as there are, when more are asked for.
        assert wire.ask("WAIT", 9, 5_000) == b":2\r\n"
