"""Faults: each is done at its time, seen by the clients, told as an event, and undone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from house import Measured, call, need_root, running, wait_for

MS = 1_000_000

# As a store that answers only when its write is on disk.
SAFE_REDIS = """
about = "Redis, safe on disk before it answers"
url = "redis://{{ processes['redis-1'].front }}:{{ processes['redis-1'].port }}"
programs = ["redis-server"]
packages = ["redis-server"]
[[process]]
name = "redis-1"
command = ["redis-server", "--bind", "{{ host }}", "--port", "{{ port }}", "--save", "",
    "--appendonly", "yes", "--appendfsync", "always", "--dir", "{{ folder }}"]
"""


def measured(
    folder: Path, store: str, duration: str, *faults: str, rate: str = "500/s"
) -> Measured:
    """Run a store, or echo over a transport, with faults.

    Each is ``kind process at duration``, and more lines behind a bar.
    """
    tables = []
    for fault in faults:
        words, _, more = fault.partition("|")
        kind, process, at, lasts = words.split()
        lines = [f'kind = "{kind}"', f'process = "{process}"', f'at = "{at}"']
        lines += [f'duration = "{lasts}"', *more.split(";")]
        tables.append("\n".join(["[[fault]]", *lines]))
    plan = folder / "plan.toml"
    asked = (
        f'transport = "{store[5:]}"'
        if store.startswith("echo-")
        else f'store = "{store}"\nkeys = 50'
    )
    plan.write_text(
        f'name = "faults"\n[run]\nduration = "{duration}"\nwarmup = "300ms"\n'
        f'[drive]\n{asked}\nrate = "{rate}"\nclients = 4\ntimeout = "5s"\n'
        f'[probe]\nperiod = "100ms"\n' + "\n".join(tables)
    )
    said = call("run", plan, "-q", "-o", folder / "out", timeout=90)
    assert said.returncode == 0, said.stderr
    return Measured(folder / "out")


def groups_of_the_dead() -> list[Path]:
    """Groups of quotas whose runner is gone: other tests' runners may have theirs meanwhile."""
    groups = Path("/sys/fs/cgroup").glob("**/unruly-*-*")
    return [group for group in groups if not Path("/proc", group.name.split("-")[1]).exists()]


def spans(run: Measured, process: str) -> dict[str, list[tuple[int, int | None]]]:
    rows = run.rows(
        "select kind, started_ns, ended_ns from events"
        f" where process = '{process}' order by started_ns"
    )
    found: dict[str, list[tuple[int, int | None]]] = {}
    for kind, started_ns, ended_ns in rows:
        found.setdefault(kind, []).append((started_ns, ended_ns))
    return found


def slowest_ms(run: Measured, span: tuple[int, int | None]) -> float:
    """Of the requests that were due within it and not at its very end."""
    started_ns, ended_ns = span
    assert ended_ns is not None
    (slowest_ns,) = run.rows(
        "select max(received_ns - intended_ns) from requests where status = 'ok'"
        f" and intended_ns between {started_ns} and {ended_ns - 100 * MS}"
    )[0]
    return float(slowest_ns) / MS


@pytest.mark.smoke
def test_what_is_stopped_or_far_away_is_so_for_its_time_alone(tmp_path: Path) -> None:
    run = measured(
        tmp_path, "redis", "5s",
        'stop redis-1 500ms 300ms | every = "1s"',
        'network redis-1 3s 1s | delay = "30ms"; jitter = "5ms"',
        rate="200/s",
    )  # fmt: skip
    found = spans(run, "redis-1")
    lengths = [(ended - started) / MS for started, ended in found["fault stop"] if ended]
    assert len(lengths) == 5
    assert all(250 < length < 1000 for length in lengths)
    # The watch sees it too, without being told.
    assert len(found["process stopped"]) == 5
    stopped = run.rows(
        "select max(received_ns - intended_ns) from requests where intended_ns between"
        f" {found['fault stop'][0][0]} and {found['fault stop'][0][0] + 100 * MS}"
    )
    assert stopped[0][0] > 150 * MS
    (away,) = found["fault network"]
    (fastest_ns,) = run.rows(
        "select min(received_ns - intended_ns) from requests where intended_ns between"
        f" {away[0] + 50 * MS} and {(away[1] or 0) - 100 * MS}"
    )[0]
    # There and back.
    assert fastest_ns > 60 * MS
    (late,) = run.rows(
        "select count(*) from requests where received_ns - intended_ns > 50000000"
        f" and intended_ns < {found['fault stop'][0][0]}"
    )[0]
    assert late < 20


