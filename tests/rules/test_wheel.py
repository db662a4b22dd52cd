"""The wheel holds every file of the Python package, and no test; both ways to make it agree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from repository import ROOT, tracked

from releasing import files, wheel

PACKAGE = ROOT / "unruly" / "python" / "unruly"
STUB = """[package]
name = "unruly"
version = "0.0.0"
edition = "2021"
[[bin]]
name = "unruly"
path = "main.rs"
[workspace]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the wheel that maturin builds with an empty program."""
    place = tmp_path_factory.mktemp("maturin")
    names = ["pyproject.toml", ".gitignore", "LICENSE", "THIRD-PARTY.txt", "README.md"]
    for path in (*(ROOT / it for it in names), *tracked("unruly/python")):
        copy = place / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    crate = place / "unruly" / "crates" / "cli"
    crate.mkdir(parents=True)
    (crate / "Cargo.toml").write_text(STUB)
    (crate / "main.rs").write_text("fn main() {}\n")
    # The files that git ignores are left out only in a repository.
    subprocess.run(["git", "init", "--quiet"], cwd=place, check=True)
    words = [sys.executable, "-m", "maturin", "build", "--offline", "--out", "wheels"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = (place / "wheels").glob("*.whl")
    return inside(path)


def inside(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel by their names."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_file_of_the_package_and_no_test(built: dict[str, bytes]) -> None:
    expected = {f"unruly/{path.relative_to(PACKAGE)}" for path in tracked("unruly/python/unruly")}
    assert {"unruly/stats/dips.npz", "unruly/html/template.html", "unruly/py.typed"} <= expected
    assert expected - built.keys() == set()
    assert not [name for name in built if "tests/" in name or "/test_" in name]


def test_the_wheel_of_a_release_has_the_files_and_the_metadata_of_maturin(
    built: dict[str, bytes], tmp_path: Path
) -> None:
    about = wheel.project(ROOT / "pyproject.toml")
    package = {
        f"unruly/{path.relative_to(PACKAGE)}": path.read_bytes()
        for path in tracked("unruly/python/unruly")
    }
    name, data = wheel.wheel(
        about, "0.0.0", "x86_64", package, {"unruly": b"program"}, files.licences()
    )
    (tmp_path / name).write_bytes(data)
    ours = inside(tmp_path / name)
    # maturin writes its own bill of materials beside ours
    theirs = {name for name in built if "/sboms/" not in name}
    assert set(ours) == theirs
    own = "unruly-0.0.0.dist-info/METADATA"
    assert fields(ours[own]) == fields(built[own])


def fields(metadata: bytes) -> dict[str, object]:
    """Return the fields of a wheel's metadata, those of several values in one order."""
    about = Metadata.from_email(metadata)
    lists = ("classifiers", "keywords", "license_files", "provides_extra", "requires_dist")
    one = ("metadata_version", "name", "version", "summary", "requires_python")
    return {
        "license": about.license_expression,
        **{name: getattr(about, name) for name in one},
        **{name: sorted(map(str, getattr(about, name) or [])) for name in lists},
    }
