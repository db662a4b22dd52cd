"""The main job: groups of agents, measured end to end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from house import Measured, call, need_root, write_plan

ALL = '["null", "crypto", "disk", "network", "mixed"]'


@pytest.mark.smoke
def test_every_scheduled_copy_is_a_row_and_the_counts_add_up(
    either: Callable[..., Measured],
) -> None:
    # Longer than a stall of a busy machine: a copy that times out is no fault of the books.
    run = either(workloads=ALL, timeout="20s")
    copies = run.manifest["counts"]["copies"]
    assert run.rows("select count(*) from requests")[0][0] == copies["scheduled"] > 500
    assert copies["ok"] == copies["scheduled"]
    assert copies["dropped"] == 0
    assert run.manifest["status"] == "complete"


@pytest.mark.smoke
def test_each_group_request_has_a_copy_for_each_member_and_one_answer(
    either: Callable[..., Measured],
) -> None:
    run = either(agents=7, groups=[3, 4])
    sizes = run.rows(
        "select n, count(*), min(answers), max(answers), max(last_answers::int) from ("
        "  select count(*) n, sum(answered::int) answers,"
        "         arg_max(answered, received_ns) last_answers"
        "  from requests group by client, request"
        # A copy that timed out leaves its request without an answer.
        "  having bool_and(status = 'ok')) group by n order by n"
    )
    assert [(n, low, high, last) for n, _, low, high, last in sizes] == [(3, 1, 1, 1), (4, 1, 1, 1)]


def test_agents_of_one_seed_ask_the_same_group_with_no_coordination(
    measure: Callable[..., Measured],
) -> None:
    run = measure(agents=7, groups=[3, 4])
    members = run.rows(
        "select client, list(distinct server order by server) from requests group by 1"
    )
    asked = dict(members)
    assert len(asked) == 7
    for client, group in asked.items():
        assert client in group
        assert all(asked[member] == group for member in group)


def test_sizes_on_the_wire_are_those_of_the_paper(either: Callable[..., Measured]) -> None:
    run = either(workloads=ALL)
    sizes = run.rows("select distinct op, sent_bytes, received_bytes from requests order by op")
    assert sizes == [
        ("crypto", 28, 44),
        ("disk", 28, 44),
        ("mixed", 50_028, 50_044),
        ("network", 50_028, 50_044),
        ("null", 28, 44),
    ]


def test_stamps_of_both_kernels_are_there_and_in_order(measure: Callable[..., Measured]) -> None:
    run = measure(workloads='["null", "network"]')
    stamped, rows, ordered = run.rows(
        "select count(kernel_received_ns + server_kernel_received_ns), count(*), count(*) filter ("
        "  sent_ns <= server_kernel_received_ns and server_kernel_received_ns <= server_received_ns"
        "  and server_received_ns <= server_sent_ns and server_sent_ns <= kernel_received_ns"
        "  and kernel_received_ns <= received_ns) from requests"
    )[0]
    assert stamped >= 0.99 * rows
    assert ordered >= 0.99 * stamped


def test_the_disk_workload_waits_for_the_disk_and_leaves_no_file(
    either: Callable[..., Measured],
) -> None:
    run = either(workloads='["null", "disk"]')
    ((disk, null),) = run.rows(
        "select median(server_sent_ns - server_received_ns) filter (op = 'disk'),"
        "       median(server_sent_ns - server_received_ns) filter (op = 'null') from requests"
    )
    writes = run.rows("select sum(disk_writes) from resources where watched is null")[0][0]
    assert disk > 3 * null
    assert writes is None or writes > 100
    assert not list(run.path.glob("*.disk"))


@pytest.mark.smoke
def test_udp_measures_as_tcp_does(either: Callable[..., Measured]) -> None:
    run = either(mesh='transport = "udp"', workloads=ALL)
    copies = run.manifest["counts"]["copies"]
    assert copies["ok"] >= 0.99 * copies["scheduled"] > 500


def test_the_same_seed_schedules_the_same_requests(measure: Callable[..., Measured]) -> None:
    query = (
        "select client, request, server, op,"
        "       intended_ns - min(intended_ns) over (partition by client)"
        " from requests order by all"
    )
    assert measure(seed=7).rows(query) == measure(seed=7).rows(query)
    assert measure(seed=7).rows(query) != measure(seed=8).rows(query)


def test_the_probe_samples_the_host_each_agent_and_itself(either: Callable[..., Measured]) -> None:
    run = either()
    watched = run.rows("select watched, count(*) from resources group by 1 order by 1 nulls first")
    assert [name for name, _ in watched] == [None, "agent-0", "agent-1", "agent-2", "probe-0"]
    assert all(count >= 8 for _, count in watched)
    low, high = run.rows("select min(cpu_user_share), max(cpu_user_share) from resources")[0]
    assert 0 <= low <= high <= 1


def test_warm_up_rows_are_marked_and_left_out_of_the_verdict(
    measure: Callable[..., Measured],
) -> None:
    run = measure(warmup="1s")
    phases = dict(run.rows("select phase, count(*) from requests group by 1"))
    assert phases["warmup"] > 100
    cells = run.verdict()["cells"]
    assert {cell["n"] for cell in cells if cell["op"] == "null"} == {phases["measure"]}


@pytest.mark.smoke
def test_namespaces_give_each_agent_its_own_host_and_leave_nothing(
    measure: Callable[..., Measured],
) -> None:
    need_root("a network namespace")
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    run = measure(run='hosts = "namespaces"')
    hosts = run.rows("select distinct process, host from requests order by 1")
    assert hosts == [("agent-0", "host-0"), ("agent-1", "host-1"), ("agent-2", "host-2")]
    copies = run.manifest["counts"]["copies"]
    assert copies["ok"] == copies["scheduled"]
    assert run.rows("select count(distinct host) from resources")[0][0] == 3
    assert (
        subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout == links
    )


def test_namespaces_without_root_say_what_is_needed(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, run='hosts = "namespaces"')
    if os.geteuid() == 0:
        os.chmod(tmp_path, 0o777)
        for folder in [tmp_path, *tmp_path.parents]:
            if folder.stat().st_uid == 0 and folder != Path("/"):
                os.chmod(folder, folder.stat().st_mode | 0o111)
        said = call("run", plan, "-o", tmp_path / "out", user=65534)
    else:
        said = call("run", plan, "-o", tmp_path / "out")
    assert said.returncode == 2
    assert 'run.hosts: "namespaces" needs root' in said.stderr
    assert 'hint: sudo, or hosts = "processes"' in said.stderr
