"""What the rules of the house are checked against: the files that the repository tracks."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@functools.cache
def tracked(*patterns: str) -> tuple[Path, ...]:
    """Files under version control, and new ones that are not ignored."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / line for line in listed.splitlines())
    return tuple(path for path in paths if path.is_file())


def is_text(path: Path) -> bool:
    """Whether a file is text, as git sees it: no zero byte at its beginning."""
    return b"\0" not in path.read_bytes()[:8000]


@functools.cache
def cargo_metadata() -> dict[str, Any]:
    """Packages of the workspace and all that they are built from."""
    words = ["cargo", "metadata", "--format-version", "1", "--locked"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(said.stdout)
