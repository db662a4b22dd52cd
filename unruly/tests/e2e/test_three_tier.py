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


# What the middle tier's check reports of each application while nobody breaks it is tested by its
# run: a contradiction after a trial is exit code 1.
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
    noticed = "split_part(detail, ' request', 1)"
    clients = measured.rows(
        f"select cell, count(distinct {noticed}) from events where kind = 'fail-over' group by cell"
    )
    assert sorted(clients) == sorted(crashes), clients
    # a fail-over begins after a crash, and ends within the request that it belongs to
    wrong = measured.rows(
        "select count(*) from events over join events answered using (cell, repeat, detail) "
        "left join requests on requests.cell = over.cell "
        "and over.detail like '% request ' || requests.request "
        "where over.kind = 'fail-over' and answered.kind = 'fail-over answered' "
        "and (requests.request is null or over.started_ns < requests.sent_ns "
        "or answered.ended_ns > requests.received_ns)"
    )
    assert wrong == [(0,)]
    first = measured.rows(
        "select count(*) from events it where kind = 'fail-over' and not exists "
        "(select 1 from events crash where crash.cell = it.cell and crash.kind = 'fault kill' "
        "and crash.started_ns < it.started_ns)"
    )
    assert first == [(0,)]


def test_with_active_replication_a_crash_keeps_no_request_waiting_for_a_restart(
    tmp_path: Path,
) -> None:
    measured = run(tmp_path, replication="active", rest=CRASHES)
    assert measured.rows("select count(*) from events where kind = 'fault kill'") == [(2,)]
    # the first one is gone for half a second and the start of a JVM: both clients go on meanwhile
    went_on = measured.rows(
        "select count(*) from requests it, events crash "
        "where crash.kind = 'fault kill' and crash.process = 'app-1' "
        "and it.received_ns between crash.started_ns and crash.started_ns + 500000000"
    )
    assert went_on[0][0] >= 20, went_on


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
        ("application", "statement"), ("application", "commit"),
    }  # fmt: skip
    # with the key of the load generator each trace finds its request, also when chance chooses some
    assert measured.rows("select count(*) from events where kind = 'trace key'") == [(1,)]
    (requests,) = measured.rows("select count(*) from requests where phase = 'measure'")
    assert all(count >= 0.9 * requests[0] for _, _, count in found), (found, requests)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [("application", "chess", "board"), ("platform", "soap", "http"), ("replication", "3", "none")],
)
def test_an_unknown_value_of_a_parameter_is_named_with_the_known_ones(
    name: str, value: str, hint: str
) -> None:
    said = call("run", "three-tier-recovery", "--set", f"service.{name}={value}")
    assert said.returncode == 2
    assert value in said.stderr, said.stderr
    assert hint in said.stderr, said.stderr
