"""Documents lead somewhere, and say what the Makefile and the program do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from repository import ROOT, tracked

PAGES = tracked("*.md")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
"""A word between backticks that may be a path: with a slash, without wildcards."""
BASES = (ROOT, ROOT / "unruly", ROOT / "flurry", ROOT / "unruly" / "python" / "unruly")
"""Folders from which a page may name a path, besides its own."""
ROOMS = {
    part
    for path in tracked()
    for base in BASES
    if path.is_relative_to(base)
    for part in path.relative_to(base).parts[:-1][:1]
}
"""Folders that begin a path of this repository."""
MAKE = re.compile(
    r"^\s*(?:\$ |- )?(?:[A-Z_]+=\S+ )*make (?:-C \S+ )?([a-z0-9-]+(?:(?: \| | )[a-z0-9-]+)*)",
    re.MULTILINE,
)
"""A command of a document, with the targets that it names."""


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that a forge gives to the headings of a page."""
    found = set()
    for _, title in HEADING.findall(prose(page)):
        words = re.sub(r"[^\w\- ]", "", title.lower())
        found.add(words.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        assert place.exists(), f"{page.name} links to {target}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_one_title_and_begins_with_it(page: Path) -> None:
    levels = [level for level, _ in HEADING.findall(prose(page))]
    assert levels.count("#") == 1
    assert prose(page).startswith("# ")


def lost_paths(page: Path, text: str) -> set[str]:
    """Return the paths of this repository that a page names between backticks and that are gone."""
    places = (page.parent, *BASES)
    return {
        word
        for word in PATH.findall(text)
        if word.partition("/")[0] in ROOMS and not any((it / word).exists() for it in places)
    }


# The changelog names files as they were called at the time.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_path_between_backticks_exists(page: Path) -> None:
    assert lost_paths(page, prose(page)) == set()


def test_a_path_that_is_gone_is_found() -> None:
    page = ROOT / "CONTRIBUTING.md"
    text = "`unruly/crates/load/src/rpc.rs` `crates/load` `schema/` `redis/7` `docs/nowhere.md`"
    assert lost_paths(page, text) == {"unruly/crates/load/src/rpc.rs", "docs/nowhere.md"}


def test_the_commands_of_the_documents_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    named = {
        (word, page.name)
        for page in PAGES
        for words in MAKE.findall(code(page))
        for word in words.replace(" | ", " ").split()
    }
    assert {("demo", "README.md"), ("check", "CONTRIBUTING.md")} <= named
    assert {("gate-build", "ci.md"), ("bench-flurry", "README.md")} <= named
    assert {(word, page) for word, page in named if word not in targets} == set()


def test_make_lists_every_target() -> None:
    said = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = {line.split()[0] for line in said.stdout.splitlines()}
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony
    assert listed == set(phony.group(1).split())


def code(page: Path) -> str:
    """What a page shows as code: between backticks, fenced, or indented."""
    text = page.read_text(encoding="utf-8")
    spans = re.findall(r"`([^`\n]+)`", text)
    return "\n".join(
        [*spans, *FENCE.findall(text), *re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)]
    )


def test_the_code_maps_name_every_room() -> None:
    maps = ["ARCHITECTURE.md", "unruly/ARCHITECTURE.md", "flurry/ARCHITECTURE.md"]
    text = "\n".join((ROOT / page).read_text() for page in maps)
    rooms = {path.parent.relative_to(ROOT) for path in tracked("*/Cargo.toml")}
    assert len(rooms) == 17
    for room in rooms:
        assert f"`{room}`" in text, room
