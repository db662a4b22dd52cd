"""The image is loaded and run by podman, which knows nothing of this checkout."""

from __future__ import annotations

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
    return release_file("unruly-*-{architecture}-image.tar")


def podman(image: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
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
