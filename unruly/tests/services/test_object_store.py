"""Runs in an object store are listed as on a disk: the S3 of one Garage node.

The first time, Garage is built from its source, which takes many minutes.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from house import call, wait_for
from pyarrow import fs
from redis_house import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

HERE = "127.0.0.1"
KEY = "GK757575757575757575757575"
SECRET = "5e" * 32
NIGHT_NS = 86_400 * 10**9
FIRST_NS = 20_000 * NIGHT_NS
RUNS = 12
"""Enough for a history to look for a change."""


def garage_program() -> Path:
    """Build Garage where it is not there yet."""
    said = call("services", "install", "garage", timeout=5400)
    assert said.returncode == 0, said.stderr
    (found,) = (Path.home() / ".cache" / "unruly").glob("**/bin/garage")
    return found


@contextmanager
def store(folder: Path) -> Iterator[str]:
    """Run a node with one bucket; yield what an address of its S3 has behind the question mark."""
    program = garage_program()
    s3, rpc = free_port(HERE), free_port(HERE)
    config = folder / "garage.toml"
    config.write_text(
        f'metadata_dir = "{folder}/meta"\ndata_dir = "{folder}/data"\ndb_engine = "lmdb"\n'
        f'replication_factor = 1\nrpc_bind_addr = "127.0.0.1:{rpc}"\nrpc_secret = "{"a7" * 32}"\n'
        f'[s3_api]\ns3_region = "garage"\napi_bind_addr = "127.0.0.1:{s3}"\n'
    )

    def garage(*words: str) -> str:
        command = [program, "-c", config, *words]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert said.returncode == 0, said.stderr
        return said.stdout

    with (folder / "log").open("wb") as log:
        node = subprocess.Popen([program, "-c", config, "server"], stdout=log, stderr=log)
        try:
            wait_for(lambda: _answers(program, config), "the node")
            number = garage("node", "id", "-q").partition("@")[0].strip()
            garage("layout", "assign", "-z", "zone", "-c", "1G", number)
            garage("layout", "apply", "--version", "1")
            garage("key", "import", "--yes", "-n", "unruly", KEY, SECRET)
            garage("bucket", "create", "runs")
            garage("bucket", "allow", "--read", "--write", "--owner", "runs", "--key", KEY)
            yield f"endpoint_override=127.0.0.1:{s3}&scheme=http&region=garage"
        finally:
            node.terminate()
            node.wait(30)


def _answers(program: Path, config: Path) -> bool:
    command = [program, "-c", config, "status"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def write_runs(folder: Path) -> None:
    """Write what listings read of a run each night; from the eighth on it is twice as slow."""
    for night in range(RUNS):
        run = folder / f"night-{night:02}"
        run.mkdir(parents=True)
        manifest = {
            "run": run.name, "name": "store", "tag": "", "status": "complete",
            "started_ns": FIRST_NS + night * NIGHT_NS, "hosts": [{"cpu_model": "x", "cores": 2}],
        }  # fmt: skip
        level = (1e6 if night < 7 else 2e6) * (1 + night % 3 / 100)
        bounds = {"estimate": level, "low": 0.9 * level, "high": 1.1 * level}
        step = {"name": "p99", "estimate": level, "interval": bounds, "promise": bounds}
        cell = {
            "cell": "all", "op": "read", "latency": "response", "unit": "ns",
            "ladder": {"steps": [step]},
        }  # fmt: skip
        summary = {
            "status": "complete", "measured_ns": 60e9, "trustworthy": True,
            "worked": {"requests": 1_000, "failed": 0}, "cells": [cell],
        }  # fmt: skip
        for name, content in (("manifest", manifest), ("summary", summary)):
            (run / f"{name}.json").write_text(json.dumps(content))


def test_runs_and_history_of_a_bucket_are_those_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    nightly = tmp_path / "nightly"
    write_runs(nightly)
    with store(tmp_path) as options:
        bucket, path = fs.FileSystem.from_uri(f"s3://runs/nightly?{options}")
        fs.copy_files(str(nightly), path, destination_filesystem=bucket)
        for verb, rows in (("runs", "runs"), ("history", "series")):
            stored = call(verb, f"s3://runs/nightly?{options}", "--json", timeout=120)
            assert stored.returncode == 0, stored.stderr
            on_disk = call(verb, str(nightly), "--json", timeout=120)
            there = stored.stdout.replace("s3://runs/nightly/", "")
            here = on_disk.stdout.replace(f"{nightly}/", "")
            assert json.loads(there) == json.loads(here)
            assert json.loads(there)[rows]
        (series,) = json.loads(there)["series"]
        assert len(series["points"]) == RUNS
        assert [it["block"] for it in series["changes"]] == [7]
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "00" * 32)
        refused = call("runs", f"s3://runs/nightly?{options}", timeout=120)
        assert refused.returncode == 2
        assert "s3://runs/nightly cannot be read" in refused.stderr
        assert "check the address, and the credentials" in refused.stderr
