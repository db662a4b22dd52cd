"""Gather the documents of the repository for the site generator.

The pages are those that README.md leads to, directly or through other pages. They keep their place
in the repository, so their links stay relative. A linked source file becomes a page that shows it,
and a linked folder without a README becomes a page that lists its files.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "README.md"
INDEX = ROOT / "docs" / "README.md"
START = (HOME, INDEX, ROOT / "unruly" / "README.md")
LOOK = Path(__file__).with_name("zensical.toml")
COPIED = {".png", ".svg", ".txt"}
LANGUAGES = {".rs": "rust", ".py": "python", ".toml": "toml", ".json": "json", ".service": "ini"}

FENCE = re.compile(r"^(```.*?^```[^\n]*)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
NAMED_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)\)")


def is_local(target: str) -> bool:
    """Return whether a link leads to a file of the repository."""
    return "://" not in target and not target.startswith("mailto:")


def targets(page: Path) -> list[Path]:
    """Return the files and folders that a page links to, in its order.

    Raises
    ------
    SystemExit
        A link leads to no file or folder.
    """
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = []
    for link in (it[2] for it in LINK.finditer(text) if is_local(it[2])):
        place = (page.parent / link).resolve()
        if not place.exists():
            raise SystemExit(f"{page.relative_to(ROOT)}: the link to {link} leads nowhere")
        found.append(place)
    return found


def reachable() -> list[Path]:
    """Return every file that the first pages lead to, beginning with them."""
    found = [*START]
    for place in found:
        if place.suffix == ".md":
            onward = targets(place)
        elif place.is_dir():
            readme = place / "README.md"
            onward = [readme] if readme.exists() else sorted(place.iterdir())
        else:
            onward = []
        found += [it for it in dict.fromkeys(onward) if it not in found]
    return found


def page_of(place: Path) -> Path:
    """Return where the page of a file stands, relative to the root of the site's pages."""
    inside = place.relative_to(ROOT)
    if place.is_dir():
        return inside / ("README.md" if (place / "README.md").exists() else "index.md")
    if place.suffix == ".md" or place.suffix in COPIED:
        return inside
    return inside.with_name(f"{inside.name}.md")


def relinked(page: Path) -> str:
    """Return the text of a page whose links to sources and folders lead to their pages."""

    def turned(found: re.Match[str]) -> str:
        place = (page.parent / found[2]).resolve()
        if not is_local(found[2]) or page_of(place) == place.relative_to(ROOT):
            return found[0]
        link = page_of(place).relative_to(place.parent.relative_to(ROOT))
        return f"{found[1]}{Path(found[2]).parent / link}{found[3]}"

    parts = FENCE.split(page.read_text(encoding="utf-8"))
    return "".join(it if it.startswith("```") else LINK.sub(turned, it) for it in parts)


def shown(place: Path) -> str:
    """Return the page that shows a source file, or lists a folder."""
    title = f"# {place.relative_to(ROOT)}\n\n"
    if place.is_dir():
        return title + "".join(f"- [{it.name}]({it.name}.md)\n" for it in sorted(place.iterdir()))
    text = place.read_text(encoding="utf-8").rstrip("\n")
    return f"{title}````{LANGUAGES.get(place.suffix, 'text')}\n{text}\n````\n"


def title_of(page: Path) -> str:
    """Return the title of a page, without marks of code."""
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ").replace("`", "")


def navigation(pages: list[Path]) -> list[dict[str, list[dict[str, str]]]]:
    """Return the order of the pages: the index by task, the folders of reference, the rest."""
    left = dict.fromkeys(it for it in pages if it.suffix == ".md")
    entries: list[dict[str, list[dict[str, str]]]] = []

    def section(title: str, named: list[tuple[str, Path]]) -> None:
        chosen = {page: name for name, page in named if page in left}
        for page in chosen:
            del left[page]
        if chosen:
            rows = [{name: str(page.relative_to(ROOT))} for page, name in chosen.items()]
            entries.append({title: rows})

    section("Start", [("unruly", HOME), (title_of(INDEX), INDEX)])
    parts = SECTION.split(INDEX.read_text(encoding="utf-8"))[1:]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        named = [
            (words[0].upper() + words[1:], (INDEX.parent / target).resolve())
            for words, target in NAMED_LINK.findall(text)
        ]
        section(title, named)
    for title, folder in (
        ("Findings", "unruly/docs/findings"),
        ("Methods", "unruly/docs/methods"),
        ("Decisions", "docs/decisions"),
        ("Decisions of Flurry", "flurry/docs/decisions"),
    ):
        section(title, [(title_of(it), it) for it in left if it.parent == ROOT / folder])
    section("More", [(title_of(it), it) for it in left])
    return entries


def gather(folder: Path) -> None:
    """Write the pages and the configuration of the generator into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    places = reachable()
    for place in places:
        target = folder / "pages" / page_of(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix in COPIED:
            shutil.copyfile(place, target)
        elif place.suffix == ".md":
            target.write_text(relinked(place), encoding="utf-8")
        elif not place.is_dir() or page_of(place).name == "index.md":
            target.write_text(shown(place), encoding="utf-8")
    entries = json.dumps(navigation(places), ensure_ascii=False)
    # An array of tables in JSON is one in TOML, but for the colons.
    nav = re.sub(r'("(?:[^"\\]|\\.)*"): ', r"\1 = ", entries)
    look = LOOK.read_text(encoding="utf-8")
    (folder / "zensical.toml").write_text(
        look.replace("[project]\n", f"[project]\nnav = {nav}\n", 1), encoding="utf-8"
    )


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
