"""Check a built site: every link of a page leads somewhere, and nothing comes from another host."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
"""Elements whose file a browser fetches without being asked."""
UNFETCHED = {"canonical", "next", "prev", "alternate", "edit"}
"""Relations of a ``link`` that only name another page."""


class Page(HTMLParser):
    """What a page names: its title, its anchors, its links and the files that it needs."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.title = ""
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.needs: list[str] = []
        self._in_head_title = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element names."""
        self._in_head_title = tag == "title" and not self.title
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name, value in given.items():
            if (tag, name) in FETCHED and given.get("rel") not in UNFETCHED:
                self.needs.append(value)
            elif name in ("href", "src"):
                self.links.append(value)

    def handle_data(self, data: str) -> None:
        """Collect the title."""
        if self._in_head_title:
            self.title, self._in_head_title = data.strip(), False


def pages_of(site: Path) -> dict[Path, Page]:
    """Return every page of a site except that of a missing one, which is shown at any address."""
    paths = sorted(it for it in site.resolve().rglob("*.html") if it.name != "404.html")
    return {path: Page(path) for path in paths}


def faults(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Return one line for each broken link, missing anchor, missing title and foreign file."""
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if not page.title:
            found.append(f"{name}: no title")
        for link in (*page.links, *page.needs):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.needs and parts.scheme != "data":
                    found.append(f"{name}: fetches {link}")
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if place.is_dir():
                place /= "index.html"
            if not place.is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and place in pages:
                anchor = unquote(parts.fragment)
                if anchor not in pages[place].anchors:
                    found.append(f"{name}: {link} has no such anchor")
    return found


def main(site: Path) -> int:
    """Print the faults of a site; return 1 when there is one, or when there is no page."""
    pages = pages_of(site)
    lines, count = faults(site, pages), len(pages)
    for line in lines:
        sys.stderr.write(f"site: {line}\n")
    sys.stdout.write(f"site: {count} pages, {len(lines)} faults\n")
    return 1 if lines or not count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
