"""The load of a run comes from other hosts: one run, exact percentiles, bounds of the clocks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_house import HERE, Hosts, address, left_over, ssh_hosts
from house import UNRULY, Measured, call, wait_for
from http_house import nginx

PORT = 8088
PAGE = f"http://{HERE}:{PORT}/page.txt"
LOCAL_PORT = 8089
LOCAL_PAGE = f"http://127.0.0.1:{LOCAL_PORT}/page.txt"
THERE = ["--from-program", str(UNRULY)]
# A command that only starts another one: a host that is this one.
ENV = "command:env A=1"
# They take requests of one schedule in turn, and a busy machine holds a process up between two
# readings of its clocks.
NEAR_NS = 20_000_000


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with ssh_hosts(folder / "ssh", 3) as found:
        (folder / "nginx").mkdir()
        with nginx(folder / "nginx", f"listen {HERE}:{PORT}; listen 127.0.0.1:{LOCAL_PORT};"):
            yield found


def drive(hosts: Hosts, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return call("drive", *words, *THERE, "-w", "0s", timeout=170, env=hosts.environment)


def started_at(run: Measured) -> dict[str, int]:
    """The first scheduled instant of each process, by its host's wall clock."""
    return dict(run.rows("select process, min(intended_ns) from requests group by 1"))


