"""The documentation site holds every page, leads nowhere wrong, and can be searched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from docsite import check, gather

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built as `make site` builds it."""
    done = subprocess.run(
        [ROOT / "scripts" / "docsite" / "build.sh", sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (ROOT / "target" / "site" / "html").resolve()


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, check.Page]:
    return check.pages_of(site)


def built(place: Path) -> Path:
    """Where the page of a document stands in the site."""
    inside = gather.page_of(place).with_suffix(".html")
    return inside.with_name("index.html") if inside.stem == "README" else inside


def test_no_link_of_the_site_is_broken_and_no_page_needs_another_host(
    site: Path, pages: dict[Path, check.Page]
) -> None:
    assert check.faults(site, pages) == []
    assert sum(len(page.links) for page in pages.values()) > 5000


def test_every_document_is_a_page_with_the_title_that_the_navigation_gives_it(
    site: Path, pages: dict[Path, check.Page]
) -> None:
    sections = gather.navigation(gather.reachable())
    rows = [row for section in sections for rows in section.values() for row in rows]
    titles = {document: title for row in rows for title, document in row.items()}
    assert len(titles) > 100
    for document, title in titles.items():
        found = pages[site / built(ROOT / document)].title
        assert found.removesuffix(" - unruly") == title, document


def test_the_search_index_holds_every_document(site: Path) -> None:
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    found = {it["location"].partition("#")[0] for it in items}
    wanted = {str(built(it)) for it in gather.reachable() if it.suffix == ".md"}
    assert wanted - found == set()
    assert any("outage" in json.dumps(it) for it in items)
