"""Runs that watch the tiers of a service from outside: who asks whom, and where requests wait."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from house import UNRULY, Measured, call, need_root
from http_house import nginx
from redis_house import free_port, redis_server
from test_https import drive
from test_watch import WITHOUT_THE_RIGHT, codes
from watch_house import watched, watching

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
POOLS = """
name = "pools"
[run]
duration = "8s"
warmup = "8s"
[drive]
store = "board"
scenario = '''
[[state]]
name = "search"
path = "/SearchInComments?id={random:0..9}&page=3"
'''
clients = 24
arrivals = "closed"
[service]
rounds = 0
[tap]
[quota]
db = 0.05
[matrix]
"service.pool_size" = [1, 100]
"""
"""The database has so little CPU that it is the limit, and tests beside this one have theirs."""


def before(url: str) -> str:
    """Lines of a server that passes requests on over connections that it keeps."""
    place = url.removeprefix("http://")
    proxy = "location /slow { proxy_pass http://inner; proxy_http_version 1.1; "
    proxy += 'proxy_set_header Connection ""; }'
    # the brace that the server's lines end with closes the group of servers
    return proxy + " } upstream inner { server " + place + "; keepalive 8;"


@pytest.fixture(autouse=True)
def _root() -> None:
    need_root("a tap")


@pytest.mark.smoke
def test_the_target_of_a_run_is_watched_while_it_is_measured(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        run = drive(tmp_path, f"redis://{host}:{port}", "-c", "4", "-n", "40000", "--tap")
    ((asked,),) = run.rows("select count(*) from requests where status = 'ok'")
    # what the load generator asks before the start and after the end is not written
    within = "started_ns between (select min(sent_ns) - 1000000 from requests)"
    within += " and (select max(received_ns) from requests)"
    found = run.rows(f"select status, count(*) from turnarounds where {within} group by all")
    ((status, count),) = found
    # the last message of a client that leaves at once may be taken for its farewell
    assert status == "ok"
    assert asked - 4 <= count <= asked
    # the first rows may be written before it is known who asks
    names = run.rows("select distinct asked_by from turnarounds where asked_by is not null")
    assert names == [("drive-0",)]
    tiers = run.verdict()["tiers"]
    (check,) = tiers["checks"]
    # the last ones may have been sent after the last one was due
    assert asked - 10 <= check["sent"] <= asked
    assert asked - 14 <= check["seen"] <= asked
    (row,) = tiers["rows"]
    assert row["chain"]["front"]
    assert "tap-inconsistent" not in codes(run)


def test_a_tap_that_may_not_watch_or_sees_nothing_says_so(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        url = f"redis://{host}:{port}"
        words = ["drive", url, "-n", "100", "-d", "5s", "-w", "0s", "-o"]
        without = subprocess.run(
            [*WITHOUT_THE_RIGHT, UNRULY, *words, tmp_path / "none", "--tap"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert without.returncode == 2
        assert "[tap]" in without.stderr
        assert "may not watch packets; hint: run it as root" in without.stderr
        elsewhere = f"other=tcp://{HOST}:{free_port(HOST)}"
        said = call(*words, tmp_path / "run", f"--tap={elsewhere}")
        assert said.returncode == 1
        assert f"no request to {elsewhere} was seen" in said.stderr
        wrong = call(*words, tmp_path / "wrong", "--tap=nonsense")
    assert wrong.returncode == 2
    assert '--tap: "nonsense" is not the address of a service' in wrong.stderr


def test_a_proxy_and_what_is_behind_it_are_a_chain(tmp_path: Path) -> None:
    front, back = tmp_path / "front", tmp_path / "back"
    front.mkdir()
    back.mkdir()
    with nginx(back) as inner, nginx(front, server=before(inner)) as outer:
        (back / "site" / "slow").write_text("slow\n")
        places = [f"front={outer.replace('http', 'tcp')}", f"back={inner.replace('http', 'tcp')}"]
        with watching(tmp_path, *places):
            drive(tmp_path, f"{outer}/slow", "-c", "4", "-r", "400", "-n", "2400")
        flags = [f"--tap={places[0]}", f"--tap={places[1]}", "-c", "4", "-n", "2400", "-r", "400"]
        run = drive(tmp_path, f"{outer}/slow", *flags)
    for seen in (watched(tmp_path), run):
        rows = {it["tier"]: it["chain"] for it in seen.verdict()["tiers"]["rows"]}
        assert rows["back"]["asked_by"] == ["front"]
        assert (rows["front"]["front"], rows["back"]["front"]) == (True, False)
        shares = [it["own_share"]["estimate"] for it in rows.values() if it["own_share"]]
        assert len(shares) == 2
        assert sum(shares) == pytest.approx(1, abs=0.1)


def test_the_pool_of_an_application_that_is_too_small_is_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(POOLS)
    said = call("run", plan, "-o", tmp_path / "run", timeout=480)
    # this host may be too busy for a promise, and the question is about the pool
    assert said.returncode in (0, 1), said.stderr
    run = Measured(tmp_path / "run")
    found = [it for it in run.verdict()["findings"] if it["code"] == "pool-waits"]
    # a search is work for the database, so that its only connection is always in use
    assert [it["evidence"]["cell"] for it in found] == ["pool_size=1"]
    assert found[0]["title"].startswith(
        "app (pool_size=1): requests waited for one of its 1 connections to db, or for a thread: "
    )
    rows = run.verdict()["tiers"]["rows"]
    chains = {(it["cell"], it["tier"]): it["chain"] for it in rows}
    assert {tier for _, tier in chains} == {"web", "app", "db"}
    for cell in ("pool_size=1", "pool_size=100"):
        assert chains[cell, "app"]["asked_by"] == ["web"]
        assert chains[cell, "db"]["asked_by"] == ["app"]
        own = sum(chains[cell, tier]["own_in_flight"]["estimate"] for tier in ("web", "app", "db"))
        # 24 readers ask again at once, so that most of them wait
        assert 5 < own < 25
    assert "tap-inconsistent" not in codes(run)


def test_a_database_that_stops_for_moments_is_where_requests_jam(tmp_path: Path) -> None:
    with redis_server(tmp_path, HOST) as (host, port):
        info = ["redis-cli", "-h", host, "-p", str(port), "info", "server"]
        pid = int(subprocess.check_output(info).split(b"process_id:")[1].split()[0])
        words = [UNRULY, "drive", f"redis://{host}:{port}", "-c", "32", "-r", "500", "-d", "24s"]
        flags = ["-w", "0s", "-q", f"--tap=cache=tcp://{host}:{port}", "-o", tmp_path / "run"]
        load = subprocess.Popen([*words, *flags], stdout=subprocess.DEVNULL)
        try:
            for _ in range(3):
                with pytest.raises(subprocess.TimeoutExpired):
                    load.wait(timeout=3)
                _stop_for_a_moment(load, pid)
            assert load.wait(timeout=60) in (0, 1)
        finally:
            load.kill()
    run = Measured(tmp_path / "run")
    (tier,) = run.verdict()["tiers"]["rows"]
    assert tier["in_flight_most"] > 10
    assert "of the slowest requests began in" in codes(run)["transient-bottleneck"]


def _stop_for_a_moment(load: subprocess.Popen[bytes], pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        load.wait(timeout=0.15)
    os.kill(pid, signal.SIGCONT)
