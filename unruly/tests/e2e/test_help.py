"""Help: what each verb shows is what it accepts, on both sides, and it fits a terminal."""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from house import FLURRY, UNRULY

from unruly.verbs import RUNS
from unruly.verbs.options import Verbs

pytestmark = pytest.mark.smoke

OPTION = re.compile(r"(?:^ {2}(?:-\w, )?| {6})--([a-z][\w-]*)(?: <(\S+)>)?", re.MULTILINE)
"""An option in the help of the program."""
PARSED = re.compile(r"^ {2}(?:-\w(?: [^\s,]+)?, )?--([a-z][\w-]*)(?: ([^\s\]]+))?", re.MULTILINE)
"""An option in the help of a Python verb."""


def said(*words: str, **changes: str) -> tuple[int, str]:
    """Run the program at 80 columns; return its exit code and what it printed."""
    found = subprocess.run(
        [UNRULY, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "80", **changes},
        check=False,
    )
    return found.returncode, found.stdout


def python(*words: str) -> tuple[int, str]:
    """Run a verb of Python without the program, as far as its command line goes."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        try:
            Verbs(RUNS).parse(list(words))
        except SystemExit as end:
            return int(end.code or 0), printed.getvalue()
    return 0, printed.getvalue()


def verbs() -> list[str]:
    """Return the verbs that the program lists."""
    page = said("--help")[1].split("Options:")[0]
    return [name for name in re.findall(r"^ {2}([a-z]+) ", page, re.MULTILINE) if name != "help"]


def options(page: str) -> dict[str, str]:
    """Return the long options that a page of the program shows, with the value that each takes."""
    return dict(OPTION.findall(page))


def test_every_verb_is_listed() -> None:
    assert {*RUNS, "run", "drive", "doctor", "recover", "plans", "services"} < set(verbs())
    assert {"agent", "driver", "held"}.isdisjoint(verbs())


def test_help_is_the_same_however_it_is_asked_for_and_fits_80_columns() -> None:
    for verb in verbs():
        pages = [said(*words) for words in ([verb, "--help"], [verb, "-h"], ["help", verb])]
        assert len(set(pages)) == 1, verb
        code, page = pages[0]
        assert code == 0
        assert re.search(rf"^Examples:\n  .*\bunruly {verb}\b", page, re.MULTILINE), verb
        assert max(map(len, page.splitlines())) <= 80, verb


def test_help_needs_no_python(tmp_path: Path) -> None:
    for verb in verbs():
        assert said(verb, "--help", UNRULY_PYTHON=str(tmp_path / "none"))[0] == 0, verb


@pytest.mark.parametrize("side", [said, python])
def test_an_option_that_help_shows_is_accepted(side: Callable[..., tuple[int, str]]) -> None:
    for verb in verbs() if side is said else RUNS:
        page = said(verb, "--help")[1]
        shown = options(page)
        assert "help" in shown
        for name, value in shown.items():
            words = [f"--{name}", value_of(page, name)] if value else [f"--{name}"]
            assert side(verb, *words, "--help")[0] == 0, (verb, name)


def value_of(page: str, name: str) -> str:
    """Return a value that an option takes: the first possible one, or one of its kind."""
    text = re.split(r"\n +(?:-\w, )?--", page.split(f"--{name} ")[1])[0]
    choices = re.search(r"\[possible\s+values:\s+(\w+)", text)
    kind = re.search(rf"--{name} <(\w+)>", page)
    usual = {"SIZE": "5GB", "ADDRESS": "192.0.2.10"}.get(kind[1] if kind else "", "5")
    return choices[1] if choices else usual


@pytest.mark.parametrize("name", sorted(RUNS))
def test_both_sides_of_a_verb_show_the_same(name: str) -> None:
    ours, theirs = said(name, "--help")[1], python(name, "--help")[1]
    there = theirs.split("options:")[1].split("Exit codes:")[0]
    assert options(ours) == dict(PARSED.findall(there))
    ending = ours[ours.index("Exit codes:") :]
    assert ending.split() == theirs[theirs.index("Exit codes:") :].split()


@pytest.mark.parametrize("name", sorted(RUNS))
def test_both_sides_of_a_verb_refuse_the_same(name: str) -> None:
    for words in ([name, "--no-such-option"], [name, "--no-such-option=1"]):
        assert (said(*words)[0], python(*words)[0]) == (2, 2)
    # these three do something without a word more
    if name not in {"papers", "runs", "history"}:
        assert (said(name)[0], python(name)[0]) == (2, 2)


@pytest.mark.parametrize("program", [UNRULY, FLURRY])
@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_that_cannot_be_written_is_an_error(program: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [program, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "help: cannot be written" in done.stderr
