"""What `unruly hosts` prints starts load generators in a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from house import REPOSITORY, UNRULY, Measured, call, need_root, wait_for
from redis_house import redis_server

VALIDATE = REPOSITORY / "target" / "kubernetes" / "bin" / "kubernetes-validate"
SRUN = """#!/bin/sh
while case $1 in --*) ;; *) false ;; esac; do
  echo "$1" >> "$STEPS"
  shift
done
exec "$@"
"""
"""Starts a step on this machine: where Slurm runs nothing, a node is this one."""
SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames node[1-2]" ] && printf 'node1\\nnode2\\n'
"""


def validate(manifest: str, file: Path) -> subprocess.CompletedProcess[str]:
    """Validate a manifest as the API server of Kubernetes would, and refuse unknown fields."""
    assert VALIDATE.is_file(), "kubernetes-validate is missing; hint: make kubernetes"
    file.write_text(manifest)
    return subprocess.run(
        [VALIDATE, "--strict", file], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("words", [("kubernetes", "-n", "7"), ("daemonset",)])
def test_a_manifest_of_kubernetes_passes_strict_validation(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    printed = call("hosts", *words)
    assert printed.returncode == 0, printed.stderr
    done = validate(printed.stdout, tmp_path / "hosts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "image: localhost/unruly:" in printed.stdout
    wrong = printed.stdout.replace("enableServiceLinks", "enableServiceLink")
    assert validate(wrong, tmp_path / "wrong.yaml").returncode == 1


def executable(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def test_the_script_of_slurm_measures_from_each_node_of_its_job(tmp_path: Path) -> None:
    """Slurm's two commands are replaced by shells that start a step here; the load is real."""
    executable(tmp_path / "srun", SRUN)
    executable(tmp_path / "scontrol", SCONTROL)
    (tmp_path / "unruly").symlink_to(UNRULY)
    script = tmp_path / "measure.sh"
    executable(script, call("hosts", "slurm", "-n", "2").stdout)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "STEPS": str(tmp_path / "steps"),
    }
    with redis_server(tmp_path, "127.0.0.1") as (host, port):
        done = subprocess.run(
            [script, f"redis://{host}:{port}", "-r", "200", "-d", "1s", "-w", "0s", "-o", "out"],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=tmp_path,
            env=environment,
        )
    # A busy machine spoils a run, which is exit code 1.
    assert done.returncode in (0, 1), done.stderr
    run = Measured(tmp_path / "out")
    ok = "select process, count(*) from requests where status = 'ok' group by 1"
    assert set(dict(run.rows(ok))) == {"drive-0", "drive-1"}
    steps = (tmp_path / "steps").read_text().split()
    assert {it for it in steps if "nodelist" in it} == {"--nodelist=node1", "--nodelist=node2"}


def test_a_script_of_slurm_ends_when_the_nodes_are_not_known(tmp_path: Path) -> None:
    executable(tmp_path / "scontrol", "#!/bin/sh\nexit 1\n")
    executable(tmp_path / "unruly", "#!/bin/sh\necho measured\n")
    script = tmp_path / "measure.sh"
    executable(script, call("hosts", "slurm").stdout)
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "SLURM_JOB_NODELIST": "node1"}
    words = [script, "redis://192.0.2.1"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=10, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_a_script_of_slurm_without_a_target_says_how_it_is_called(tmp_path: Path) -> None:
    script = tmp_path / "measure.sh"
    executable(script, call("hosts", "slurm").stdout)
    done = subprocess.run(
        [script], capture_output=True, text=True, timeout=10, check=False, env={"PATH": "/bin"}
    )
    assert done.returncode == 1
    assert "usage: sbatch measure.sh URL OPTION..." in done.stderr


def children(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_first_process_of_a_container_reaps_orphans_and_ends_by_a_signal(
    tmp_path: Path,
) -> None:
    need_root("a namespace of processes")
    os.mkfifo(tmp_path / "end")
    words = ["unshare", "--pid", "--fork", "--kill-child", UNRULY, "host", "--idle"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as outside:
        try:
            wait_for(lambda: children(outside.pid), "the first process")
            (first,) = children(outside.pid)
            command = Path(f"/proc/{first}/cmdline")
            wait_for(lambda: b"--idle" in command.read_bytes(), "its program")
            # The shell ends before its child, which the first process takes over.
            enter = ["nsenter", "--target", str(first), "--pid"]
            subprocess.run([*enter, "sh", "-c", f"cat {tmp_path}/end &"], check=True, timeout=10)
            wait_for(lambda: children(first), "an orphan")
            (tmp_path / "end").open("w").close()
            wait_for(lambda: not children(first), "its end")
            assert outside.poll() is None
            os.kill(first, signal.SIGTERM)
            assert outside.wait(timeout=10) == 0
        finally:
            outside.kill()
