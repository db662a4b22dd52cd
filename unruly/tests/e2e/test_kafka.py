"""Topics of Apache Kafka: every request is a record, and Kafka's own tools find it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from house import call, wait_for
from http_house import certificate
from kafka_house import PASSWORD, USER, Broker, brokers, create, records
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kafka")
    certificate(path)
    pem = path / "both.pem"
    pem.write_text((path / "key.pem").read_text() + (path / "cert.pem").read_text())
    return path


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with brokers(folder, pem=folder / "both.pem") as (broker,):
        create(broker, "orders", 3)
        create(broker, "trips", 2)
        yield broker


def test_every_request_is_a_record_that_another_client_finds(
    broker: Broker, tmp_path: Path
) -> None:
    words = ["--message", "order {sequence}", "-c", "3", "-n", str(COUNT), "--pipeline", "4"]
    run = drive(tmp_path, f"kafka://{broker.place}/orders", *words)
    assert statuses(run) == {("ok", None): COUNT}
    assert run.rows("select distinct op from requests") == [("produce",)]
    found = records(broker, "orders", COUNT)
    assert sorted(found) == sorted(f"order {it}" for it in range(1, COUNT + 1))


def test_a_request_lasts_until_its_record_has_been_read(broker: Broker, tmp_path: Path) -> None:
    url = f"kafka://{broker.place}/trips?acks=1&until=read"
    run = drive(tmp_path, url, "--message", "{uuid}", "-c", "2", "-n", "100")
    assert statuses(run) == {("ok", None): 100}


def test_a_stopped_broker_counts_against_the_requests_of_that_time(
    broker: Broker, tmp_path: Path
) -> None:
    """The requests begin within the first seconds, and go on for ten."""
    stop, go_on = threading.Timer(5, broker.pause), threading.Timer(6.5, broker.go_on)
    stop.start()
    go_on.start()
    try:
        words = ["--message", "x", "-r", "100", "-n", "1000", "--timeout", "20s"]
        run = drive(tmp_path, f"kafka://{broker.place}/trips", *words)
    finally:
        stop.join()
        go_on.join()
    assert statuses(run) == {("ok", None): 1000}
    response = "(received_ns - intended_ns) / 1e9"
    ((longest, slow),) = run.rows(
        f"select max({response}), count(*) filter ({response} > 0.5) from requests"
    )
    assert longest > 1.3
    # A hundred are due in the first second of the pause.
    assert slow > 80


def test_a_user_logs_in_by_tls(
    broker: Broker, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRULY_PASSWORD", PASSWORD)
    url = f"kafkas://{USER}@{broker.secure}/trips"
    trusted = ["--message", "x", "--ca-cert", str(folder / "cert.pem")]
    run = drive(tmp_path, url, *trusted, "-n", "50")
    assert statuses(run) == {("ok", None): 50}
    assert "its certificate is not accepted" in refused(tmp_path, url, "--message", "x")
    monkeypatch.setenv("UNRULY_PASSWORD", "wrong")
    said = refused(tmp_path, url, *trusted)
    assert "Authentication failed: Invalid username or password" in said
    assert "wrong" not in said


@pytest.mark.parametrize(
    ("path", "flags", "words"),
    [
        ("", [], "there are orders, trips"),
        ("/nothing", [], 'topic "nothing": UnknownTopicOrPartition (error 3)'),
        ("/trips?acks=0", [], "a broker that acknowledges nothing has no latency"),
        ("/trips?acks=2", [], 'acks is "2"'),
        ("/trips?until=death", [], 'until is "death"'),
        ("/trips?x=1", [], 'kafka has no option "x"'),
        ("/trips", ["--level", "all"], "level"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_run(
    broker: Broker, tmp_path: Path, path: str, flags: list[str], words: str
) -> None:
    said = refused(tmp_path, f"kafka://{broker.place}{path}", "--message", "x", *flags)
    assert words in said, said


def test_a_url_without_a_message_or_without_a_broker_is_refused(
    broker: Broker, tmp_path: Path
) -> None:
    assert "it is missing" in refused(tmp_path, f"kafka://{broker.place}/trips")
    said = refused(tmp_path, "kafka://127.0.0.1:9/trips", "--message", "x")
    assert "nothing listens there" in said


def test_a_partition_whose_leader_shuts_down_is_written_to_at_the_next_one(
    tmp_path: Path,
) -> None:
    """Two brokers have both partitions; the second leaves in the middle of the run."""
    with brokers(tmp_path, 2) as (first, second):
        create(first, "orders", 2, replicas=2)
        leaving = threading.Timer(3, second.process.terminate)
        leaving.start()
        words = ["--message", "x", "-r", "50", "-n", "400", "--timeout", "5s"]
        run = drive(tmp_path, f"kafka://{first.place}/orders", *words)
        leaving.join()
        wait_for(lambda: second.process.poll() is not None, "the end of a broker", 60)
    found = statuses(run)
    assert sum(found.values()) == 400
    ((last, good),) = run.rows(
        "select count(*), count(*) filter (status = 'ok')"
        " from (from requests order by intended_ns desc limit 50)"
    )
    assert last == good == 50, found
    # Both of its partitions were led by the one or the other before.
    assert run.rows("select count(distinct server) from requests") == [(2,)]


def test_a_partition_whose_leader_is_silent_is_written_to_at_the_next_one(
    tmp_path: Path,
) -> None:
    """The second of two brokers stands still until the first one takes its partitions."""
    with brokers(tmp_path, 2) as (first, second):
        create(first, "orders", 2, replicas=2)
        stop = threading.Timer(4, second.pause)
        stop.start()
        words = ["--message", "x", "-r", "50", "-n", "1250", "--timeout", "2s"]
        run = drive(tmp_path, f"kafka://{first.place}/orders", *words)
        stop.join()
    found = statuses(run)
    assert sum(found.values()) == 1250
    assert found[("timeout", None)] > 50
    ((last, good),) = run.rows(
        "select count(*), count(*) filter (status = 'ok')"
        " from (from requests order by intended_ns desc limit 50)"
    )
    assert last == good == 50, found


def test_the_target_is_explained(tmp_path: Path) -> None:
    said = call("targets", "kafka", cwd=tmp_path)
    assert said.returncode == 0
    assert "until" in said.stdout
