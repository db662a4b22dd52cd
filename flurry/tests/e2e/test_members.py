"""What an operator does with servers that are gone for good, or shall go."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path

from flurry_house import Cluster, cluster
from house import FLURRY, wait_for
from redis_house import Wire
from test_blips import read_wrong, write

KEYS = range(5_000)


def flurry(parts: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FLURRY, *words, "--controller", parts.controller],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def view(parts: Cluster) -> dict[str, object]:
    done = flurry(parts, "status", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def up(parts: Cluster) -> set[int]:
    """Servers that hold their share, once nothing changes; none before."""
    seen = view(parts)
    members = seen["members"]
    assert isinstance(members, list)
    return set() if seen["changing"] else {it["server"] for it in members if it["state"] == "up"}


def test_two_of_three_servers_that_are_gone_for_good_are_replaced_by_new_machines(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, "127.59.1.1") as parts:
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            assert wire.ask("FLURRY", "LEVEL", "ALL") == b"+OK\r\n"
            write(wire, KEYS)
            # At the same moment: neither can be counted out for the other.
            for name in ("server-1", "server-2"):
                parts.running[name].kill()
            for name in ("server-1", "server-2"):
                parts.kill(name)
            for name in ("server-4", "server-5"):
                parts.start(name)
            wait_for(lambda: "flurry remove" in parts.status(), "the hint")
            assert up(parts) == set()
            refused = flurry(parts, "remove", "3")
            assert refused.returncode == 2
            assert "server 3 is up; hint: flurry drain 3" in refused.stderr
            for number in ("1", "2"):
                done = flurry(parts, "remove", number)
                assert done.returncode == 0, done.stderr
                assert f"server {number} is removed" in done.stdout
            wait_for(lambda: up(parts) == {3, 4, 5}, "the new servers")
            assert not read_wrong(wire, KEYS)


def test_a_server_is_drained_before_it_is_switched_off_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, "127.59.1.2") as parts:
        parts.start("server-4")
        wait_for(lambda: up(parts) == {1, 2, 3, 4}, "the fourth server")
        parts.start("gateway-a")
        with closing(Wire(parts.address("gateway-a"), 60)) as wire:
            write(wire, KEYS)
            done = flurry(parts, "drain", "4")
            assert done.returncode == 0, done.stderr
            assert "end its process now" in done.stdout
            assert up(parts) == {1, 2, 3}
            # Its process still runs and asks to join, and is not let in.
            assert "drained: server 4" in parts.status()
            parts.kill("server-4")
            assert not read_wrong(wire, KEYS)
            parts.start("server-4")
            done = flurry(parts, "drain", "4", "--cancel")
            assert done.returncode == 0, done.stderr
            wait_for(lambda: up(parts) == {1, 2, 3, 4}, "the fourth server again")
            assert not read_wrong(wire, KEYS)


def test_a_server_that_does_not_exist_is_neither_removed_nor_drained(tmp_path: Path) -> None:
    with cluster(tmp_path, "127.59.1.3") as parts:
        for verb in ("remove", "drain"):
            done = flurry(parts, verb, "9")
            assert done.returncode == 2
            assert "server 9 is not in the cluster; hint: flurry status" in done.stderr
