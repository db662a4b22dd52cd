"""A standby gateway takes over from one that ends, and an observer disturbs nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from flurry_house import Cluster, cluster
from house import FLURRY, wait_for
from redis_house import Wire

KEYS = 200
# Longer than a busy machine keeps a process waiting.
SILENCE_S = 2.0


@contextmanager
def wire(parts: Cluster, gateway: str) -> Iterator[Wire]:
    with closing(Wire(parts.address(gateway), 60)) as it:
        yield it


def write(parts: Cluster, gateway: str) -> None:
    with wire(parts, gateway) as it:
        replies = it.ask_all(("SET", f"key:{number}", f"value-{number}") for number in range(KEYS))
        assert set(replies) == {b"+OK\r\n"}


def has_all(parts: Cluster, gateway: str) -> bool:
    with wire(parts, gateway) as it:
        replies = it.ask_all(("GET", f"key:{number}") for number in range(KEYS))
    return [reply.split(b"\r\n")[1] for reply in replies] == [
        f"value-{number}".encode() for number in range(KEYS)
    ]


def stand_by(parts: Cluster, gateway: str, silence_s: float) -> None:
    """Start a standby and wait until it says that it stands by."""
    parts.begin(gateway, "--standby", f"{silence_s}s")
    wait_for(lambda: "standing by" in parts.said(gateway), gateway)


def is_open(parts: Cluster, gateway: str) -> bool:
    return parts.metric(gateway, "flurry_gateway_is_open") == 1


def get(parts: Cluster, key: str, *words: str) -> subprocess.CompletedProcess[str]:
    where = ["--controller", parts.controller, "--session", "slots"]
    return subprocess.run(
        [FLURRY, "get", key, *where, *words],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def test_a_standby_waits_while_the_owner_lives_and_serves_once_it_is_killed(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, "127.60.0.1") as parts:
        parts.start("gateway-a")
        write(parts, "gateway-a")
        stand_by(parts, "gateway-b", SILENCE_S)
        with wire(parts, "gateway-b") as it:
            # A health check, a command on a key, and one on all keys.
            for words in (("PING",), ("GET", "key:1"), ("DBSIZE",)):
                assert it.ask(*words).startswith(b"-LOADING ")
        assert not is_open(parts, "gateway-b")
        # Time in which it would have taken over from a silent owner.
        time.sleep(2 * SILENCE_S)
        assert "ready" not in parts.said("gateway-b")
        assert has_all(parts, "gateway-a")
        parts.kill("gateway-a")
        parts.wait_until_ready("gateway-b")
        assert has_all(parts, "gateway-b")
        # The page is written anew now and then.
        wait_for(lambda: is_open(parts, "gateway-b"), "the metrics page")


def cpu_s(parts: Cluster, gateway: str) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{parts.running[gateway].pid}/stat").read_text().split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def test_a_standby_uses_next_to_no_cpu_time(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.60.0.5") as parts:
        parts.start("gateway-a")
        stand_by(parts, "gateway-b", 3_600)
        before_s = cpu_s(parts, "gateway-b")
        time.sleep(3.0)
        # It asks the controller twenty times a second.
        assert cpu_s(parts, "gateway-b") - before_s < 0.3


def test_a_standby_takes_over_at_once_from_an_owner_that_closes(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.60.0.2") as parts:
        parts.start("gateway-a")
        write(parts, "gateway-a")
        # Far longer than this test may take.
        stand_by(parts, "gateway-b", 3_600)
        parts.running["gateway-a"].send_signal(signal.SIGTERM)
        parts.wait_until_ready("gateway-b")
        assert has_all(parts, "gateway-b")


def test_two_gateways_that_are_started_again_and_again_do_not_push_each_other_aside(
    tmp_path: Path,
) -> None:
    """As two machines with the same unit do: one serves, and the other stands by."""
    with cluster(tmp_path, "127.60.0.3") as parts:
        for name in ("gateway-a", "gateway-b"):
            parts.begin(name, "--standby", f"{SILENCE_S}s")

        def serving() -> list[str]:
            return [it for it in ("gateway-a", "gateway-b") if "ready" in parts.said(it)]

        wait_for(serving, "one of them to serve")
        write(parts, serving()[0])
        for _ in range(3):
            (owner,) = serving()
            parts.kill(owner)
            # What a service manager does with one that has ended. Either may serve now.
            parts.begin(owner, "--standby", f"{SILENCE_S}s")
            wait_for(serving, "one of them to serve")
            time.sleep(2 * SILENCE_S)
            (now,) = serving()
            assert all(process.poll() is None for process in parts.running.values())
            assert has_all(parts, now)


def test_an_observer_reads_what_a_gateway_has_and_does_not_end_it(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.60.0.4") as parts:
        parts.start("gateway-a")
        write(parts, "gateway-a")
        with wire(parts, "gateway-a") as it:
            for number in range(5):
                assert it.ask("SET", "seen", f"{number}") == b"+OK\r\n"
                said = get(parts, "seen")
                assert (said.returncode, said.stdout, said.stderr) == (0, f"{number}\n", "")
            assert it.ask("SET", "short", "lived", "PX", "1") == b"+OK\r\n"
            big = "x" * 500_000
            assert it.ask("SET", "big", big) == b"+OK\r\n"
            assert get(parts, "big").stdout == f"{big}\n"
            wait_for(lambda: get(parts, "short").returncode == 1, "the value to expire")
            assert get(parts, "never").stderr == "(not found)\n"
            # The gateway has not been pushed aside.
            assert it.ask("GET", "seen") == b"$1\r\n4\r\n"
        assert parts.running["gateway-a"].poll() is None
        other = subprocess.run(
            [FLURRY, "get", "seen", "--controller", parts.controller],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert other.returncode == 1
        assert "nobody has opened it yet" in other.stderr


def test_an_observer_says_which_servers_have_not_answered(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.60.0.6") as parts:
        parts.start("gateway-a")
        write(parts, "gateway-a")
        # The controller counts nobody out meanwhile.
        parts.stop("controller")
        parts.stop("server-2")
        nobody = get(parts, "key:7", "--timeout", "200ms")
        assert nobody.returncode == 2
        assert "no answer" in nobody.stderr
        parts.go_on("controller")
        said = get(parts, "key:7", "--timeout", "500ms")
        assert (said.returncode, said.stdout) == (0, "value-7\n")
        assert "servers 2: they have not answered" in said.stderr
