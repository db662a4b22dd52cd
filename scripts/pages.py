"""Write the generated pages of the documentation and the JSON schemas: ``make pages``.

It needs the folders ``unruly``, ``unruly/docs`` and the checkout itself on the path of Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import finding_pages
import gray_failures
import middleware
import real_audits
import real_causes
import runtimes
import stores
import streams
import three_tier
from bench import command
from bench import pages as unruly_pages
from flurry.bench import pages as flurry_pages

import schemas
from unruly import papers

ROOT: Final = Path(__file__).resolve().parents[1]
PAPERS: Final = ROOT / "unruly" / "docs" / "papers.md"
STUDIES: Final = (
    stores, gray_failures, runtimes, streams, real_audits, real_causes, middleware, three_tier,
)  # fmt: skip


def texts() -> dict[Path, str]:
    """Return the text of each generated page and schema."""
    found = unruly_pages.texts() | flurry_pages.texts() | schemas.texts()
    found |= {it.PAGE: it.written(it.PAGE.read_text(encoding="utf-8")) for it in STUDIES}
    return found | finding_pages.texts() | {PAPERS: papers.page(papers.kept())}


if __name__ == "__main__":
    command.write(texts())
