"""The wheel gives a program and its analysis to an environment that has nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from release_house import DIST, REPOSITORY, release_file

WHEELS = ("unruly-*_{architecture}.whl", "unruly_flurry-*_{architecture}.whl")
LIMITS = '[[limit]]\nstatistic = "p50"\nat_most = "1min"\n'


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel."""

    bin: Path
    home: Path

    def call(self, program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, as a user does who has activated it."""
        return subprocess.run(
            [self.bin / program, *words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=self.home,
            env={"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"},
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment outside the checkout, with both wheels and what pip brings for them."""
    folder = tmp_path_factory.mktemp("environment")
    assert not folder.is_relative_to(REPOSITORY)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    wheels = [release_file(it) for it in WHEELS]
    began = time.monotonic()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", *wheels]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=clean, cwd=folder)
    assert done.returncode == 0, done.stderr
    sys.stdout.write(f"pip install took {time.monotonic() - began:.0f} s\n")
    home = folder / "home"
    home.mkdir()
    return Installed(folder / "venv" / "bin", home)


class Hello(BaseHTTPRequestHandler):
    """A service that answers at once."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The address of a service on this host."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hello"
        server.shutdown()


def test_self_check_finds_every_part(installed: Installed) -> None:
    done = installed.call("unruly", "self", "check", "--json")
    answer = json.loads(done.stdout)
    found = {part["name"]: part for part in answer["parts"]}
    # a sandbox may keep the time stamps of the kernel from us
    assert {name for name, it in found.items() if not it["works"]} <= {"kernel"}, done.stdout
    assert str(installed.bin) in found["analysis"]["found"]
    assert str(installed.bin / "unruly") in found["program"]["found"]
    assert done.returncode == (0 if answer["works"] else 1)


def test_it_measures_reports_and_gates(installed: Installed, service: str) -> None:
    words = ["drive", service, "-c", "2", "-r", "100", "-d", "4s", "-w", "1s", "-o", "run"]
    done = installed.call("unruly", *words)
    # a busy machine spoils the run, which is a finding
    assert done.returncode in (0, 1), done.stderr
    assert "worked: yes" in done.stdout, done.stdout
    run = installed.home / "run"
    assert "</html>" in (run / "report.html").read_text()
    limits = installed.home / "limits.toml"
    limits.write_text(LIMITS)
    said = installed.call("unruly", "gate", "run", limits, "--json")
    answer = json.loads(said.stdout)
    assert [it["statistic"] for it in answer["limits"]][-1] == "p50"
    assert said.returncode == (0 if answer["trustworthy"] else 1) or said.returncode == 3
    page = installed.call("unruly", "report", "run", "-o", "again.html")
    assert page.returncode == 0, page.stderr
    assert (installed.home / "again.html").stat().st_size > 100_000


def test_a_notebook_reads_the_run(installed: Installed, service: str) -> None:
    words = ["drive", service, "-c", "1", "-r", "50", "-d", "2s", "-w", "0s", "-q", "-o", "mine"]
    assert installed.call("unruly", *words).returncode in (0, 1)
    code = "import unruly; print(*unruly.analyse(unruly.open_run('mine')).operations)"
    assert installed.call("python", "-c", code).stdout.split()


def test_flurry_comes_by_its_other_name(installed: Installed) -> None:
    assert installed.call("flurry", "--version").stdout.startswith("flurry ")
    listed = installed.call("python", "-m", "pip", "list", "--format", "json").stdout
    versions = {it["name"]: it["version"] for it in json.loads(listed)}
    assert versions["unruly"] == versions["unruly-flurry"]
    assert versions["unruly"] in release_file("unruly-*.cdx.json").name
    assert DIST.is_dir()
