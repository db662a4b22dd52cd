"""Shipped plans on other hosts: a store that the run starts here, and both ends of a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_house import HERE, Hosts, address, left_over, ssh_hosts
from house import UNRULY, Measured, call

THERE = ["--from-program", str(UNRULY)]
NAMES = ["node-1", "node-2", "node-3"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts") / "ssh", 3) as found:
        yield found


def addressed(count: int) -> str:
    """The first hosts as words of `--from`, each with its address."""
    words = (f"ssh:node-{number}={address(number)}" for number in range(1, count + 1))
    return ",".join(words)


@pytest.mark.parametrize(
    ("service", "level"),
    [("redis", None), ("redis-replicated", "quorum"), ("etcd", None)],
)
def test_three_hosts_ask_a_store_that_the_run_starts_here(
    service: str, level: str | None, hosts: Hosts, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["store", "--from", hosts.names(), *THERE, "--listen", HERE, "-d", "2s", "-w", "0s"]
    sets = [f"store={service}", "keys=1000", "rate=600/s"]
    sets += [f"level={level}"] if level else []
    words += [word for it in sets for word in ("--set", it)]
    said = call("run", *words, "-o", out, timeout=170, env=hosts.environment)
    assert said.returncode in (0, 1), said.stderr
    run = Measured(out)
    assert run.manifest["status"] == "complete", run.manifest.get("broken")
    generators = {it["name"]: it["host"] for it in run.manifest["processes"] if it["counts"]}
    assert generators == {f"drive-{it}": NAMES[it] for it in range(3)}
    rows = run.rows(
        "select process, op, status, count(*) from requests where phase = 'measure' group by all"
    )
    assert {(process, operation) for process, operation, *_ in rows} == {
        (process, operation) for process in generators for operation in ("read", "write")
    }
    assert {status for *_, status, _ in rows} == {"ok"}
    assert sum(count for *_, count in rows) == 1200
    # The processes of the service are watched on this host.
    watched = run.rows("select distinct host, watched from resources where watched is not null")
    assert any(host == "local" and str(name).startswith(service[:5]) for host, name in watched)
    clocks = {it["name"]: it["clock"] for it in run.manifest["hosts"] if "clock" in it}
    assert set(clocks) == set(NAMES)
    assert all(it["low_ns"] <= 0 <= it["high_ns"] for it in clocks.values())
    assert "clocks-compared" in {it["code"] for it in run.verdict()["findings"]}
    assert left_over() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["store", "--from", "command:env"],
            "--from: it is given with a service; must have run.listen, at which the hosts reach"
            " it, or name a server that runs; hint: --listen 192.0.2.10",
        ),
        (
            ["echo", "--from", "command:env"],
            "--from: it is given with its own echo server; must have run.listen",
        ),
        (
            ["store", "--from", "command:env", "--listen", "127.0.0.1", "--set", "store=cassandra"],
            "cassandra-2 has the ports of another process; must have ports of its own",
        ),
        (
            ["store", "--from", "command:env", "--listen", "127.0.0.1", "--set", "store=flurry"],
            "controller is on 127.0.0.1 alone; must be a service that other hosts may reach",
        ),
        (
            ["demo", "--from", "ssh:node-1"],
            "--from: node-1 has no address; must have one, at which the agents on other hosts reach"
            " it; hint: --from ssh:HOST=192.0.2.11",
        ),
        (
            ["throughput-stability", "--from", addressed(3)],
            "the plan has 3 [[host]] and a stream of 2 ends; must have an end for each host",
        ),
        (
            ["store", "--listen", "127.0.0.1"],
            "run.listen: it is 127.0.0.1, and no other host sends to this one",
        ),
        (
            ["store", "--from", "command:env", "--set", "run.listen=192.0.2.10"],
            "run.listen: 192.0.2.10 is no address of this host",
        ),
        (
            ["throughput-stability", "--from", addressed(2), "--listen", "127.0.0.1"],
            "the run starts nothing that listens there",
        ),
        (
            ["store", "--from", "command:env", "--listen", "127.0.0.1", "--set", "store=garage"],
            "its password is in its file, which everybody may read",
        ),
        (
            ["throughput-stability", "--from", "ssh:a=fd00::1,ssh:b=fd00::2"],
            "the address of a is of IPv6; must be of IPv4",
        ),
        (["throughput-stability", "--from", "ssh:a="], 'has no address after its =; hint: ssh:a='),
    ],
    ids=[
        "service", "echo", "ports", "private", "agents", "ends",
        "alone", "elsewhere", "unused", "password", "ipv6", "empty",
    ],
)  # fmt: skip
def test_what_a_plan_cannot_do_on_these_hosts_is_said_with_the_way_out(
    words: list[str], told: str, tmp_path: Path
) -> None:
    said = call("run", *words, "-o", tmp_path / "run", cwd=tmp_path)
    assert said.returncode == 2
    assert told in said.stderr, said.stderr
    assert not (tmp_path / "run").exists()


HOST = '[[host]]\nname = "a"\nreach = ["env"]\naddress = "127.0.0.1"\n'
STREAM = '[stream]\nprotocol = "tcp"\n'


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            '[stream]\nprotocol = "corosync-cpg"\n',
            "must have a host for each end of corosync-cpg",
        ),
        (f'{STREAM}link = "1Gbit/s"\n', 'must be "none" between [[host]]'),
        (f"{STREAM}mtu = 9000\n", "the plan has [[host]] and sets stream.mtu"),
        (
            f'{STREAM}[matrix]\n"stream.mtu" = [1500, 9000]\n',
            "the plan has [[host]] and sets stream.mtu",
        ),
        (
            f'{STREAM}[compete]\nkind = "cpu"\n[quota]\n"compete-0" = 0.3\n',
            "the plan has [[host]] and a quota of compete-0",
        ),
        (
            f'{STREAM}[compete]\nkind = "cpu"\n[[fault]]\nkind = "busy"\n'
            'process = "compete-0-0"\nat = "0s"\nduration = "1s"\n',
            "compete-0-0 is on another host",
        ),
        (
            f'{STREAM}[compete]\nkind = "cpu"\n[pin]\ncompete-1 = [0]\n',
            "compete-1",
        ),
    ],
    ids=["daemons", "link", "mtu", "matrix", "quota", "busy", "pin"],
)  # fmt: skip
def test_what_has_no_effect_on_a_stream_between_hosts_is_refused(
    lines: str, told: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f'name = "a"\n[run]\nduration = "2s"\n{lines}{HOST}')
    said = call("run", plan, "-o", tmp_path / "run")
    assert said.returncode == 2
    assert told in said.stderr, said.stderr


def test_the_ends_of_a_stream_and_their_competitors_are_on_two_hosts(
    hosts: Hosts, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["throughput-stability", "--from", addressed(2), *THERE]
    for it in ("scale=0.02", "repeat=1", "protocol=tcp"):
        words += ["--set", it]
    said = call("run", *words, "-o", out, timeout=170, env=hosts.environment)
    assert said.returncode in (0, 1), said.stderr
    run = Measured(out)
    assert run.manifest["status"] == "complete", run.manifest.get("broken")
    sides = run.rows("select distinct side, host from intervals order by 1, 2")
    assert sides == [
        ("compete", "node-1"),
        ("compete", "node-2"),
        ("reader", "node-2"),
        ("writer", "node-1"),
    ]
    assert "worked: yes: " in said.stdout
    # No stamp of one host is compared with the clock of another.
    assert not list((out / "requests").glob("*.parquet"))
    streams = run.verdict()["streams"]["rows"]
    assert {it["load"] for it in streams} == {"none", "cpu", "gc"}
    for stream in streams:
        assert stream["bandwidth_bps"]["estimate"] > 1e6, stream
        assert stream["loss_share"] == 0
        assert stream["absent"]["p99_ns"] == (
            "writer and reader are on hosts with clocks of their own"
        )
    assert "clocks-compared" in {it["code"] for it in run.verdict()["findings"]}
    assert left_over() == []


def test_a_reader_whose_clock_is_five_seconds_ahead_counts_every_second(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    reach = {"writer": ["env"], "reader": ["faketime", "--exclude-monotonic", "-f", "+5s", "env"]}
    plan.write_text(
        'name = "ahead"\n[run]\nduration = "6s"\n[stream]\nprotocol = "tcp"\n'
        + "".join(
            f'[[host]]\nname = "{name}"\nreach = {words}\naddress = "127.0.0.1"\n'
            f'program = "{UNRULY}"\n'
            for name, words in reach.items()
        )
    )
    said = call("run", plan, "-o", tmp_path / "run")
    run = Measured(tmp_path / "run")
    assert (said.returncode == 0) == ("trust: yes" in said.stdout), said.stdout
    assert "worked: yes: " in said.stdout
    assert re.search(r"ahead, complete, 6 s measured, 5 processes", said.stdout), said.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No measured reply" not in page
    assert "messages came" in page
    apart = run.rows(
        "select min(started_ns) filter (side = 'reader') - min(started_ns) filter (side = 'writer')"
        " from intervals"
    )
    assert apart[0][0] > 4_000_000_000
    (leg,) = run.verdict()["streams"]["legs"]
    assert leg["silent_seconds"] == 0
    (stream,) = run.verdict()["streams"]["rows"]
    assert stream["stalled_share"] == 0
    assert stream["variation"]["estimate"] is not None
