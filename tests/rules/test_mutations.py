"""The mutations are in order before they run: what each says, what it touches, that it applies."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from repository import ROOT

PLACE = ROOT / "tests" / "mutations"
PATCHES = sorted(PLACE.glob("*.patch"))
BROKEN_FILE = re.compile(r"^\+\+\+ b/(.+)$", re.MULTILINE)
PRODUCT = re.compile(
    r"^(((?:unruly|flurry)/crates/[\w-]+|common/time)/src/.+\.rs|unruly/python/unruly/.+\.py)$"
)
NARROW = re.compile(
    r"^(cargo test -q --locked -p (unruly|flurry)(-\w+)? (--lib|--test \w+) \w+"
    r"|pytest unruly/python/tests/[\w/]+\.py -k \w+)$"
)


def runner() -> ModuleType:
    """The runner, which is a program and in no package."""
    spec = importlib.util.spec_from_file_location("mutations_run", PLACE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RUNNER = runner()


def broken_files(patch: Path) -> list[str]:
    return BROKEN_FILE.findall(patch.read_text(encoding="utf-8"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutation_names_its_promise_and_a_narrow_command(patch: Path) -> None:
    mutation = RUNNER.read(patch)
    assert mutation.promise
    assert NARROW.match(mutation.red), mutation.red


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutation_applies_to_this_tree_and_breaks_the_product_only(patch: Path) -> None:
    (file,) = broken_files(patch)
    assert PRODUCT.match(file), f"{file} is no code of the product"
    words = ["git", "apply", "--check", str(patch)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_room_of_the_product_is_without_a_mutation() -> None:
    files = {file for patch in PATCHES for file in broken_files(patch)}
    rooms = {found.group(2) or "python" for file in files if (found := PRODUCT.match(file))}
    # The simulation is a test itself, with its own mutations: the planted bugs.
    crates = {str(path.relative_to(ROOT)) for path in ROOT.glob("*/crates/*")}
    shipped = crates - {"flurry/crates/sim"}
    assert rooms == shipped | {"common/time", "python"}


def test_two_mutations_do_not_break_the_same_promise() -> None:
    promises = [RUNNER.read(patch).promise for patch in PATCHES]
    assert len(PATCHES) >= 12
    assert len(set(promises)) == len(promises)


def test_a_commit_always_chooses_the_same_three_and_every_mutation_has_its_turn() -> None:
    everything = RUNNER.everything()
    chosen = [RUNNER.chosen_by(f"{number:040x}", everything) for number in range(2_000)]
    assert all(len(three) == RUNNER.CHOSEN for three in chosen)
    assert chosen[7] == RUNNER.chosen_by(f"{7:040x}", everything[::-1])
    assert {mutation.path for three in chosen for mutation in three} == set(PATCHES)


def test_every_mutation_has_its_turn_on_exactly_one_day_of_a_week() -> None:
    everything = RUNNER.everything()
    for monday in (date(2026, 11, 23), date(2026, 12, 30)):
        days = [RUNNER.seventh(monday + timedelta(days=day), everything) for day in range(7)]
        turns = [mutation.path for day in days for mutation in day]
        assert sorted(turns) == PATCHES
        # A day without any would make another one long.
        assert all(len(everything) / 14 < len(day) < len(everything) / 4 for day in days)
    assert RUNNER.seventh(monday, everything[::2]) == [
        mutation for mutation in days[0] if mutation in everything[::2]
    ], "a new patch must not move the others to another day"


def test_a_name_that_is_no_mutation_is_refused() -> None:
    everything = RUNNER.everything()
    first = everything[0].path.stem
    assert RUNNER.named([first], everything) == everything[:1]
    with pytest.raises(RUNNER.BrokenMutationError, match="no such-a-promise"):
        RUNNER.named([first, "such-a-promise"], everything)


def test_a_patch_without_its_two_lines_is_refused(tmp_path: Path) -> None:
    patch = tmp_path / "silent.patch"
    patch.write_text("# promise: something\n--- a/x\n+++ b/x\n")
    with pytest.raises(RUNNER.BrokenMutationError, match=r"silent\.patch: wanted '# promise"):
        RUNNER.read(patch)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a module and a test of it that passes."""
    (tmp_path / "sums.py").write_text("def double(n):\n    return 2 * n\n")
    (tmp_path / "test_sums.py").write_text(
        "from sums import double\n\n\ndef test_twice():\n    assert double(3) == 6\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def patch_of(folder: Path, line: str, red: str = "pytest test_sums.py -k twice") -> Path:
    path = folder / "made.patch"
    path.write_text(
        f"# promise: twice is double\n# red: {red}\n--- a/sums.py\n+++ b/sums.py\n"
        f"@@ -1,2 +1,2 @@\n def double(n):\n-    return 2 * n\n+    {line}\n"
    )
    return path


def judged(tree: Path, patch: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    # The tree of this test is a repository of its own, whose module is found beside its test.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    whole = RUNNER.environment(tree)
    monkeypatch.setattr(RUNNER, "environment", lambda _place: whole | {"PYTHONPATH": str(tree)})
    return bool(RUNNER.survives(RUNNER.read(patch), tree))


def test_a_broken_promise_is_noticed_and_the_tree_is_whole_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tree / "sums.py").read_text()
    assert not judged(tree, patch_of(tree, "return 3 * n"), monkeypatch)
    assert (tree / "sums.py").read_text() == before
    assert list(tree.rglob("sums.*.pyc")) == [], "a later mutation could run the code of this one"


def test_a_mutation_that_changes_nothing_survives(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(tree, patch_of(tree, "return n + n"), monkeypatch)


@pytest.mark.parametrize(
    ("line", "red", "words"),
    [
        ("return (", "pytest test_sums.py -k twice", "no failed test"),
        ("return 3 * n", "pytest test_sums.py -k thrice", "red anyway"),
        ("return 3 * n", "pytest test_nothing.py -k twice", "red anyway"),
    ],
    ids=["does-not-parse", "matches-no-test", "no-such-file"],
)
def test_a_mutation_that_proves_nothing_is_an_error_and_not_noticed(
    tree: Path, monkeypatch: pytest.MonkeyPatch, line: str, red: str, words: str
) -> None:
    with pytest.raises(RUNNER.BrokenMutationError, match=words):
        judged(tree, patch_of(tree, line, red), monkeypatch)


def test_a_test_that_was_skipped_proves_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tree / "test_sums.py"
    test.write_text(test.read_text().replace("assert", "__import__('pytest').skip('no'); assert"))
    with pytest.raises(RUNNER.BrokenMutationError, match="its test did not run"):
        judged(tree, patch_of(tree, "return 3 * n"), monkeypatch)


def test_a_command_that_does_not_end_is_ended_and_is_an_error(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RUNNER, "SECONDS_MAX", 0.1)
    with pytest.raises(RUNNER.BrokenMutationError, match=r"did not end in 0\.1 s"):
        RUNNER.run("sleep 60", tree)
