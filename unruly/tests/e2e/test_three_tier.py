"""Three-tier applications: no crash of a middle tier loses an operation or does one twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import Measured, call
from redis_house import free_port

HOST = "127.0.0.1"
APPLICATIONS = (
    "board", "su-duel-ku", "blackjack", "ftex", "ejbay", "mafia", "parkn-park", "ticket-center",
)  # fmt: skip

PLAN = """
name = "tiers"
seed = 3
[run]
duration = "{duration}"
warmup = "1s"
[drive]
system = "three-tier"
arrivals = "closed"
payload = "16B"
clients = 2
think = "2ms"
timeout = "20s"
{drive}
[service]
application = "ftex"
platform = "rmi"
replication = "{replication}"
{rest}
"""

CRASHES = """
[[fault]]
kind = "kill"
process = "app-1"
at = "1s"
duration = "500ms"
[[fault]]
kind = "kill"
process = "app-2"
at = "4s"
duration = "500ms"
"""


def run(
    folder: Path, *, replication: str, rest: str = "", drive: str = "", duration: str = "6s"
) -> Measured:
    """Measure a plan, in which no request may fail; return the run."""
    plan = folder / "tiers.toml"
    words = {"replication": replication, "rest": rest, "drive": drive, "duration": duration}
    plan.write_text(PLAN.format(**words))
    said = call("run", plan, "-o", folder / "run", timeout=400)
    assert said.returncode == 0, said.stderr + said.stdout
    measured = Measured(folder / "run")
    counted = measured.rows("select status, count(*) from requests group by status")
    assert [status for status, _ in counted] == ["ok"], counted
    return measured


def test_all_eight_applications_do_each_request_once_though_both_middle_tiers_crash(
    tmp_path: Path,
) -> None:
    matrix = f'[matrix]\n"service.application" = {list(APPLICATIONS)}'
    measured = run(tmp_path, replication="passive", rest=CRASHES + matrix)
    crashes = measured.rows(
        "select cell, count(*) from events where kind = 'fault kill' group by cell"
    )
    assert sorted(crashes) == sorted((f"application={name}", 2) for name in APPLICATIONS)
    # both clients noticed the first crash, and went on with the other middle tier
    noticed = (
        "select cell, count(distinct detail) from events where kind = 'fail-over' group by cell"
    )
    assert sorted(it[0] for it in measured.rows(noticed)) == sorted(it[0] for it in crashes)
    assert all(count >= 2 for _, count in measured.rows(noticed))
    # each fail-over was answered, and its times are in their order
    pairs = measured.rows(
        "select over.started_ns, over.ended_ns, answered.started_ns, answered.ended_ns "
        "from events over join events answered using (cell, repeat, detail) "
        "where over.kind = 'fail-over' and answered.kind = 'fail-over answered'"
    )
    assert len(pairs) >= 2 * len(APPLICATIONS)
    assert all(it[0] <= it[1] == it[2] <= it[3] for it in pairs)


def test_with_active_replication_a_crash_makes_no_client_fail_over(tmp_path: Path) -> None:
    measured = run(tmp_path, replication="active", rest=CRASHES)
    assert measured.rows("select count(*) from events where kind = 'fault kill'") == [(2,)]
    assert measured.rows("select count(*) from events where kind = 'fail-over'") == [(0,)]


def test_the_layers_of_a_call_are_those_of_client_platform_handler_and_database(
    tmp_path: Path,
) -> None:
    spans = f'spans = "127.0.0.1:{free_port(HOST)}"'
    measured = run(tmp_path, replication="none", drive=spans, duration="3s")
    found = measured.rows(
        "select service, layer, count(distinct request) from spans group by service, layer"
    )
    layers = {(service, layer) for service, layer, _ in found}
    assert layers == {
        ("client", "call"), ("application", "handle"), ("application", "pool.get"),
        ("application", "database"),
    }  # fmt: skip
    (requests,) = measured.rows("select count(*) from requests where phase = 'measure'")
    assert all(count >= 0.9 * requests[0] for _, _, count in found), (found, requests)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [("application", "chess", "board"), ("platform", "soap", "http"), ("replication", "3", "none")],
)
def test_a_parameter_that_there_is_not_is_named_with_those_that_there_are(
    name: str, value: str, hint: str
) -> None:
    said = call("run", "three-tier-recovery", "--set", f"service.{name}={value}")
    assert said.returncode == 2
    assert value in said.stderr, said.stderr
    assert hint in said.stderr, said.stderr
