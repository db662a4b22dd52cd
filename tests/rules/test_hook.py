"""The hook refuses a commit by its staged content, and `make hook` switches it on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

FORMATTED = '"""A module."""\n\nONE = 1\n'
# In two pieces, so that this file has no such phrase.
BANNED = "The reader is " + "told."


def git(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git without the variables that it gives to a hook, which may run these tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", "-c", "user.name=Tester", "-c", "user.email=tester@example.org", *words],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
        env=clean,
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository with the files of the hook, which are those of this checkout."""
    clone = tmp_path_factory.mktemp("hook") / "clone"
    for name in ("scripts/hooks", "tests/rules"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "rustfmt.toml", "rust-toolchain.toml", ".gitignore"):
        shutil.copy(ROOT / name, clone / name)
    (clone / ".venv").symlink_to(sys.prefix)
    (clone / "old.md").write_text(f"# Old\n\n{BANNED}\n")
    assert git(clone, "init", "--quiet").returncode == 0
    assert git(clone, "add", ".").returncode == 0
    assert git(clone, "commit", "--quiet", "-m", "first").returncode == 0
    assert git(clone, "config", "core.hooksPath", "scripts/hooks").returncode == 0
    return clone


@pytest.fixture
def clone(original: Path) -> Path:
    """The repository without the changes of another test."""
    git(original, "reset", "--quiet", "--hard", "HEAD")
    git(original, "clean", "--quiet", "-d", "--force")
    return original


def commit(clone: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    """Stage one file and try to commit it."""
    (clone / name).write_text(text)
    assert git(clone, "add", name).returncode == 0
    return git(clone, "commit", "-m", "a change")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.py", '"""A module."""\nONE=1\n', "a.py: not formatted"),
        ("a.py", f"{FORMATTED}\nimport os\n", "a.py: lints"),
        ("a.rs", "fn  main() {}\n", "a.rs: not formatted"),
        ("a.md", f"# A\n\n{BANNED}\n", ".: 1 more banned phrases"),
        ("old.md", "# Old\n", ".: 1 fewer banned phrases"),
    ],
)
def test_a_bad_file_is_refused(clone: Path, name: str, text: str, complaint: str) -> None:
    head = git(clone, "rev-parse", "HEAD").stdout
    done = commit(clone, name, text)
    assert done.returncode == 1
    assert f"pre-commit: {complaint}" in done.stderr
    assert git(clone, "rev-parse", "HEAD").stdout == head


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("b.py", FORMATTED),
        ("b.rs", "mod elsewhere;\n\nfn main() {}\n"),
        ("b.md", "# B\n\nThe test reads it.\n"),
        ("b.bin", "a\0b"),
    ],
)
def test_a_good_file_is_committed(clone: Path, name: str, text: str) -> None:
    done = commit(clone, name, text)
    assert done.returncode == 0, done.stderr
    assert name in git(clone, "show", "--name-only", "HEAD").stdout


def test_the_staged_content_counts_and_not_the_file_beside_it(clone: Path) -> None:
    (clone / "c.py").write_text('"""A module."""\nONE=1\n')
    assert git(clone, "add", "c.py").returncode == 0
    (clone / "c.py").write_text(FORMATTED)
    assert git(clone, "commit", "-m", "a change").returncode == 1
    assert commit(clone, "c.py", FORMATTED).returncode == 0


def test_without_an_environment_the_hook_says_how_to_get_one(clone: Path) -> None:
    (clone / ".venv").rename(clone / ".venv-elsewhere")
    try:
        done = commit(clone, "d.md", "# D\n")
    finally:
        (clone / ".venv-elsewhere").rename(clone / ".venv")
    assert done.returncode == 1
    assert "hint: make setup" in done.stderr


def test_make_hook_switches_it_on_and_setup_offers_it(clone: Path) -> None:
    assert git(clone, "config", "--unset", "core.hooksPath").returncode == 0
    subprocess.run(["make", "--assume-old=setup", "hook"], cwd=clone, check=True)
    assert git(clone, "config", "core.hooksPath").stdout == "scripts/hooks\n"
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("$(VENV)/.installed: ")[2].partition("\n\n")[0]
    assert "`make hook\\`" in recipe