def test_who_is_killed_and_started_again_serves_again(tmp_path: Path) -> None:
    run = measured(tmp_path, "redis", "4800ms", 'kill redis-1 500ms 500ms | every = "1500ms"')
    found = spans(run, "redis-1")
    assert len(found["fault kill"]) == len(found["process died"]) == 3
    assert len(found["process started"]) == 3
    last = found["process started"][-1][0]
    after = run.rows(
        f"select status, count(*) from requests where intended_ns > {last + 200 * MS} group by 1"
    )
    counts = {str(status): int(count) for status, count in after}
    assert counts.get("ok", 0) > 0.5 * sum(counts.values()) > 0
    # It lost what it had, which its readers see.
    assert run.rows("select count(*) from requests where status <> 'ok'")[0][0] > 100
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["missing"] == []


@pytest.mark.parametrize(
    ("kind", "more", "rate"),
    [
        # Far less CPU time than this many requests need on any machine; with neighbours it is a
        # ninth of a CPU.
        ("quota", "cores = 0.011", "10000/s"),
        ("busy", "threads = 8; cpu = 0", "10000/s"),
    ],
)
def test_who_lacks_cpu_time_waits_for_it(tmp_path: Path, kind: str, more: str, rate: str) -> None:
    if kind == "quota":
        need_root("a CPU quota")
    # It is kept beside its neighbours, so that they are in each other's way.
    fault = f"{kind} redis-1 1s 1s | {more}\n[pin]\nredis-1 = [0]"
    run = measured(tmp_path, "redis", "2500ms", fault, rate=rate)
    (span,) = spans(run, "redis-1")[f"fault {kind}"]
    column = "cgroup_throttled_ns" if kind == "quota" else "run_queue_wait_ns"
    waited = run.rows(
        f"select coalesce(sum({column}), 0) from resources where watched = 'redis-1'"
        f" and ended_ns between {span[0]} and {span[1]} + 200000000"
    )
    assert waited[0][0] > 50 * MS
    assert not groups_of_the_dead()


def test_each_sample_around_a_cpu_limit_counts_the_throttled_time(tmp_path: Path) -> None:
    need_root("a CPU quota")
    fault = "quota redis-1 1s 1s | cores = 0.011"
    run = measured(tmp_path, "redis", "2500ms", fault, rate="10000/s")
    (span,) = spans(run, "redis-1")["fault quota"]
    counted, lost = run.rows(
        "select count(cgroup_throttled_ns), count(*) - count(cgroup_throttled_ns) from resources"
        f" where watched = 'redis-1' and ended_ns > {span[0]} and started_ns < {span[1]}"
    )[0]
    assert counted > 0
    assert lost == 0


def test_the_group_of_a_quota_that_a_killed_runner_left_is_taken_away_by_the_next(
    tmp_path: Path,
) -> None:
    need_root("a CPU quota")
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "left"\n[run]\nduration = "60s"\nwarmup = "0s"\n[drive]\nstore = "redis"\n'
        'rate = "10/s"\n[[fault]]\nkind = "quota"\nprocess = "redis-1"\nat = "0s"\n'
        'duration = "50s"\ncores = 0.5\n'
    )

    def groups(runner: int) -> list[Path]:
        return list(Path("/sys/fs/cgroup").glob(f"**/unruly-{runner}-*"))

    with running(plan, tmp_path / "left") as runner:
        wait_for(lambda: groups(runner.pid), "the quota")
    assert groups(runner.pid), "killed, it can take nothing away"
    measured(tmp_path, "redis", "1500ms", "quota redis-1 500ms 500ms | cores = 0.5")
    assert not groups_of_the_dead()


