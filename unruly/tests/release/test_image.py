"""The image is loaded and run by podman, which knows nothing of this checkout."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from house import need_root
from release_house import REPOSITORY, release_file

SCRIPT = Path(__file__).with_name("podman.sh")


@pytest.fixture(scope="module")
def image() -> Path:
    """The image for this host."""
    need_root("podman in a namespace of its own")
    # Fetched here: the namespace has no network.
    for package in ("podman", "catatonit"):
        words = [REPOSITORY / "scripts" / "package.sh", package]
        subprocess.run(words, check=True, timeout=300)
    return release_file("unruly-*-{architecture}-image.tar")


def podman(image: Path, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Load an image and run it once; its volume is a folder."""
    return subprocess.run(
        ["unshare", "--mount", "--net", SCRIPT, REPOSITORY, image, folder, *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_image_runs_the_program(image: Path, tmp_path: Path) -> None:
    done = podman(image, tmp_path, "--version")
    version = image.name.split("-")[1]
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"unruly {version}\n"


def test_the_image_measures_into_a_volume(image: Path, tmp_path: Path) -> None:
    words = ["run", "echo", "-d", "1s", "-w", "0s", "--set", "drive.transport=tcp", "-q", "-o", "r"]
    done = podman(image, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "manifest.json").is_file()


POD = """
import sys
import yaml
(spec,) = [it["spec"] for it in yaml.safe_load_all(sys.stdin) if it["kind"] == "StatefulSet"]
pod = {"apiVersion": "v1", "kind": "Pod", **spec["template"]}
pod["metadata"]["name"] = "unruly-0"
del pod["spec"]["topologySpreadConstraints"]
print(yaml.safe_dump(pod))
"""
"""The first Pod of the set, without what places it: podman has one node."""

LOAD = """
set -eu
redis-server --port 7077 --save "" --daemonize yes >/dev/null
trap 'redis-cli -p 7077 shutdown nosave' EXIT
until redis-cli -p 7077 ping >/dev/null 2>&1; do sleep 0.05; done
code=0
"$1" drive redis://127.0.0.1:7077 -r 200 -d 1s -w 0s -q -o "$2" \
  --from "command:podman exec -i unruly-0-unruly" || code=$?
# A busy machine spoils a run, which is exit code 1.
[ $code -le 1 ]
redis-cli -p 7077 info stats >&2
"""


def test_a_pod_of_the_manifest_is_a_host_that_a_run_sends_load_from(
    image: Path, unpacked: Path, tmp_path: Path
) -> None:
    program = unpacked / "bin" / "unruly"
    tag = image.name.split("-")[1]
    words = [program, "hosts", "kubernetes", "--image", f"localhost/unruly:{tag}"]
    manifest = subprocess.run(words, capture_output=True, check=True).stdout
    python = REPOSITORY / "target" / "kubernetes" / "bin" / "python"
    pod = subprocess.run([python, "-c", POD], input=manifest, capture_output=True, check=True)
    file = tmp_path / "pod.yaml"
    file.write_bytes(pod.stdout)
    run = tmp_path / "run"
    done = podman(image, tmp_path, "--pod", file, "bash", "-c", LOAD, "load", program, run)
    assert done.returncode == 0, done.stderr
    wanted = json.loads((run / "manifest.json").read_text())
    assert wanted["hosts"][1]["name"] == "host-1"
    assert wanted["counts"]["copies"]["scheduled"] == 200
    # Redis counts the requests that came.
    found = re.search(r"total_commands_processed:(\d+)", done.stderr)
    assert found
    assert int(found[1]) >= 200