@pytest.fixture(scope="module")
def measured(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A run from three hosts."""
    out = tmp_path_factory.mktemp("measured") / "run"
    said = drive(hosts, PAGE, "--from", hosts.names(), "-r", "600", "-d", "4s", "-o", out)
    # A busy machine spoils a run, which is exit code 1.
    assert said.returncode in (0, 1), said.stderr
    assert "from node-1, node-2, node-3" in said.stderr
    return Measured(out)


def test_requests_from_three_hosts_by_ssh_are_one_run(measured: Measured) -> None:
    run = measured
    rows = dict(run.rows("select process, count(*) from requests where status = 'ok' group by 1"))
    assert set(rows) == {"drive-0", "drive-1", "drive-2"}
    assert sum(rows.values()) == run.manifest["counts"]["copies"]["scheduled"] == 2400
    generators = {it["name"]: it["host"] for it in run.manifest["processes"] if it["counts"]}
    assert generators == {"drive-0": "node-1", "drive-1": "node-2", "drive-2": "node-3"}
    # The facts of each host, and the samples of a probe there.
    known = {it["name"]: it["cores"] for it in run.manifest["hosts"]}
    assert known == dict.fromkeys(["local", "node-1", "node-2", "node-3"], os.cpu_count())
    sampled = {host for (host,) in run.rows("select distinct host from resources")}
    assert sampled == set(known)
    assert not left_over()


def test_the_load_of_all_hosts_starts_at_one_instant_and_their_clocks_have_bounds(
    measured: Measured,
) -> None:
    run = measured
    clocks = {it["name"]: it["clock"] for it in run.manifest["hosts"] if "clock" in it}
    assert len(clocks) == 3
    # The namespaces have one clock, so the true difference is 0.
    assert all(it["low_ns"] <= 0 <= it["high_ns"] and it["steps"] == 0 for it in clocks.values())
    first = sorted(started_at(run).values())
    widest = max(it["widest_ns"] for it in clocks.values())
    assert first[-1] - first[0] <= NEAR_NS + widest
    (told,) = [it for it in run.verdict()["findings"] if it["code"] == "clocks-compared"]
    assert told["severity"] == "informs"
    assert set(told["evidence"]["clocks"]) == set(clocks)


def test_a_clock_that_is_five_seconds_ahead_is_told_and_starts_with_the_others(
    hosts: Hosts, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    ahead_of_us = "command:faketime -f +5s env"
    words = [LOCAL_PAGE, "--from", ENV, "--from", ahead_of_us, "-r", "500", "-d", "3s"]
    said = drive(hosts, *words, "-o", out)
    assert said.returncode in (0, 1), said.stderr
    run = Measured(out)
    clocks = {it["name"]: it["clock"] for it in run.manifest["hosts"] if "clock" in it}
    ahead = clocks["host-2"]
    assert ahead["low_ns"] <= 5_000_000_000 <= ahead["high_ns"]
    assert clocks["host-1"]["low_ns"] <= 0 <= clocks["host-1"]["high_ns"]
    first = started_at(run)
    apart = first["drive-1"] - first["drive-0"] - 5_000_000_000
    assert abs(apart) <= NEAR_NS + ahead["widest_ns"]
    (told,) = [it for it in run.verdict()["findings"] if it["code"] == "clocks-compared"]
    assert "host-2: 5 s to 5 s ahead" in told["text"], told


def test_a_host_that_is_cut_off_costs_its_own_rows_only(hosts: Hosts, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [UNRULY, "drive", PAGE, "--from", hosts.names(), *THERE, "-r", "600"]
    with subprocess.Popen(
        [*words, "-w", "0s", "-d", "20s", "-o", out, "-q"],
        env=hosts.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            wait_for(lambda: sampled_at(out), "the load")
            with hosts.cut_off(3):
                _, complaint = process.communicate(timeout=150)
                # Its sshd notices nothing; its processes notice that nobody asks for the clock.
                wait_for(lambda: not left_over(), lambda: f"an empty host: {left_over()}")
        finally:
            process.kill()
    assert process.returncode == 1, complaint
    run = Measured(out)
    rows = dict(run.rows("select process, count(*) from requests where status = 'ok' group by 1"))
    assert set(rows) == {"drive-0", "drive-1"}
    assert sum(rows.values()) > 0.9 * 8_000
    assert run.manifest["status"] == "incomplete"
    broken = "; ".join(run.manifest["broken"])
    assert "host node-3: it is silent" in broken
    assert "host node-3: the rows of drive-2 did not arrive" in broken


def sampled_at(out: Path) -> bool:
    """Whether the load has begun: the probe of this host has written its first samples."""
    return any(it.stat().st_size > 0 for it in out.glob("resources/*.spool"))


def test_nothing_stays_on_a_host_whose_connection_ends(hosts: Hosts, tmp_path: Path) -> None:
    for number in range(2):
        out = tmp_path / f"run-{number}"
        hosts_ = ["--from", ENV, "--from", ENV]
        words = [UNRULY, "drive", LOCAL_PAGE, *hosts_, *THERE, "-r", "100"]
        with subprocess.Popen(
            [*words, "-d", "60s", "-o", out, "-q"],
            env=hosts.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            wait_for(lambda: len(left_over()) >= 12, "two hosts at work")
            process.kill()
        wait_for(lambda: not left_over(), lambda: f"an empty host: {left_over()}", limit_s=10)


def test_a_host_that_cannot_be_reached_is_told_in_the_words_of_ssh(
    hosts: Hosts, tmp_path: Path
) -> None:
    said = drive(hosts, PAGE, "--from", "ssh:node-1,ssh:node-9", "-d", "1s", "-o", tmp_path / "a")
    assert said.returncode == 2
    assert "host node-9: ssh: Could not resolve hostname node-9" in said.stderr
    known = (hosts.folder / "known-hosts").read_text()
    hosts.forget()
    said = drive(hosts, PAGE, "--from", "ssh:node-1", "-d", "1s", "-o", tmp_path / "b")
    (hosts.folder / "known-hosts").write_text(known)
    assert said.returncode == 2
    assert "host node-1:" in said.stderr
    assert "Host key verification failed" in said.stderr
    words = ["drive", PAGE, "--from", "ssh:node-1", "--from-program", "/nowhere/unruly"]
    said = call(*words, "-d", "1s", "-o", tmp_path / "c", env=hosts.environment)
    assert said.returncode == 2
    assert "/nowhere/unruly: No such file or directory" in said.stderr


def test_a_program_of_another_version_is_refused_with_both() -> None:
    order = json.dumps({"version": 1, "tool": {"version": "0.0.1", "commit": "abc"}, "job": {}})
    said = subprocess.run(
        [UNRULY, "host"], input=f"{order}\n", capture_output=True, text=True, check=False
    )
    assert said.returncode == 2
    finding = json.loads(said.stdout)["finding"]
    assert finding["fatal"]
    assert '"version":"0.0.1"' in finding["text"]
    assert "wanted the same program on both" in finding["text"]
    garbage = subprocess.run(
        [UNRULY, "host"],
        input="GET / HTTP/1.1\r\n\r\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert garbage.returncode == 2
    assert "is no order" in garbage.stderr


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["service:redis"], "--from: it is given with a service"),
        (
            [LOCAL_PAGE, "--arrivals", "replay", "--times", "times.txt"],
            "--from: it is given with a replay",
        ),
        (
            [LOCAL_PAGE, "--from", ENV, "--processes", "1"],
            "--from: it is given with fewer processes",
        ),
    ],
    ids=["service", "replay", "processes"],
)
def test_what_hosts_cannot_do_is_refused_before_anything_starts(
    more: list[str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "times.txt").write_text("0.1\n")
    said = call("drive", *more, "--from", ENV, "-o", tmp_path / "run", cwd=tmp_path)
    assert said.returncode == 2
    assert told in said.stderr, said.stderr
    assert not (tmp_path / "run").exists()


def demo_on(hosts: Hosts, plan: Path) -> None:
    """The shipped demo, shorter, with its agents on other hosts."""
    text = call("plans", "demo").stdout
    for long, short in (("60s", "15s"), ("40s", "8s"), ('period = "5ms"', 'period = "10ms"')):
        text = text.replace(long, short)
    for number in range(1, hosts.count + 1):
        text += (
            f'[[host]]\nname = "node-{number}"\naddress = "{address(number)}"\n'
            f'reach = ["ssh", "node-{number}"]\nprogram = "{UNRULY}"\n'
        )
    plan.write_text(text)


@pytest.fixture(scope="module")
def demo(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("demo")
    demo_on(hosts, folder / "plan.toml")
    said = call("run", folder / "plan.toml", "-o", folder / "run", env=hosts.environment)
    assert said.returncode in (0, 1), said.stderr
    return Measured(folder / "run")


def test_agents_on_three_hosts_are_one_group_and_no_stamp_of_another_clock_counts(
    demo: Measured,
) -> None:
    agents = {it["id"]: it["host"] for it in demo.manifest["processes"] if it["kind"] == "mesh"}
    assert agents == {number: f"node-{1 + number % 3}" for number in range(7)}
    counts = demo.rows(
        "select client, server, count(*), count(server_received_ns), count(server_sent_ns)"
        " from requests where status = 'ok' group by all"
    )
    assert {(client, server) for client, server, *_ in counts} >= {(0, 1), (0, 3), (3, 0), (1, 5)}
    for client, server, rows, received, sent in counts:
        stamped = rows if agents[client] == agents[server] else 0
        assert (received, sent) == (stamped, stamped), (client, server)
    clocks = {it["name"]: it["clock"] for it in demo.manifest["hosts"] if "clock" in it}
    assert set(clocks) == {"node-1", "node-2", "node-3"}
    assert all(it["low_ns"] <= 0 <= it["high_ns"] for it in clocks.values())


def test_a_limit_on_another_host_holds_its_agent_back_and_is_named(demo: Measured) -> None:
    (fault,) = demo.rows("select kind, process, detail from events where kind like 'fault%'")
    assert fault == ("fault quota", "agent-3", "0.012 cores")
    assert demo.manifest.get("broken") is None, demo.manifest["broken"]
    throttled = demo.rows(
        "select watched, max(cgroup_throttled_ns) from resources where cgroup_throttled_ns > 0"
        " group by 1"
    )
    assert {process for process, _ in throttled} == {"agent-3"}
    # Its control group is gone.
    (pid,) = [it["pid"] for it in demo.manifest["processes"] if it["name"] == "agent-3"]
    assert not list(Path("/sys/fs/cgroup").glob(f"**/unruly-*-{pid}"))


def test_a_stopped_agent_on_another_host_goes_on_and_a_killed_one_is_gone(
    hosts: Hosts, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    demo_on(hosts, plan)
    text, _ = plan.read_text().split("[[fault]]")
    _, there = plan.read_text().split("cores = 0.012")
    faults = (
        '[[fault]]\nkind = "stop"\nprocess = "agent-4"\nat = "2s"\nduration = "500ms"\n'
        '[[fault]]\nkind = "kill"\nprocess = "agent-5"\nat = "4s"\n'
    )
    plan.write_text(text.replace('"15s"', '"6s"').replace('"20s"', '"2s"') + faults + there)
    said = call("run", plan, "-o", tmp_path / "run", env=hosts.environment)
    assert said.returncode in (0, 1), said.stderr
    run = Measured(tmp_path / "run")
    kinds = run.rows("select kind, process from events where kind like 'fault%' order by 1")
    assert kinds == [("fault kill", "agent-5"), ("fault stop", "agent-4")]
    (slowest_ns,) = run.rows(
        "select max(received_ns - sent_ns) from requests where server = 4 and client not in (4, 5)"
        " and status = 'ok' and phase = 'measure'"
    )[0]
    assert slowest_ns > 400_000_000
    (killed_ns,) = run.rows("select started_ns from events where kind = 'fault kill'")[0]
    answered = "from requests where server = 5 and status = 'ok' and sent_ns"
    assert run.rows(f"select count(*) {answered} < {killed_ns}")[0][0] > 100
    assert run.rows(f"select count(*) {answered} > {killed_ns + NEAR_NS + 100_000_000}") == [(0,)]
    (ended,) = [it for it in run.manifest["processes"] if it["name"] == "agent-5"]
    assert (ended["host"], ended["exit"]) == ("node-3", {"code": 137})
    assert run.manifest["status"] == "complete", run.manifest.get("broken")


FAULT = re.compile(r"\[\[fault\]\].*?cores = 0.012\n", re.DOTALL)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("address = ", "# address = ", "node-1 has no address"),
        ("agents = 7\ngroups = [3, 4]", "agents = 2\ngroups = [2]", "[[host]] and fewer agents"),
        ("[probe]", 'runtime = "jvm"\n[probe]', "must have native agents"),
        ("10.88.0.1", "node-1.example", "must be an IP address of the host"),
        ("10.88.0.1", "0.0.0.0", "must be an IP address of the host"),
        ("10.88.0.1", "fe80::1", "must be an IP address of the host"),
        ("[probe]", '[compete]\nkind = "cpu"\n[probe]', "no competing load on other hosts"),
    ],
    ids=["address", "agents", "runtime", "name", "all", "link", "compete"],
)
def test_a_group_whose_agents_would_not_reach_one_another_is_refused(
    old: str, new: str, told: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    demo_on(Hosts(tmp_path, 3), plan)
    plan.write_text(FAULT.sub("", plan.read_text()).replace(old, new))
    said = call("run", plan, "-o", tmp_path / "run")
    assert said.returncode == 2
    assert told in said.stderr, said.stderr


def test_a_fault_that_only_this_host_can_do_is_refused_for_another(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    demo_on(Hosts(tmp_path, 3), plan)
    plan.write_text(plan.read_text().replace('"quota"', '"busy"').replace("cores = 0.012", ""))
    said = call("run", plan, "-o", tmp_path / "run")
    assert said.returncode == 2
    assert "agent-3 is on another host; must have a fault of the kind stop" in said.stderr


def test_a_host_without_the_program_gets_it_once_and_measures(hosts: Hosts, tmp_path: Path) -> None:
    """The hosts share their files, so the second one has the copy of the first."""
    home = tmp_path / "home"
    for number, copies in ((1, 1), (2, 0)):
        out = tmp_path / f"run-{number}"
        inside = ["--from", f"command:ssh node-{number} env HOME={home}", "--from-install"]
        words = [PAGE, *inside, "-r", "100", "-d", "1s", "-w", "0s", "-o", out]
        said = call("drive", *words, timeout=170, env=hosts.environment)
        assert said.returncode in (0, 1), said.stderr
        assert said.stderr.count("copying unruly to host-1 (") == copies
        ok = "select count(*) from requests where phase = 'measure' and status = 'ok'"
        assert Measured(out).rows(ok) == [(100,)]
    (there,) = home.glob(".cache/unruly/*/*")
    assert there.read_bytes() == UNRULY.read_bytes()
    assert left_over() == []


def test_a_host_that_cannot_take_the_program_is_named_before_the_run(
    hosts: Hosts, tmp_path: Path
) -> None:
    (tmp_path / ".cache").write_text("a file where the directory would be")
    way = f"command:ssh node-1 env HOME={tmp_path}"
    out = tmp_path / "run"
    words = [PAGE, "--from", way, "--from-install", "-d", "1s", "-o", out]
    said = call("drive", *words, env=hosts.environment)
    assert said.returncode == 2
    assert "host-1: unruly was not installed there: mkdir -p" in said.stderr
    assert f"hint: try it yourself: ssh node-1 env HOME={tmp_path} mkdir -p" in said.stderr
    assert not out.exists()
    for more, told in (
        (["--from", ENV, *THERE], "--from-install: the run chooses where it installs"),
        ([], "--from <HOSTS>"),
    ):
        said = call("drive", PAGE, "--from-install", *more)
        assert said.returncode == 2
        assert told in said.stderr, said.stderr


def printed(words: list[str]) -> bytes:
    return subprocess.run(words, capture_output=True, check=False).stdout


def test_a_server_that_only_the_hosts_reach_is_measured(hosts: Hosts, tmp_path: Path) -> None:
    """It listens on the first host's loopback, where the runner finds nobody."""
    inside = ["ip", "netns", "exec", "ut-node-1"]
    words = ["redis-server", "--port", "8091", "--bind", "127.0.0.1", "--save", ""]
    asked = [*inside, "redis-cli", "-p", "8091", "ping"]
    with subprocess.Popen([*inside, *words], stdout=subprocess.DEVNULL, cwd=tmp_path) as server:
        try:
            wait_for(lambda: b"PONG" in printed(asked), "redis")
            out = tmp_path / "run"
            words = ["redis://127.0.0.1:8091", "--from", "ssh:node-1", "-r", "100", "-d", "1s"]
            said = drive(hosts, *words, "-o", out)
        finally:
            server.terminate()
    assert said.returncode in (0, 1), said.stderr
    assert "this host does not reach it, and its data were not looked at: " in said.stderr
    ok = "select count(*) from requests where phase = 'measure' and status = 'ok'"
    assert Measured(out).rows(ok) == [(100,)]
