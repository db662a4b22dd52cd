"""Break one promise at a time and see that its test goes red.

``python tests/mutations/run.py`` takes three of the patches beside it, chosen by the commit;
``--today`` takes a seventh, chosen by the date, so that seven days take each of them once;
``--all`` takes all, and names take those. A patch says in its first lines which promise it breaks
and which command must then fail. The work is done in a copy of the tree under ``target/``, with the
built dependencies of the tree itself.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHOSEN = 3
DAYS = 7
SECONDS_MAX = 900
PROFILE = "checked"
"""The profile of the other tests: its compiled dependencies are used again."""
PYTEST_FAILED = 1
CARGO_TEST_FAILED = 101
PASSED = re.compile(r"\b[1-9]\d* passed\b")


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


def chosen_by(which: str, mutations: list[Mutation]) -> list[Mutation]:
    """Three patches that the commit decides: over many commits all have their turn."""

    def turn(mutation: Mutation) -> str:
        return hashlib.sha256(f"{which} {mutation.path.name}".encode()).hexdigest()

    return sorted(mutations, key=turn)[:CHOSEN]


def seventh(day: date, mutations: list[Mutation]) -> list[Mutation]:
    """The patches whose turn is this day. A new patch does not move the others."""

    def turn(mutation: Mutation) -> int:
        return int(hashlib.sha256(mutation.path.name.encode()).hexdigest(), 16) % DAYS

    return [it for it in mutations if turn(it) == day.toordinal() % DAYS]


def named(names: list[str], mutations: list[Mutation]) -> list[Mutation]:
    """The patches of these names.

    Raises
    ------
    BrokenMutationError
        When there is none of a name: a promise that was misspelt must not pass for one that held.
    """
    by_name = {mutation.path.stem: mutation for mutation in mutations}
    if unknown := [name for name in names if name not in by_name]:
        raise BrokenMutationError(
            f"no {', '.join(unknown)}; wanted names of *.patch in {HERE.name}/"
        )
    return [by_name[name] for name in names]


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Wait until nobody else uses the place: a copy that vanishes would look like a red test."""
    place.parent.mkdir(exist_ok=True)
    with place.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def copy_of_the_tree(place: Path) -> None:
    """Copy the files under version control, as they stand in the work tree."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
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


def forget_builds() -> None:
    """Have cargo build the tree's crates anew: what it has of them now was built from the copy."""
    for manifest in ROOT.glob("*/crates/*/Cargo.toml"):
        name = tomllib.loads(manifest.read_text(encoding="utf-8"))["package"]["name"]
        for built in (ROOT / "target" / PROFILE / ".fingerprint").glob(f"{name}-*"):
            shutil.rmtree(built)


def environment(place: Path) -> dict[str, str]:
    """The copy's Python package goes before the installed one; cargo builds beside our target."""
    shared = str(ROOT.parent / "shared" / "data")
    return os.environ | {
        "PYTHONPATH": str(place / "unruly" / "python"),
        # Bytecode goes by second and size: it would outlive a mutation as long as what it replaces.
        "PYTHONDONTWRITEBYTECODE": "1",
        "CARGO_TARGET_DIR": str(ROOT / "target"),
        "UNRULY_SHARED_DATA": os.environ.get("UNRULY_SHARED_DATA", shared),
    }


def run(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a patch in the copy.

    Raises
    ------
    BrokenMutationError
        When it does not end. Its whole group is ended then: cargo would leave the test behind.
    """
    words = command.replace("cargo test ", f"cargo test --profile {PROFILE} ").split()
    if words[0] == "pytest":
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words[1:]]
    with subprocess.Popen(
        words, cwd=place, env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            out, err = child.communicate(timeout=SECONDS_MAX)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                what = f"`{command}` did not end in {SECONDS_MAX} s"
                raise BrokenMutationError(what) from error
            raise
    return subprocess.CompletedProcess(words, child.returncode, out, err)


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
    if not PASSED.search(before.stdout):
        raise BrokenMutationError(f"{mutation.path.name}: its test did not run\n{before.stdout}")
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


def judge(mutations: list[Mutation], place: Path) -> int:
    """Say of each mutation whether it was noticed; 1 when one was not."""
    alive = 0
    for mutation in mutations:
        survived = survives(mutation, place)
        alive += survived
        word = "SURVIVED" if survived else "noticed "
        sys.stdout.write(f"{word} {mutation.path.stem}: {mutation.promise}\n")
        sys.stdout.flush()
    return 1 if alive else 0


def commit() -> str:
    """The commit of the work tree; nothing when it has none."""
    head = ["git", "rev-parse", "HEAD"]
    said = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip()


def main() -> int:
    """Say for each mutation whether it was noticed; 1 when one was not, 2 when one is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="patches without their ending")
    parser.add_argument("--today", action="store_true", help="take the seventh of this day (UTC)")
    parser.add_argument("--all", action="store_true", help="take all of them")
    given = parser.parse_args()
    place = ROOT / "target" / "mutations"
    try:
        mutations = everything()
        if given.names:
            mutations = named(given.names, mutations)
        elif given.today:
            mutations = seventh(datetime.now(UTC).date(), mutations)
        elif not given.all:
            mutations = chosen_by(commit(), mutations)
        with alone(place):
            copy_of_the_tree(place)
            try:
                return judge(mutations, place)
            finally:
                forget_builds()
    except BrokenMutationError as error:
        sys.stderr.write(f"mutations: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
