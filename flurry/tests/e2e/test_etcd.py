"""Controllers that keep their state in etcd: one leads, and operations never wait for it."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from etcd_house import Cluster, EtcdNodes, Process, free_ports
from guarded import certificate
from house import FLURRY, started, wait_for
from redis_house import Wire

HOST = "127.59.0.1"

# Only reached by a failure.
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("etcd")
    etcd = EtcdNodes(folder, HOST)
    cluster = None
    try:
        cluster = Cluster(folder, HOST, etcd, "shop")
        wait_for(cluster.is_whole, "three servers to take part", LIMIT_S)
        yield cluster
    finally:
        if cluster:
            cluster.end()
        etcd.kill()


class Traffic(threading.Thread):
    """Adds to a counter through a gateway until it is stopped; counts acknowledged additions."""

    def __init__(self, address: tuple[str, int], key: str) -> None:
        super().__init__()
        self.wire, self.key = Wire(address), key
        self.acknowledged, self.ends = 0, threading.Event()
        self.wrong: bytes | None = None

    def run(self) -> None:
        while not self.ends.is_set():
            reply = self.wire.ask("INCR", self.key)
            self.acknowledged += 1
            if reply != b":%d\r\n" % self.acknowledged:
                self.wrong = reply
                return

    def goes_on(self) -> None:
        """Many more are acknowledged."""
        seen = self.acknowledged
        wait_for(lambda: self.wrong or self.acknowledged > seen + 200, "operations to go on")
        assert self.wrong is None


@pytest.fixture(scope="module")
def gateway(cluster: Cluster) -> Iterator[tuple[str, int]]:
    words = [FLURRY, "gateway", "--listen", f"{HOST}:0", "--controller", cluster.where]
    with started(words, "ready", cluster.folder / "gateway.log") as said:
        yield (HOST, int(said[0].split()[1].rpartition(":")[2]))


KEYS = count()


@pytest.fixture
def traffic(gateway: tuple[str, int]) -> Iterator[Traffic]:
    traffic = Traffic(gateway, f"counter:{next(KEYS)}")
    traffic.start()
    try:
        yield traffic
        traffic.goes_on()
    finally:
        traffic.ends.set()
        traffic.join(LIMIT_S)
        traffic.wire.close()
    assert traffic.wrong is None


class Openings:
    """Each opens a session anew, adds one, and lets it go: an epoch given out twice would show."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.sum = cluster, 0

    def one_more(self) -> None:
        def done() -> bool:
            said = self.cluster.ask("incr", "openings", "--session", "openings")
            if said.returncode == 0:
                self.sum += 1
                assert int(said.stdout) == self.sum
                return True
            # Nobody leads yet, so that nothing was opened, and nothing done. The operation itself
            # must never be without an answer: it would be unknown whether it was done.
            assert re.match(
                r"flurry: (session: not open|controllers? \S+: no answer)", said.stderr
            ), said.stderr
            return False

        wait_for(done, "a session to be opened", LIMIT_S)


@pytest.fixture(scope="module")
def openings(cluster: Cluster) -> Openings:
    return Openings(cluster)


def test_one_node_of_etcd_more_or_less_changes_nothing(
    cluster: Cluster, traffic: Traffic, openings: Openings
) -> None:
    openings.one_more()
    for node in cluster.etcd.nodes:
        node.kill()
        traffic.goes_on()
        openings.one_more()
        node.start()
        openings.one_more()


def test_operations_go_on_while_all_of_etcd_is_away_and_openings_when_it_is_back(
    cluster: Cluster, traffic: Traffic, openings: Openings
) -> None:
    cluster.etcd.kill()
    traffic.goes_on()

    def nobody_leads() -> bool:
        said = cluster.ask("status", "--timeout", "500ms")
        return said.returncode == 2 and "none of them leads" in said.stderr

    wait_for(nobody_leads, "the term to end", LIMIT_S)
    traffic.goes_on()
    refused = cluster.ask("incr", "openings", "--session", "openings", "--timeout", "200ms")
    assert refused.returncode == 2, refused.stdout
    cluster.etcd.start()
    openings.one_more()
    wait_for(cluster.is_whole, "three servers to take part", LIMIT_S)


