"""Parameters of a service: a plan chooses them, and they reach the processes that a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import Measured, call

# Its log says how it was started. The store is Redis, since a run needs one that answers.
POOL = """
about = "Redis with a pool that nobody uses, and its tables"
url = "redis://{{ processes['app-1'].front }}:{{ processes['app-1'].port }}"
programs = ["redis-server"]
[parameters]
pool = { default = 2, least = 1, most = 64, help = "connections" }
nodes = { default = 1, least = 0, most = 200, help = "processes" }
[files]
"peers.txt" = '''
{% for it in processes.app %}
peer {{ it.name }}
{% endfor %}
'''
[[process]]
name = "app"
count = "{{ nodes }}"
tier = "database"
after = ["tables"]
command = ["sh", "start.sh"]
[process.files]
"start.sh" = '''
cat peers.txt
echo pool {{ pool }} of {{ tables }}
exec redis-server --bind {{ host }} --port {{ port }} --save ""
'''
[[process]]
name = "before"
command = ["sh", "-c", "echo ready; exec sleep 600"]
says = "ready"
[[step]]
name = "tables"
after = ["before"]
command = ["echo", "seven tables"]
save = "tables"
"""

PLAN = """
name = "pool"
[run]
duration = "1s"
warmup = "0s"
[drive]
store = "{store}"
clients = 2
rate = "200/s"
keys = 10
{more}
"""


def write(folder: Path, more: str = "", service: str = POOL) -> Path:
    """Write a service and a plan for it; return the plan."""
    store = folder / "pool.toml"
    store.write_text(service)
    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(store=store, more=more))
    return plan


def measured(plan: Path, *words: str) -> Measured:
    out = plan.parent / "run"
    said = call("run", plan, "-q", "-o", out, *words)
    assert said.returncode == 0, said.stderr
    return Measured(out)


def log(run: Measured, trial: str, process: str) -> list[str]:
    return (run.path / "logs" / f"{trial}-{process}.log").read_text().splitlines()


def test_a_factor_of_the_matrix_reaches_the_command_of_each_cell(tmp_path: Path) -> None:
    run = measured(write(tmp_path, '[service]\nnodes = 2\n[matrix]\n"service.pool" = [2, 24]'))
    cells = {cell["name"]: cell["factors"] for cell in run.manifest["cells"]}
    assert cells == {"pool=2": {"service.pool": "2"}, "pool=24": {"service.pool": "24"}}
    for trial, pool in (("c0r0", 2), ("c1r0", 24)):
        for process in ("app-1", "app-2"):
            told = log(run, trial, process)[:3]
            assert told == ["peer app-1", "peer app-2", f"pool {pool} of seven tables"]
    rows = run.rows("select cell, count(*) from requests where status = 'ok' group by cell")
    assert {cell for cell, count in rows if count > 100} == set(cells)
    tiers = {it["name"]: it.get("tier") for it in run.manifest["processes"]}
    assert (tiers["app-1"], tiers["before"]) == ("database", None)


def test_the_command_line_chooses_a_parameter(tmp_path: Path) -> None:
    run = measured(write(tmp_path), "--set", "service.pool=48")
    assert "pool 48 of seven tables" in log(run, "c0r0", "app-1")
    assert "with pool 48" in run.manifest["target"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("[service]\npol = 2", "plan.toml:12: service POOL has no parameter \"pol\"; known: pool, "
         "nodes; hint: did you mean pool"),
        ("[service]\npool = 65", "plan.toml:12: pool is 65; must be at most 64; hint: pool = 2"),
        ('[matrix]\n"service.pool" = [2, 0]', 'plan.toml:12: in cell "pool=0", pool is 0; must be '
         "at least 1; hint: pool = 2"),
        ("[service]\nnodes = 0", 'POOL:16: count is 0, from "{{ nodes }}"; must be from 1 to 100; '
         "hint: count = 3"),
        ("[service]\nnodes = 101", 'POOL:16: count is 101, from "{{ nodes }}"; must be from 1 to '
         "100; hint: count = 3"),
        ('[matrix]\n"drive.store" = ["POOL", "memcached"]\n"service.pool" = [2]',
         'plan.toml:13: in cell "store=memcached pool=2", service memcached has no parameter '
         '"pool"; known: threads, memory; hint: unruly services show memcached'),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_told_before_anything_starts(
    tmp_path: Path, more: str, told: str
) -> None:
    store = str(tmp_path / "pool.toml")
    plan = write(tmp_path, more.replace("POOL", store))
    said = call("run", plan, "-o", tmp_path / "run")
    assert said.returncode == 2
    assert told.replace("POOL", store) in said.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{{ pool }}", "2", ':6: no file and no command uses the parameter "pool"'),
        ("--port {{ port }}", "--port {port}", ":24: {port} is the form of older files; must be an "
         "expression in two braces; hint: write {{ port }}"),
        ('after = ["before"]', 'after = ["app"]', ":18: after makes a cycle: app-1 waits for "
         "tables waits for app-1;"),
        ("{{ tables }}", "{{ tabls }}", ':23: "tabls" stands for nothing;'),
    ],
)  # fmt: skip
def test_a_fault_of_a_file_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in POOL
    plan = write(tmp_path, service=POOL.replace(old, new))
    for words in (
        ("run", plan, "-o", tmp_path / "run"),
        ("services", "show", tmp_path / "pool.toml"),
    ):
        said = call(*words)
        assert said.returncode == 2
        assert f"pool.toml{told}" in said.stderr
    assert not (tmp_path / "run").exists()


def test_the_parameters_of_a_service_are_shown(tmp_path: Path) -> None:
    write(tmp_path)
    said = call("services", "show", "redis-replicated", tmp_path / "pool.toml")
    assert said.returncode == 0, said.stderr
    lines = [line.split(maxsplit=3) for line in said.stdout.splitlines() if line.startswith("  ")]
    assert ["replicas", "2", "1", "to 9   replicas beside the server that clients reach"] in lines
    assert ["pool", "2", "1", "to 64   connections"] in lines


def test_a_generator_is_in_the_real_time_class_or_the_run_says_why_not(tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = call("drive", "null:", "-r", "200", "-d", "1s", "-w", "0s", "--scheduling", "realtime",
                "-q", "-o", out)  # fmt: skip
    if said.returncode:
        assert "drive.scheduling: this host does not let a process into the real-time class" in (
            said.stderr
        )
        assert 'hint: scheduling = "normal"' in said.stderr
    else:
        found = Measured(out).rows("select process from events where kind = 'realtime'")
        assert found == [("drive-0",)]
