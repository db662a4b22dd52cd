"""A tap on real services: what it counts, what it cannot measure, and what it says of both."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from house import UNRULY, Measured, call, need_root
from http_house import certificate, nginx
from redis_house import free_port, redis_server
from test_https import drive
from watch_house import watched, watching

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
WITHOUT_THE_RIGHT = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]


@pytest.fixture(autouse=True)
def _root() -> None:
    need_root("a tap")


def ends(run: Measured) -> dict[str, int]:
    return dict(run.rows("select status, count(*) from turnarounds group by 1"))


def codes(run: Measured) -> dict[str, str]:
    return {it["code"]: it["title"] for it in run.verdict()["findings"]}


@pytest.mark.smoke
def test_every_request_is_counted_once_and_lies_within_its_clients_times(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        url = f"redis://{host}:{port}"
        # the greeting of the load generator before the run is seen too
        with watching(tmp_path, f"cache=tcp://{host}:{port}"):
            run = drive(tmp_path, url, "-c", "6", "-n", "6000")
    seen = watched(tmp_path)
    asked = run.rows("select min(sent_ns), max(received_ns), count(*) from requests")[0]
    within = f"started_ns between {asked[0]} - 1000000 and {asked[1]}"
    found = seen.rows(f"select status, count(*) from turnarounds where {within} group by 1")
    assert found == [("ok", asked[2])]
    names = "tier, server, host"
    assert seen.rows(f"select distinct {names} from turnarounds") == [
        ("cache", f"{host}:{port}", "local")
    ]
    # both in the order of time: the sum of all that a client waited holds what the tap saw
    client = run.rows(
        "select sum(received_ns - sent_ns), median(received_ns - sent_ns) from requests"
    )
    tap = seen.rows(
        f"select sum(ended_ns - started_ns), median(ended_ns - started_ns) "
        f"from turnarounds where {within}"
    )
    assert 0 < tap[0][0] < client[0][0]
    assert 0 < tap[0][1] < client[0][1]
    assert seen.rows("select count(*) from turnarounds where asked_by = 'unruly'")[0][0] > 0


def test_the_verdict_of_a_watched_service_is_about_its_requests(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        with watching(tmp_path, f"cache=tcp://{host}:{port}"):
            drive(tmp_path, f"redis://{host}:{port}", "-c", "2", "-r", "200", "-n", "800")
        said = call("report", "--verdict", tmp_path / "watched")
    assert said.returncode == 0, said.stderr
    assert "measured: watched cache from outside; nothing was sent" in said.stdout
    assert (
        "trust: yes, nothing spoils this run; it has every request that the tap could measure"
        in (said.stdout)
    )
    verdict = watched(tmp_path).verdict()
    (tier,) = verdict["tiers"]["rows"]
    assert (tier["tier"], tier["unmeasured"], tier["cut"]) == ("cache", 0, 0)
    assert tier["n"] >= 800
    assert tier["in_flight"]["estimate"] < 2
    page = (tmp_path / "watched" / "report.html").read_text()
    assert "Services as the tap saw them" in page
    assert "Requests in flight" in page


def test_a_capture_of_tcpdump_gives_the_same_turnarounds_as_the_tap(tmp_path: Path) -> None:
    file = tmp_path / "file.pcap"
    with redis_server(tmp_path, HOST) as (host, port):
        words = ["tcpdump", "-i", "lo", "-s", "96", "--immediate-mode", "-U", "-Z", "root"]
        dump = subprocess.Popen(
            [*words, "-w", file, f"tcp port {port}"], stderr=subprocess.PIPE, text=True
        )
        assert dump.stderr is not None
        assert any("listening on lo" in line for line in dump.stderr)
        with watching(tmp_path, f"cache=tcp://{host}:{port}"):
            drive(tmp_path, f"redis://{host}:{port}", "-c", "4", "-n", "4000")
        dump.send_signal(signal.SIGINT)
        dump.communicate(timeout=30)
    out = tmp_path / "imported"
    said = call("import", file, "-o", out, "--service", f"cache=tcp://{host}:{port}")
    assert said.returncode == 0, said.stderr
    detected = call("import", file, "-o", tmp_path / "detected")
    assert detected.returncode == 0, detected.stderr
    columns = "client, turn, request_bytes, reply_bytes, status"
    order = f"select tier, server, {columns} from turnarounds order by client, turn"
    live, captured = watched(tmp_path), Measured(out)
    assert live.rows(order) == captured.rows(order)
    assert len(live.rows(order)) >= 4000
    found = Measured(tmp_path / "detected").rows(
        f"select {columns} from turnarounds order by client, turn"
    )
    assert found == [row[2:] for row in live.rows(order)]
    # both kernels' stamps are of the same packets: half of them within a few microseconds
    length = "select ended_ns - started_ns from turnarounds order by client, turn"
    apart = sorted(
        abs(one[0] - other[0])
        for one, other in zip(live.rows(length), captured.rows(length), strict=True)
    )
    assert apart[len(apart) // 2] < 20_000
    assert call("verdict", out).returncode == 0


def test_a_service_is_measured_through_tls(tmp_path: Path) -> None:
    certificate(tmp_path)
    with nginx(tmp_path, tls=True) as url:
        place = url.removeprefix("https://")
        with watching(tmp_path, f"web=tcp://{place}"):
            flags = ["-c", "4", "-n", "2000", "--ca-cert", tmp_path / "cert.pem"]
            run = drive(tmp_path, f"{url}/page.txt", *flags)
    ((connections,),) = run.rows("select count(*) from spans where layer = 'tls'")
    seen = watched(tmp_path)
    # each connection has a handshake of two turnarounds at most beside its requests
    ((measured,),) = seen.rows("select count(*) from turnarounds where status = 'ok'")
    assert 2000 <= measured <= 2000 + 4 * (connections + 2)
    # leaving a connection of TLS takes a message, which is no request
    assert set(ends(seen)) <= {"ok", "overlapped"}


# On a busy machine the two sides may take turns for a whole run, and nothing shows that many
# requests are open: the next run may show it.
TRIES = 8


def test_connections_that_carry_many_requests_at_once_give_no_number(tmp_path: Path) -> None:
    with nginx(tmp_path, http2=True) as url:
        place = url.removeprefix("http://")
        # so long that its client must ask for more while it comes: bytes of both sides cross
        page = next(tmp_path.rglob("page.txt"))
        page.write_text("a page\n" * 60_000)
        for number in range(TRIES):
            folder = tmp_path / f"try-{number}"
            folder.mkdir()
            with watching(folder, f"web=tcp://{place}"):
                flags = ["--http2", "-c", "16", "--connections", "1", "-n", "400"]
                drive(folder, f"{url}/page.txt", *flags)
            run = watched(folder)
            if "overlapped" in ends(run):
                break
    assert ends(run).get("overlapped", 0) > 0, ends(run)
    (tier,) = run.verdict()["tiers"]["rows"]
    everything = tier["n"] + tier["unmeasured"]
    assert tier["unmeasured"] > 0.9 * everything, (tier, ends(run))
    assert "several were open at once on their connections" in codes(run)["tap-unmeasured"]


def test_a_service_that_stops_for_moments_is_jammed_then(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        info = ["redis-cli", "-h", host, "-p", str(port), "info", "server"]
        pid = int(subprocess.check_output(info).split(b"process_id:")[1].split()[0])
        with watching(tmp_path, f"cache=tcp://{host}:{port}"):
            flags = ["-c", "32", "-r", "500", "-d", "20s", "-w", "0s", "-q"]
            words = [UNRULY, "drive", f"redis://{host}:{port}", *flags, "-o", tmp_path / "driven"]
            load = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # a stop of 0.15 s every 4 s
            for _ in range(4):
                time.sleep(4)
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.15)
                os.kill(pid, signal.SIGCONT)
            assert load.wait(timeout=60) in (0, 1)
    run = watched(tmp_path)
    (tier,) = run.verdict()["tiers"]["rows"]
    # some 40 requests came at 500/s by the middle of a stop
    assert tier["in_flight_most"] > 10
    assert tier["jam"]["windows"] >= 4
    assert "of the slowest requests began in" in codes(run)["transient-bottleneck"]


def test_a_tap_that_missed_packets_measures_no_request_of_that_time(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path, HOST) as (host, port),
        watching(tmp_path, f"cache=tcp://{host}:{port}") as tap,
    ):
        flags = ["-c", "16", "-n", "1000000", "--arrivals", "closed", "-d", "9s", "-w", "0s"]
        words = [UNRULY, "drive", f"redis://{host}:{port}", *flags, "--value", "1KB", "-q"]
        load = subprocess.Popen([*words, "-o", tmp_path / "driven"], stdout=subprocess.DEVNULL)
        time.sleep(2)
        os.kill(tap.pid, signal.SIGSTOP)
        time.sleep(6)
        os.kill(tap.pid, signal.SIGCONT)
        assert load.wait(timeout=60) in (0, 1)
    run = watched(tmp_path)
    ((missed,),) = run.rows("select count(*) from events where kind = 'tap gap'")
    assert missed >= 1
    assert ends(run)["gap"] >= 1
    # redis itself never stood still for long, so a longer time would be the tap's
    longest = Measured(tmp_path / "driven").rows("select max(received_ns - sent_ns) from requests")
    ((tap_longest,),) = run.rows(
        "select max(ended_ns - started_ns) from turnarounds where status = 'ok'"
    )
    assert tap_longest < longest[0][0] + 1e9


def test_a_request_whose_server_breaks_off_has_no_reply(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with watching(tmp_path, f"web=tcp://{HOST}:{port}"):
            for _ in range(3):
                with socket.create_connection((HOST, port)) as client:
                    taken, _ = server.accept()
                    client.sendall(b"a request")
                    assert taken.recv(100) == b"a request"
                    taken.close()
                    assert client.recv(100) == b""
    run = watched(tmp_path)
    assert ends(run) == {"cut": 3}
    assert codes(run)["tier-cuts"].startswith("web: 100 % of the requests had no reply")


def test_each_second_is_a_line_with_the_windows_of_100_ms(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        flags = ["-c", "2", "-r", "100", "-d", "25s", "-w", "0s", "-q", "-o", tmp_path / "load"]
        load = subprocess.Popen([UNRULY, "drive", f"redis://{host}:{port}", *flags])
        try:
            said = call("watch", f"cache=tcp://{host}:{port}", "-d", "5s", "-o", tmp_path / "run")
            words = ["--json", "-o", tmp_path / "two"]
            lines = call("watch", f"tcp://{host}:{port}", "-d", "4s", *words)
        finally:
            load.kill()
            load.wait()
    assert said.returncode == 0, said.stderr
    heading, *rows = said.stdout.splitlines()
    assert heading.split() == [
        "service", "a", "second", "p50", "p99", "longest", "in", "flight,", "by", "100", "ms",
    ]  # fmt: skip
    seconds = [row for row in rows if row.startswith("cache  ") and "up to" in row]
    assert len(seconds) >= 4
    assert max(map(len, seconds)) <= 80
    # the load asks 100 times a second; the first line may begin before it
    assert sum(int(row.split()[1]) for row in seconds[1:]) > 50 * (len(seconds) - 1)
    assert "unruly verdict: watch, complete" in said.stdout
    assert lines.returncode == 0, lines.stderr
    assert lines.stdout.count('"in_flight":[') >= 3


def test_what_cannot_be_watched_is_refused_with_the_next_step(tmp_path: Path) -> None:
    port = free_port(HOST)
    place = f"tcp://{HOST}:{port}"
    out = ["-o", tmp_path / "run"]
    nobody = call("watch", place, "-d", "1s", *out)
    assert nobody.returncode == 2
    assert f"{HOST}:{port}: nobody listens there on this host" in nobody.stderr
    assert "no request was seen; nobody listens at" in nobody.stderr
    assert "hint: ss -ltn" in nobody.stderr
    for words, wanted in [
        (["redis://127.0.0.1:1"], "a tap knows no redis://; hint: tcp://127.0.0.1:1"),
        (["127.0.0.1"], "is not the address of a service; hint: tcp://127.0.0.1:443"),
        ([place, "-i", "nothing0"], "nothing0: there is no such interface; hint: ip link"),
        ([f"tcp://{HOST}:{number}" for number in range(1, 34)], "33 services; wanted 1 to 32"),
    ]:
        said = call("watch", *words, "-d", "1s", "-o", tmp_path / "none")
        assert said.returncode == 2, said.stdout
        assert wanted in said.stderr
        assert not (tmp_path / "none").exists()
    without = subprocess.run(
        [*WITHOUT_THE_RIGHT, UNRULY, "watch", place, "-d", "1s", "-o", tmp_path / "none"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert without.returncode == 2
    assert "may not watch packets; hint: run it as root" in without.stderr
    assert not (tmp_path / "none").exists()


def test_a_capture_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "file.pcap"
    head = bytes.fromhex("d4c3b2a1 0200 0400 00000000 00000000 60000000")

    def said(content: bytes, *flags: str) -> str:
        file.write_bytes(content)
        done = call("import", file, "-o", tmp_path / "run", *flags)
        assert done.returncode == 2, done.stdout
        assert not (tmp_path / "run").exists()
        return done.stderr

    radio = head + (127).to_bytes(4, "little")
    assert "link type 127; wanted Ethernet" in said(radio)
    ethernet = head + (1).to_bytes(4, "little")
    assert "it has no TCP connection" in said(ethernet)
    # a packet of TCP whose header is cut after 10 bytes
    packet = bytes(12) + b"\x08\x00" + bytes.fromhex("4500") + bytes(8)
    record = bytes(8) + len(packet).to_bytes(4, "little") * 2 + packet
    short = said(ethernet + record, "--service", "tcp://10.0.0.1:80")
    assert "all of its packets are cut within their headers" in short
    assert "hint: capture 96 bytes of each or more" in short
    assert "takes no --value" in said(ethernet, "--value", "x")
    assert "is not the address of a service" in said(ethernet, "--service", "nonsense")
