"""The documentation site is gathered from every document, and its checker finds each fault."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from repository import ROOT, tracked

from docsite import check, gather

UNLISTED = {"unruly/crates/agent/tests/proc/README.md"}
"""Documents that no other document leads to: they describe files of tests."""


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    gather.gather(folder)
    return folder


def test_every_document_is_a_page_of_the_site(gathered: Path) -> None:
    documents = {str(path.relative_to(ROOT)) for path in tracked("*.md")}
    pages = {str(path.relative_to(gathered / "pages")) for path in gathered.rglob("*.md")}
    assert documents - pages == UNLISTED


def test_every_link_of_a_gathered_page_leads_to_one(gathered: Path) -> None:
    count = 0
    for page in (gathered / "pages").rglob("*.md"):
        for found in gather.LINK.finditer(gather.FENCE.sub("", page.read_text(encoding="utf-8"))):
            if gather.is_local(found[2]):
                assert (page.parent / found[2]).is_file(), f"{page.name} links to {found[2]}"
                count += 1
    assert count > 400


def test_every_page_stands_once_in_the_navigation(gathered: Path) -> None:
    written = tomllib.loads((gathered / "zensical.toml").read_text(encoding="utf-8"))
    sections = [section for entry in written["project"]["nav"] for section in entry.items()]
    named = [place for _, rows in sections for row in rows for place in row.values()]
    assert len(named) == len(set(named))
    assert {it for it in named if not (gathered / "pages" / it).is_file()} == set()
    documents = {str(it.relative_to(ROOT)) for it in tracked("*.md")} - UNLISTED
    assert set(named) == documents
    assert [title for title, _ in sections][:3] == ["Start", "Measure", "Judge"]


def test_a_linked_source_file_is_shown_whole(gathered: Path) -> None:
    text = (gathered / "pages" / "flurry/docs/cluster.toml.md").read_text(encoding="utf-8")
    assert (ROOT / "flurry/docs/cluster.toml").read_text(encoding="utf-8") in text


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">x</a>', "a.html: gone.html leads nowhere"),
        ('<a href="b.html#gone">x</a>', "a.html: b.html#gone has no such anchor"),
        ('<a href="#gone">x</a>', "a.html: #gone has no such anchor"),
        ('<script src="https://elsewhere/x.js"></script>', "fetches https://elsewhere/x.js"),
        ('<link rel="stylesheet" href="gone.css">', "a.html: gone.css leads nowhere"),
        ('<a href="b.html#there">x</a><a href="https://elsewhere">y</a>', ""),
    ],
)
def test_the_checker_finds_each_fault(tmp_path: Path, body: str, fault: str) -> None:
    (tmp_path / "a.html").write_text(f"<title>a</title><body>{body}</body>")
    (tmp_path / "b.html").write_text("<title>b</title><h2 id='there'>b</h2>")
    found = check.faults(tmp_path, check.pages_of(tmp_path))
    assert len(found) == bool(fault)
    assert re.search(re.escape(fault), "\n".join(found))


def test_a_page_without_a_title_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>words</p>")
    assert check.faults(tmp_path, check.pages_of(tmp_path)) == ["a.html: no title"]
