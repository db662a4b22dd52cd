"""Redis Cluster: keys on the nodes of their slots, slots that move, and a node that dies."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from house import UNRULY, Measured, spooled, wait_for
from redis_house import Wire, answers, free_port, redis_binary
from stall_house import conserved
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"


class Cluster:
    """Nodes of a cluster, by their ports."""

    def __init__(self, nodes: dict[int, subprocess.Popen[bytes]]) -> None:
        self.nodes = nodes
        self.first = next(iter(nodes))
        self.url = f"redis://{HOST}:{self.first}?cluster=true"

    def ask(self, port: int, *words: str | int) -> str:
        """What a node says to a command."""
        line = [redis_binary("redis-cli"), "-h", HOST, "-p", str(port), *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()

    def masters(self) -> dict[int, tuple[bytes, int]]:
        """Id and first slot of each master that is not known to be dead, by their ports."""
        lines = [line.split() for line in self.ask(self.first, "cluster", "nodes").splitlines()]
        return {
            int(fields[1].split("@")[0].rsplit(":")[-1]): (
                fields[0].encode(),
                int(fields[8].split("-")[0]),
            )
            for fields in lines
            if "master" in fields[2] and "fail" not in fields[2]
        }


@contextmanager
def cluster(folder: Path, nodes: int, replicas: int) -> Iterator[Cluster]:
    """A cluster of Redis servers of this host."""
    server, client = redis_binary("redis-server"), redis_binary("redis-cli")
    with ExitStack() as stack:
        started: dict[int, subprocess.Popen[bytes]] = {}
        for _ in range(nodes):
            port, bus = free_port(HOST), free_port(HOST)
            own = folder / str(port)
            own.mkdir()
            words = [server, "--bind", HOST, "--port", str(port), "--cluster-port", str(bus)]
            words += ["--save", "", "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]
            words += ["--cluster-require-full-coverage", "no", "--dir", str(own)]
            # A replica may take over however long its master has been away.
            words += ["--cluster-replica-validity-factor", "0"]
            log = stack.enter_context((own / "redis.log").open("wb"))
            process = subprocess.Popen(words, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            started[port] = process
        wait_for(lambda: all(answers((HOST, port)) for port in started), "the nodes")
        places = [f"{HOST}:{port}" for port in started]
        create = [client, "--cluster", "create", *places, "--cluster-yes"]
        create += ["--cluster-replicas", str(replicas)]
        done = subprocess.run(create, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found = Cluster(started)
        ready = "cluster_state:ok"
        wait_for(
            lambda: all(
                ready in found.ask(port, "cluster", "info")
                and found.ask(port, "cluster", "nodes").count("slave ") == replicas * nodes // 2
                for port in started
            ),
            "a cluster that knows itself",
        )
        yield found


def errors(node: Wire, kind: str) -> int:
    """How often a node has answered with this error."""
    found = re.search(rf"errorstat_{kind}:count=(\d+)", node.ask("info", "errorstats").decode())
    return int(found[1]) if found else 0


def keys_in(node: Wire, slot: int) -> list[bytes]:
    """Keys that a node has in a slot."""
    lines = node.ask("cluster", "getkeysinslot", slot, 100).split(b"\r\n")
    return [line for line in lines if line.startswith(b"unruly:")]


@pytest.mark.smoke
def test_each_key_is_asked_for_at_the_node_that_has_its_slot(tmp_path: Path) -> None:
    with cluster(tmp_path, 3, 0) as nodes:
        flags = ("-c", "4", "-r", "2000", "--requests", "4000", "--keys", "500")
        run = drive(tmp_path, nodes.url, *flags)
        left = [nodes.ask(port, "dbsize") for port in nodes.nodes]
        kept = drive(tmp_path, nodes.url, *flags, "--keep")
        spread = [int(nodes.ask(port, "dbsize")) for port in nodes.nodes]
    assert statuses(run) == {("ok", None): 4000}
    assert conserved(run)
    [(servers, connections)] = run.rows(
        "select count(distinct server), count(distinct connection) from requests"
    )
    assert (servers, connections) == (3, 12)
    assert left == ["0", "0", "0"]
    assert statuses(kept) == {("ok", None): 4000}
    # Each node has about a third of the keys, and no key is on two.
    assert sum(spread) == 500
    assert min(spread) > 100


def test_a_slot_that_moves_costs_a_longer_way_and_no_request(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = stack.enter_context(cluster(tmp_path, 3, 0))
        (source, (old_owner, first)), (target, (new_owner, _)), *_ = nodes.masters().items()
        out = tmp_path / "run"
        line = [UNRULY, "drive", nodes.url, "-c", "4", "-r", "500", "-d", "10s", "-w", "0s"]
        line += ["--keys", "5000", "--operations", "write", "--keep", "-q", "-o", out]
        with subprocess.Popen(line) as process:
            wait_for(lambda: spooled(out) > 500 * 100, "a second of rows")
            giving = stack.enter_context(closing(Wire((HOST, source))))
            taking = stack.enter_context(closing(Wire((HOST, target))))
            # Most keys of these slots are not written yet, so there is little to migrate.
            slots = range(first, first + 1_000)
            for slot in slots:
                word = ("cluster", "setslot", slot)
                assert taking.ask(*word, "importing", old_owner) == b"+OK\r\n"
                assert giving.ask(*word, "migrating", new_owner) == b"+OK\r\n"
            # Keys that are written now for the first time are sent to the new owner by ASK.
            wait_for(lambda: errors(giving, "ASK") >= 5, "writes to slots that are migrating")
            for slot in slots:
                word = ("cluster", "setslot", slot)
                while keys := keys_in(giving, slot):
                    migrate = ("migrate", HOST, target, "", 0, 5000, "keys", *keys)
                    assert giving.ask(*migrate) == b"+OK\r\n"
                assert taking.ask(*word, "node", new_owner) == b"+OK\r\n"
                assert giving.ask(*word, "node", new_owner) == b"+OK\r\n"
            assert process.wait(timeout=60) == 0
    run = Measured(out)
    assert statuses(run) == {("ok", None): 5000}
    assert conserved(run)
    [(told,)] = run.rows("select detail from events where kind = 'requests moved'")
    assert int(told) > 20


def test_a_replica_that_takes_over_is_found(tmp_path: Path) -> None:
    with cluster(tmp_path, 6, 1) as nodes:
        victim = next(port for port in nodes.masters() if port != nodes.first)
        out = tmp_path / "run"
        line = [UNRULY, "drive", nodes.url, "-c", "4", "-r", "200", "-d", "15s", "-w", "0s"]
        line += ["--keys", "500", "--timeout", "1s", "--keep", "-q", "-o", out]
        with subprocess.Popen(line) as process:
            wait_for(lambda: spooled(out) > 200 * 100, "a second of rows")
            nodes.nodes[victim].kill()
            assert process.wait(timeout=90) in (0, 1)
        assert victim not in nodes.masters()
    run = Measured(out)
    assert conserved(run)
    begin = "(select min(intended_ns) from requests)"
    [(failed, last)] = run.rows(
        f"select count(*), max(intended_ns - {begin}) / 1e9 from requests where status not in"
        " ('ok', 'wrong:lost', 'wrong:stale')"
    )
    assert failed > 0
    assert last < 13


def test_a_server_that_is_no_cluster_is_refused_before_the_run(tmp_path: Path) -> None:
    port = free_port(HOST)
    words = [redis_binary("redis-server"), "--bind", HOST, "--port", str(port), "--save", ""]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=tmp_path) as process:
        wait_for(lambda: answers((HOST, port)), "redis-server")
        said = refused(tmp_path, f"redis://{HOST}:{port}?cluster=true")
        process.kill()
    assert "cluster support disabled" in said
    assert "leave out cluster=true" in said
    absent = refused(tmp_path, f"redis://{HOST}:{port}?cluster=true")
    assert "nothing listens there" in absent
    assert "is it running, and are the port" in absent
    assert "cluster is" in refused(tmp_path, f"redis://{HOST}:{port}?cluster=yes")
