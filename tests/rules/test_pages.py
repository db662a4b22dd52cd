"""The generated pages are those that `make pages` writes."""

from __future__ import annotations

from pathlib import Path

import finding_pages
import pytest
from bench import command
from repository import ROOT

import pages
from unruly.base.rule import Rule
from unruly.topics.rules import RULES

TEXTS = pages.texts()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == TEXTS[path], "run `make pages`"


def test_every_program_that_generates_a_page_is_asked() -> None:
    programs = {path.with_suffix(".md") for path in (ROOT / "unruly" / "docs").glob("*.py")}
    assert {path for path in programs if path.is_file()} <= set(TEXTS)
    for name in ("unruly/bench/README.md", "flurry/bench/README.md", "unruly/docs/papers.md"):
        assert ROOT / name in TEXTS


def test_every_finding_has_a_heading_on_the_page_of_its_section() -> None:
    texts = finding_pages.texts()
    for rule in RULES:
        assert f"\n## {rule.code}\n" in texts[finding_pages.FOLDER / f"{rule.section}.md"]
        link = f"- [{rule.code}]({rule.section}.md#{rule.code})"
        assert link in texts[finding_pages.FOLDER / "README.md"]


def test_no_page_of_findings_is_left_over() -> None:
    assert set(finding_pages.FOLDER.glob("*")) == set(finding_pages.texts())


def test_a_page_cannot_be_written_for_a_code_without_a_text() -> None:
    silent = Rule("toy-found", "where", ("warns",), lambda _: iter(()))
    with pytest.raises(ValueError, match="toy-found: the docstring of its rule lacks Raised"):
        finding_pages.texts((*RULES, silent))


def test_only_a_page_that_changed_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.md", tmp_path / "new.md"
    old.write_text("same\n")
    command.write({old: "same\n", new: "text\n"})
    assert new.read_text() == "text\n"
    assert capsys.readouterr().out == f"{new}\n"
