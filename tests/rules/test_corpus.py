"""The fuzzer of files has a file of every format that is imported."""

from __future__ import annotations

import re

from repository import ROOT

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
OTHER_NAMES = {"jvm-gc": ("gc-jdk8", "gc-unified"), "sar": ("sadf",)}
"""Formats whose files have the name of their form."""


def test_every_format_that_is_imported_has_a_file_in_the_corpus() -> None:
    folder = ROOT / "unruly" / "python" / "unruly" / "ingest"
    sources = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    names = [it for text in sources for it in re.findall(r"Format\(\s*\"([a-z0-9-]+)\"", text)]
    assert len(names) > 20
    wanted = {file for name in names for file in OTHER_NAMES.get(name, (name,))}
    assert wanted <= {path.name for path in CORPUS.iterdir()}
