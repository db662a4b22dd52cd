"""The static programs measure on a host that has nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from house import need_root
from redis_house import free_port

HOST = "127.61.0.1"
HOW_TO_GET_IT = "hint: pip install unruly-"
TRIAL = ["run", "echo", "-d", "1s", "-w", "0s", "--set", "drive.transport=tcp", "-o"]


def alone(program: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program without any variable of the environment."""
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=120, check=False, env={}, cwd=cwd
    )


def test_without_the_analysis_a_run_is_whole_and_the_message_says_how_to_get_it(
    unpacked: Path, tmp_path: Path
) -> None:
    done = alone(unpacked / "bin" / "unruly", *TRIAL, "run", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "analysis: no Python here has the package unruly" in done.stderr
    assert HOW_TO_GET_IT in done.stderr
    assert "measured: run" in done.stdout
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["counts"]["requests"]["answered"] > 900
    quiet = alone(unpacked / "bin" / "unruly", *TRIAL, "quiet", "--quiet", cwd=tmp_path)
    assert (quiet.returncode, quiet.stdout) == (0, "quiet\n"), quiet.stderr


def test_self_check_names_the_part_that_is_missing(unpacked: Path, tmp_path: Path) -> None:
    done = alone(unpacked / "bin" / "unruly", "self", "check", "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    states = {part["name"]: part["works"] for part in answer["parts"]}
    assert done.returncode == 1
    assert {name for name, works in states.items() if not works} - {"kernel"} == {"analysis"}
    assert ", static, " in answer["parts"][0]["found"]


def test_a_stream_that_needs_a_shared_library_is_refused_with_the_reason(
    unpacked: Path, tmp_path: Path
) -> None:
    words = ["run", "throughput-stability", "--set", "stream.protocol=enet", "-o", "run"]
    done = alone(unpacked / "bin" / "unruly", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "enet: this program is static and cannot load libenet.so.7" in done.stderr
    assert not (tmp_path / "run").exists()


def test_flurry_serves_a_cluster_and_keeps_a_value(unpacked: Path, tmp_path: Path) -> None:
    program = unpacked / "bin" / "flurry"
    place = ["--controller", f"{HOST}:{free_port(HOST)}"]
    with subprocess.Popen(
        [program, "serve", *place], stdout=subprocess.PIPE, text=True, env={}, cwd=tmp_path
    ) as serving:
        try:
            assert serving.stdout is not None
            assert any(line == "ready\n" for line in serving.stdout)
            kept = alone(program, "set", "greeting", "hello", *place, cwd=tmp_path)
            assert kept.returncode == 0, kept.stderr
            assert alone(program, "get", "greeting", *place, cwd=tmp_path).stdout == "hello\n"
        finally:
            serving.terminate()


@pytest.fixture
def empty_root(unpacked: Path, tmp_path: Path) -> Path:
    """A root with the programs, and mount points for what the kernel shows; no C library."""
    need_root("an empty root")
    for name in ("proc", "tmp", "bin"):
        (tmp_path / name).mkdir()
    for program in (unpacked / "bin").iterdir():
        shutil.copy(program, tmp_path / "bin")
    return tmp_path


def test_a_root_that_holds_the_program_alone_is_enough(empty_root: Path) -> None:
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/unruly "$@"'
    words = ["unshare", "--mount", "--pid", "--fork", "--net", "sh", "-c"]
    quiet = [*TRIAL, "/tmp/run", "--quiet"]
    loopback = f"ip link set lo up && {script}"
    done = subprocess.run(
        [*words, loopback, empty_root, *quiet],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    manifest = json.loads((empty_root / "tmp" / "run" / "manifest.json").read_text())
    assert manifest["counts"]["requests"]["answered"] > 900
