"""The programs of another architecture, which an emulator runs: they measure, serve and keep."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis_house import free_port
from release_house import MACHINE, REPOSITORY, release_file

EMULATE = Path(__file__).with_name("emulate.sh")
PACKAGE = "qemu-user-static"
HOST = "127.61.0.2"
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}
TRIAL = ["run", "echo", "-d", "1s", "-w", "0s", "--set", "drive.transport=tcp", "-q", "-o", "run"]


@dataclass(frozen=True)
class Emulated:
    """The unpacked tarball of the other architecture."""

    folder: Path
    emulator: Path
    architecture: str

    def words(self, program: str, *more: str) -> list[str | Path]:
        """Return the command that runs a program with the emulator."""
        machine = str(MACHINE[self.architecture])
        return [EMULATE, self.emulator, machine, self.folder / "bin" / program, *more]

    def call(self, program: str, *more: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            self.words(program, *more), capture_output=True, text=True, timeout=300, check=False,
            cwd=cwd,
        )  # fmt: skip


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """The programs that this host cannot run by itself."""
    architecture = OTHER[platform.machine()]
    file = release_file(f"unruly-*-{architecture}-linux.tar.gz")
    subprocess.run([REPOSITORY / "scripts" / "package.sh", PACKAGE], check=True, timeout=300)
    folder = tmp_path_factory.mktemp("emulated")
    subprocess.run(["tar", "-xzf", file, "-C", folder], check=True)
    (inside,) = folder.iterdir()
    place = REPOSITORY / ".cache" / "packages" / PACKAGE / "usr" / "bin"
    return Emulated(inside, place / f"qemu-{architecture}-static", architecture)


def test_a_program_of_another_architecture_measures_what_the_analysis_here_reads(
    emulated: Emulated, tmp_path: Path
) -> None:
    done = emulated.call("unruly", *TRIAL, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "run\n"), done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    answered = manifest["counts"]["requests"]["answered"]
    assert answered > 100
    words = [sys.executable, "-m", "unruly", "verdict", "run", "--json"]
    read = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    # An emulator is slow, so the run may be spoiled.
    assert read.returncode in (0, 1), read.stderr
    summary = json.loads(read.stdout)
    assert summary["conservation"]["checked"]
    cells = [cell for cell in summary["cells"] if cell["op"] == "echo"]
    assert [cell["n"] for cell in cells if cell["latency"] == "response"] == [answered]


def test_flurry_of_another_architecture_keeps_a_value(emulated: Emulated, tmp_path: Path) -> None:
    place = ["--controller", f"{HOST}:{free_port(HOST)}"]
    with subprocess.Popen(
        emulated.words("flurry", "serve", *place), stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as serving:
        try:
            assert serving.stdout is not None
            assert any(line == "ready\n" for line in serving.stdout)
            kept = emulated.call("flurry", "set", "greeting", "hello", *place, cwd=tmp_path)
            assert kept.returncode == 0, kept.stderr
            found = emulated.call("flurry", "get", "greeting", *place, cwd=tmp_path)
            assert found.stdout == "hello\n"
        finally:
            serving.terminate()