def test_whose_disk_stalls_answers_when_it_is_over(tmp_path: Path) -> None:
    service = tmp_path / "safe.toml"
    service.write_text(SAFE_REDIS)
    run = measured(tmp_path, str(service), "3s", "disk redis-1 1s 1s |")
    found = spans(run, "redis-1")
    (span,) = found["fault disk"]
    assert slowest_ms(run, span) > 700
    (told,) = run.rows("select detail from events where kind = 'fault disk'")[0]
    assert int(str(told).split()[0]) >= 1
    # The watch sees a call that does not return; a disk that is busy may keep others waiting, too.
    waits = [(ended_ns or 0) - started_ns for started_ns, ended_ns in found["disk wait"]]
    assert sum(waited_ns > 700 * MS for waited_ns in waits) == 1
    before = (span[0] - 800 * MS, span[0])
    assert slowest_ms(run, before) < 500


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_the_way_to_the_echo_server_is_late_and_loses(tmp_path: Path, transport: str) -> None:
    more = 'delay = "20ms"; loss = 0.2' if transport == "udp" else 'delay = "20ms"'
    run = measured(
        tmp_path, f"echo-{transport}", "2s", f"network echo-0 500ms 1s | {more}", rate="200/s"
    )
    (span,) = spans(run, "echo-0")["fault network"]
    due, back, fastest_ns = run.rows(
        "select count(*), count(*) filter (status = 'ok'),"
        " min(received_ns - intended_ns) filter (status = 'ok') from requests"
        f" where intended_ns between {span[0] + 50 * MS} and {(span[1] or 0) - 100 * MS}"
    )[0]
    assert fastest_ns > 40 * MS
    if transport == "udp":
        assert 0.3 * due < back < 0.9 * due
    else:
        assert back == due
    assert run.rows("select count(*) from resources where watched = 'relay'")[0][0] > 5


def test_flurry_answers_while_the_way_to_one_of_its_servers_is_bad(tmp_path: Path) -> None:
    run = measured(
        tmp_path, "flurry", "3s",
        'network flurry-2 1s 1s | delay = "200ms"; loss = 0.1',
        rate="200/s",
    )  # fmt: skip
    (span,) = spans(run, "flurry-2")["fault network"]
    (detail,) = run.rows("select detail from events where kind = 'fault network'")[0]
    passed = str(detail).split(", ")[1].split()
    assert int(passed[2]) > 100, "messages passed the relay"
    assert int(passed[0]) > 0, "some of them were lost"
    (median_ns,) = run.rows(
        "select quantile_cont(received_ns - intended_ns, 0.5) from requests"
        f" where op = 'read' and intended_ns between {span[0]} and {span[1]}"
    )[0]
    assert median_ns < 200 * MS


def test_a_fault_of_the_leader_finds_the_process_that_leads_then(tmp_path: Path) -> None:
    run = measured(
        tmp_path, "etcd", "6s",
        "stop etcd-follower 500ms 500ms", "kill etcd-leader 2s 2s", rate="50/s",
    )  # fmt: skip
    rows = run.rows("select kind, process, detail from events where kind like 'fault%' order by 1")
    (_, leader, of_leader), (_, follower, of_follower) = rows
    assert (of_leader, of_follower) == ("as etcd-leader", "as etcd-follower")
    # etcd's own word for who led when it was killed: the last that became leader before.
    (killed_ns,) = run.rows("select started_ns from events where kind = 'fault kill'")[0]
    elections: list[tuple[str, str]] = []
    for log in (run.path / "logs").glob("*-etcd-*.log"):
        for line in log.read_text().splitlines():
            if "became leader at term" in line:
                told = json.loads(line)
                elections.append((str(told["ts"]), f"etcd-{log.stem.rpartition('-')[2]}"))
    moment = datetime.fromtimestamp(int(killed_ns) / 1e9, tz=UTC).isoformat()
    leaders = [name for at, name in sorted(elections) if at < moment]
    assert leaders[-1] == leader
    assert follower != leader
    assert len(elections) > len(leaders), "the others chose another leader"


def test_a_fault_of_nobody_is_refused_before_anything_starts(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "faults"\n[run]\nduration = "1s"\n[drive]\nstore = "redis"\nrate = "500/s"\n'
        '[[fault]]\nkind = "stop"\nprocess = "redis-2"\nat = "100ms"\nduration = "100ms"\n'
    )
    said = call("run", plan, "-q", "-o", tmp_path / "out", timeout=60)
    assert said.returncode == 2
    assert said.stderr == (
        "unruly: fault.process: no cell has the process redis-2; "
        "known: drive-0, probe-0, redis-1; hint: did you mean redis-1\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_fault_of_another_cell_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    matrix = '[matrix]; "drive.store" = ["redis", "memcached"]'
    run = measured(tmp_path, "redis", "1s", f"stop redis-1 100ms 100ms |{matrix}")
    manifest = json.loads((run.path / "manifest.json").read_text())
    (said,) = manifest["missing"]
    assert "fault stop: none of redis-1 is there; wanted one of memcached-1, " in said
