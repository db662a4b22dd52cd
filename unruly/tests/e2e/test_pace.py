"""Loads whose pace changes: bursts in a closed loop, and stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from house import Measured, call
from http_house import server
from test_drive import drive
from test_https import fine

if TYPE_CHECKING:
    from pathlib import Path

DISPERSION = 100


def together(run: Measured) -> float:
    """How alike the requests of two processes come: the correlation of their counts in 0.2 s."""
    begin = "(select min(intended_ns) from requests)"
    rows = run.rows(
        f"select process, (intended_ns - {begin}) // 200000000 as slot, count(*)"
        " from requests group by all"
    )
    counts: dict[str, dict[int, int]] = {"drive-0": {}, "drive-1": {}}
    for process, slot, count in rows:
        counts[process][slot] = count
    slots = range(max(max(own) for own in counts.values()))
    series = [[own.get(slot, 0) for slot in slots] for own in counts.values()]
    return float(np.corrcoef(series)[0, 1])


def test_clients_of_all_processes_think_faster_in_the_same_bursts(tmp_path: Path) -> None:
    # 5,000 requests a second in bursts of 12 ms: a window of 0.2 s sees nearly all of I.
    loop = 'arrivals = "closed"\nthink = "100ms"\nprocesses = 2\n'
    plain = drive(tmp_path, clients=500, duration="12s", arrivals=loop)
    bursts = f"{loop}dispersion = {DISPERSION}\n"
    bursty = drive(tmp_path, clients=500, duration="12s", arrivals=bursts)
    assert plain.verdict()["over_time"]["rows"][0]["dispersion"] is None
    found = bursty.verdict()["over_time"]["rows"][0]["dispersion"]
    assert found["windows"] > 40
    # On a busy machine replies are slow, and clients that wait for them cannot ask.
    assert 0.3 * DISPERSION < found["index"]["estimate"] < 3 * DISPERSION
    assert together(bursty) > 0.8
    shown = " ".join(call("verdict", bursty.path).stdout.split())
    assert "index of dispersion of" in shown
    assert "(asked for: 100)" in shown


def by_second(run: Measured) -> list[tuple[int, int]]:
    """The requests of each second of the run, and their connections."""
    begin = "(select min(intended_ns) from requests)"
    rows = run.rows(
        f"select (intended_ns - {begin}) // 1000000000, count(*), "
        " count(distinct (process, connection))"
        " from requests group by 1 order by 1"
    )
    return [(count, connections) for _, count, connections in rows]


def test_a_rate_changes_in_stages(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with server(fine) as url:
        ramp = ["-r", "100", "--ramp", "2s:300, 1s:300, 1s:0"]
        said = call("drive", url, "-w", "1s", "-c", "4", "-o", out, *ramp, timeout=60)
    assert said.returncode in (0, 1), said.stderr
    run = Measured(out)
    # The warm-up of a second is the first.
    assert [count for count, _ in by_second(run)] == [100, 150, 250, 300, 150]
    assert "100/s, evenly, in stages (2s:300, 1s:300, 1s:0)" in run.manifest["target"]
    assert run.manifest["planned_ns"] == 4_000_000_000
    assert "load-in-stages" in {finding["code"] for finding in run.verdict()["findings"]}


def test_clients_come_and_go_in_stages(tmp_path: Path) -> None:
    loop = 'arrivals = "closed"\nthink = "50ms"\nprocesses = 2\n'
    ramp = f'{loop}ramp = "2s:21, 1s:21, 0s:5, 2s:5"'
    run = drive(tmp_path, clients=21, duration="5s", arrivals=ramp)
    clients = [clients for _, clients in by_second(run)]
    # Ten more come in each of the first two seconds, and think before they ask; all but five go
    # after the third.
    assert len(clients) == 5
    assert clients[0] in range(9, 13)
    assert clients[1] in range(19, 22)
    assert clients[2] == 21
    assert clients[3:] == [5, 5]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-r", "5", "--ramp", "5"], "must be stages such as 30s:500"),
        (["-r", "5", "--ramp", "9s:5", "-d", "3s"], "the stages last 9s, [run] duration 3s"),
        (["-c", "3", "--ramp", "9s:5"], "a stage has 5 clients, and clients is 3"),
        (["--dispersion", "100"], "users who do not think cannot think faster"),
    ],
)
def test_stages_and_bursts_that_cannot_be_are_refused(
    tmp_path: Path, flags: list[str], said: str
) -> None:
    refused = call("drive", "http://127.0.0.1:9", "-o", tmp_path / "none", *flags)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert "hint: " in refused.stderr


def test_two_thousand_clients_each_have_their_connection_from_the_start(tmp_path: Path) -> None:
    loop = 'arrivals = "closed"\nthink = "500ms"\n'
    run = drive(tmp_path, clients=2_000, duration="3s", arrivals=loop)
    [(connections, failed)] = run.rows(
        "select count(distinct connection), count(*) filter (status <> 'ok') from requests"
    )
    # Think times are exponential: e^-6 of the clients do not ask within these 3 s.
    assert connections > 1_950
    assert failed == 0
