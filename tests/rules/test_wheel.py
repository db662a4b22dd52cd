"""The wheel holds every file of the Python package, and no test."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from repository import ROOT, tracked

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


def built(place: Path) -> set[str]:
    """Build the wheel with an empty program, and return the names of its files."""
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
    (wheel,) = (place / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package_and_no_test(tmp_path: Path) -> None:
    files = {f"unruly/{path.relative_to(PACKAGE)}" for path in tracked("unruly/python/unruly")}
    assert {"unruly/stats/dips.npz", "unruly/html/template.html", "unruly/py.typed"} <= files
    names = built(tmp_path)
    assert files - names == set()
    assert not [name for name in names if "tests/" in name or "/test_" in name]