def test_another_controller_goes_on_where_one_was_killed(
    cluster: Cluster, traffic: Traffic, openings: Openings
) -> None:
    openings.one_more()
    killed = cluster.leader()
    assert killed is not None
    cluster.controllers[killed].kill()
    openings.one_more()
    assert cluster.leader() not in (None, killed)
    traffic.goes_on()
    cluster.controllers[killed].start()
    # All end, and all come back.
    for controller in cluster.controllers.values():
        controller.kill()
    traffic.goes_on()
    for controller in cluster.controllers.values():
        controller.start()
    openings.one_more()


def test_a_controller_that_slept_through_its_term_decides_nothing(
    cluster: Cluster, traffic: Traffic, openings: Openings
) -> None:
    openings.one_more()
    asleep = cluster.leader()
    assert asleep is not None
    cluster.controllers[asleep].signal(signal.SIGSTOP)
    wait_for(lambda: cluster.leader() not in (None, asleep), "another's term", LIMIT_S)
    openings.one_more()
    cluster.controllers[asleep].signal(signal.SIGCONT)
    line = 'flurry_controller_is_leader{part="controller"} 0'
    wait_for(lambda: line in cluster.metrics_of(asleep), "it to know", LIMIT_S)
    openings.one_more()

    def one_leads() -> bool:
        # A page shows how its controller was up to a second ago, when another may have led.
        pages = [cluster.metrics_of(it) for it in cluster.controllers]
        return sum('flurry_controller_is_leader{part="controller"} 1' in it for it in pages) == 1

    wait_for(one_leads, "one page alone to say that its controller leads", LIMIT_S)
    traffic.goes_on()


def test_a_server_that_is_lost_is_counted_out_by_whoever_leads(
    cluster: Cluster, traffic: Traffic, openings: Openings
) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.controllers[leader].kill()
    cluster.servers[0].kill()

    said: list[str] = []

    def is_counted_out() -> bool:
        status = cluster.ask("status", "--timeout", "500ms")
        said[:] = [status.stdout, status.stderr]
        return "2 of 3 copies" in status.stdout and "changing" not in status.stdout

    wait_for(is_counted_out, lambda: f"that the server is counted out ({said})", LIMIT_S)
    traffic.goes_on()
    cluster.servers[0].start()
    wait_for(cluster.is_whole, "the server to come back", LIMIT_S)
    cluster.controllers[leader].start()
    openings.one_more()


def test_what_is_no_state_is_said_and_decided_on_by_nobody(tmp_path: Path) -> None:
    etcd = EtcdNodes(tmp_path, HOST, 1)
    try:
        wait_for(lambda: _answers(etcd), "etcd")
        etcd.put("/flurry/broken/state", b"\0no state")
        place = f"etcd://{etcd.addresses[0]}/broken"
        done = subprocess.run(
            [FLURRY, "controller", "--listen", f"{HOST}:0", "--etcd", place],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert "controller state: it cannot be read" in done.stderr
    finally:
        etcd.kill()


def _answers(etcd: EtcdNodes) -> bool:
    try:
        etcd.put("/test", b"")
    except OSError:
        return False
    return True


def test_etcd_is_talked_to_by_tls_and_sees_a_certificate(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path, HOST)
    etcd = EtcdNodes(tmp_path, HOST, 1, tls=(chain, key))
    place = f"etcds://{etcd.addresses[0]}/secure"
    [port] = free_ports(HOST, 1)
    where = f"{HOST}:{port}"
    words: list[str | Path] = [FLURRY, "controller", "--listen", where, "--etcd", place]
    words += ["--etcd-ca", chain, "--etcd-cert", chain, "--etcd-key", key]
    controller = Process(words, tmp_path / "controller.log", "ready")
    try:

        def waits_for_servers() -> bool:
            said = subprocess.run(
                [FLURRY, "status", "--controller", where],
                capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
            return "waiting for servers: 0 of 3" in said.stdout

        wait_for(waits_for_servers, "its term", LIMIT_S)
    finally:
        controller.kill()
        etcd.kill()


def test_parts_are_told_that_only_controllers_talk_to_etcd() -> None:
    done = subprocess.run(
        [FLURRY, "get", "k", "--controller", "etcd://127.0.0.1"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "only controllers talk to etcd" in done.stderr
