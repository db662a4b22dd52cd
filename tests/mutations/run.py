"""Break one promise at a time and see that its test goes red.

``python tests/mutations/run.py`` takes three of the patches beside it, chosen by the commit;
``--all`` takes all, and names take those. A patch says in its first lines which promise it breaks
and which command must then fail. The work is done in a copy of the tree under ``target/``: its
crates are other packages to cargo, so that they share the built dependencies and nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHOSEN = 3
SECONDS_MAX = 900
PYTEST_FAILED = 1
CARGO_TEST_FAILED = 101


@dataclass(frozen=True)
class Mutation:
    """A patch, the promise that it breaks, and the command that must notice."""

    path: Path
    promise: str
    red: str

    @property
    def is_rust(self) -> bool:
        """Whether the command is one of cargo's."""
        return self.red.startswith("cargo test ")


class BrokenMutationError(Exception):
    """A patch that proves nothing: it does not apply or compile, or its test is red anyway."""


def read(path: Path) -> Mutation:
    """Read the two lines that a patch begins with.

    Raises
    ------
    BrokenMutationError
        When one of them is missing.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    said = {}
    for line in lines[:2]:
        name, _, value = line.removeprefix("# ").partition(": ")
        said[name] = value
    if not (said.get("promise") and said.get("red")):
        raise BrokenMutationError(f"{path.name}: wanted '# promise: ...' and '# red: ...' first")
    return Mutation(path, said["promise"], said["red"])


def everything() -> list[Mutation]:
    """All patches, by name."""
    return [read(path) for path in sorted(HERE.glob("*.patch"))]


def chosen_by(commit: str, mutations: list[Mutation]) -> list[Mutation]:
    """Three patches that the commit decides: over many commits all have their turn."""

    def turn(mutation: Mutation) -> str:
        return hashlib.sha256(f"{commit} {mutation.path.name}".encode()).hexdigest()

    return sorted(mutations, key=turn)[:CHOSEN]


def copy_of_the_tree(place: Path) -> None:
    """Copy what is under version control, as it stands in the work tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    there = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    names = "\0".join(there).encode()
    copied = subprocess.Popen(
        ["tar", "-c", "--null", "-T", "-"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    # Touched: cargo goes by the time of a file, and the last mutation was built from a newer one.
    unpacked = subprocess.Popen(["tar", "-x", "-m"], cwd=place, stdin=copied.stdout)
    assert copied.stdin is not None
    copied.stdin.write(names)
    copied.stdin.close()
    if copied.wait() or unpacked.wait():
        raise BrokenMutationError("the tree could not be copied")
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)


def environment(place: Path) -> dict[str, str]:
    """The copy's Python package goes before the installed one; cargo builds beside our target."""
    shared = str(ROOT.parent / "shared" / "data")
    return os.environ | {
        "PYTHONPATH": str(place / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CARGO_TARGET_DIR": str(ROOT / "target"),
        "UNRULY_SHARED_DATA": os.environ.get("UNRULY_SHARED_DATA", shared),
    }


def run(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a patch in the copy."""
    words = command.split()
    if words[0] == "pytest":
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words[1:]]
    return subprocess.run(
        words, cwd=place, env=environment(place), capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
    )  # fmt: skip


def compiles(mutation: Mutation, place: Path) -> None:
    """A mutation that does not compile proves nothing about tests."""
    if mutation.is_rust:
        crate = mutation.red.split(" -- ")[0]
        built = run(f"{crate} --no-run", place)
        if built.returncode != 0:
            raise BrokenMutationError(f"{mutation.path.name}: does not compile\n{built.stderr}")


def survives(mutation: Mutation, place: Path) -> bool:
    """Apply a patch to the copy, run its test, and take the patch back.

    Raises
    ------
    BrokenMutationError
        When the test is red without the patch, or the patch does not apply or compile.
    """
    before = run(mutation.red, place)
    if before.returncode != 0:
        said = before.stdout + before.stderr
        raise BrokenMutationError(f"{mutation.path.name}: its test is red anyway\n{said}")
    applied = ["git", "apply", str(mutation.path)]
    done = subprocess.run(applied, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokenMutationError(f"{mutation.path.name}: does not apply; {done.stderr.strip()}")
    try:
        compiles(mutation, place)
        code = run(mutation.red, place).returncode
    finally:
        subprocess.run([*applied, "--reverse"], cwd=place, check=True)
    wanted = CARGO_TEST_FAILED if mutation.is_rust else PYTEST_FAILED
    if code not in (0, wanted):
        raise BrokenMutationError(f"{mutation.path.name}: ended with {code}, no failed test")
    return code == 0


def main() -> int:
    """Say for each mutation whether it was noticed; 1 when one was not, 2 when one is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="patches without their ending")
    parser.add_argument("--all", action="store_true", help="take all of them")
    given = parser.parse_args()
    mutations = everything()
    if given.names:
        mutations = [it for it in mutations if it.path.stem in given.names]
    elif not given.all:
        head = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        mutations = chosen_by(commit.strip(), mutations)
    if not mutations:
        sys.stderr.write("mutations: none of that name; wanted names of *.patch here\n")
        return 2
    alive = 0
    place = ROOT / "target" / "mutations"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    copy_of_the_tree(place)
    for mutation in mutations:
        try:
            survived = survives(mutation, place)
        except BrokenMutationError as error:
            sys.stderr.write(f"mutations: {error}\n")
            return 2
        alive += survived
        word = "SURVIVED" if survived else "noticed "
        sys.stdout.write(f"{word} {mutation.path.stem}: {mutation.promise}\n")
        sys.stdout.flush()
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
