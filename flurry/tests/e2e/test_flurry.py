"""The store under load, and the report of its arrival log."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from house import FLURRY, Measured, call, started

import unruly

CLUSTER = """
[controller]
listen = "{host}:7700"
[[server]]
id = 1
listen = "{host}:7701"
[[server]]
id = 2
listen = "{host}:7702"
[[server]]
id = 3
listen = "{host}:7703"
[[pause]]
part = "server-3"
every = "200ms"
duration = "50ms"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("flurry")
    config = folder / "cluster.toml"
    config.write_text(CLUSTER.format(host="127.44.0.1"))
    words = [FLURRY, "serve", "--config", config]
    with started(words, "ready", folder / "serve.log"):
        words = ["--rate", "800/s", "--duration", "4s", "--warmup", "500ms"]
        levels = ["--level", "first,quorum,all"]
        done = subprocess.run(
            [FLURRY, "bench", "--config", config, *words, *levels, "-o", folder / "run"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return Measured(folder / "run")


@pytest.mark.smoke
def test_each_operation_has_a_row_for_every_replica_and_the_counts_add_up(run: Measured) -> None:
    counts = run.manifest["counts"]
    [(rows, asked, answered)] = run.rows(
        "select count(*), count(distinct (client, request)), count(*) filter (answered)"
        " from requests"
    )
    assert counts["copies"]["recorded"] == counts["copies"]["scheduled"] == rows
    assert counts["copies"]["dropped"] == 0
    assert counts["requests"]["scheduled"] == asked
    assert counts["requests"]["answered"] == answered
    assert answered > 0.99 * asked > 1_000
    replicas = run.rows(
        "select replicas, count(*) from (select count(distinct server) as replicas"
        " from requests group by client, request) group by replicas"
    )
    assert replicas == [(3, asked)]


def test_stamps_of_both_hosts_are_there_and_in_order(run: Measured) -> None:
    [(rows, wrong)] = run.rows(
        "select count(*), count(*) filter (not (intended_ns <= sent_ns"
        " and server_kernel_received_ns <= server_received_ns"
        " and server_received_ns <= server_sent_ns"
        " and kernel_received_ns <= received_ns and sent_ns <= received_ns))"
        " from requests where status = 'ok' and server_kernel_received_ns is not null"
        " and kernel_received_ns is not null"
    )
    [(ok,)] = run.rows("select count(*) from requests where status = 'ok'")
    assert rows > 0.9 * ok
    assert wrong == 0
    [(keys, ops, levels)] = run.rows(
        "select count(distinct key), count(distinct op), count(distinct level) from requests"
    )
    assert (keys > 500, ops, levels) == (True, 2, 3)


def test_the_same_operations_tell_what_each_algorithm_costs_beside_a_replica_that_stops(
    run: Measured,
) -> None:
    log = unruly.analyse(unruly.open_run(run.path)).arrival_log
    assert log is not None
    assert [row.op for row in log.rows] == ["read", "write"]
    for row in log.rows:
        first, quorum, every = (row.wait(name) for name in ("first", "quorum", "all"))
        assert first.n == quorum.n == every.n > 500
        # A quarter of the time one of the three stands still, and who waits for all waits for it.
        assert every.p99 > 10e6
    slow = dict(
        run.rows(
            "select server, count(*) from requests"
            " where received_ns - sent_ns > 10e6 and attempt = 0 group by server"
        )
    )
    assert slow.get(3, 0) > 100
    assert slow[3] > 3 * max(slow.get(1, 0), slow.get(2, 0))


def test_the_report_of_a_store_says_it_with_pictures(run: Measured, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    said = call("report", run.path, "-o", page)
    assert said.returncode == 0, said.stderr
    assert "First, quorum and all on the same operations" in page.read_text()
