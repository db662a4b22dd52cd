"""Cassandra and Garage are started, asked and ended once. `make test-all` alone runs this.

The first time, Cassandra is fetched and Garage built from its source, which takes many minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from house import Measured, call

REQUESTS = 400
KEYS = 40
START_SECONDS_MAX = 900
"""Three JVMs that share a busy machine start late."""


def install(service: str) -> None:
    """Fetch or build what the service needs."""
    said = call("services", "install", service, timeout=5400)
    assert said.returncode == 0, said.stderr


def drive(folder: Path, service: str) -> Measured:
    """Ask a service of three processes a fixed number of times, however slow the machine is."""
    out = folder / "run"
    load = ["-n", str(REQUESTS), "-d", "10min", "--timeout", "60s", "-c", "2", "--keys", str(KEYS)]
    said = call(
        "drive", f"service:{service}", *load, "-w", "0s", "-q", "-o", out, timeout=START_SECONDS_MAX
    )
    assert said.returncode == 0, said.stderr
    return Measured(out)


@pytest.fixture(scope="module", params=["cassandra", "garage"])
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Measured]:
    """A run of each service."""
    service = str(request.param)
    install(service)
    return service, drive(tmp_path_factory.mktemp(service), service)


def test_every_request_is_a_row_and_every_value_is_right(measured: tuple[str, Measured]) -> None:
    _, run = measured
    found = dict(run.rows("select status, count(*) from requests group by 1"))
    assert found == {"ok": REQUESTS}
    operations = dict(run.rows("select op, count(*) from requests group by 1"))
    assert operations.keys() == {"read", "write"}
    assert operations["write"] >= KEYS
    assert run.rows("select count(distinct key) from requests") == [(KEYS,)]
    copies = run.manifest["counts"]["copies"]
    assert copies["scheduled"] == copies["recorded"] == copies["ok"] == REQUESTS
    assert run.manifest["status"] == "complete"


def test_its_three_processes_were_watched_and_have_ended(measured: tuple[str, Measured]) -> None:
    service, run = measured
    names = [f"{service}-{number}" for number in (1, 2, 3)]
    processes = [it for it in run.manifest["processes"] if it["kind"] == "service"]
    assert [it["name"] for it in processes] == names
    assert not any(Path(f"/proc/{it['pid']}").exists() for it in processes)
    assert not (run.path / "services").exists()
    watched = {name for (name,) in run.rows("select distinct watched from resources")}
    assert set(names) <= watched


def test_the_run_names_the_version_of_the_store(measured: tuple[str, Measured]) -> None:
    service, run = measured
    version = {"cassandra": "5.0.2", "garage": "2.5.0"}[service]
    runtimes = [it["runtime"] for it in run.manifest["processes"] if it["kind"] == "service"]
    assert all(version in it for it in runtimes), runtimes


def test_a_verdict_can_be_made_of_it(measured: tuple[str, Measured]) -> None:
    _, run = measured
    cells = {cell["op"]: cell for cell in run.verdict()["cells"]}
    assert {"read", "write"} <= cells.keys()
    assert cells["read"]["n"] + cells["write"]["n"] == REQUESTS
    assert all(cell["failed"] == 0 for cell in cells.values())
