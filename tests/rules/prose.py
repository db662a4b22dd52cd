"""Phrases that plain English does without, and how often each folder has them.

`python tests/rules/prose.py` prints the lines; `--update` lowers the limits to the present counts.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from repository import ROOT, is_text, tracked

LIMITS = Path(__file__).parent / "prose.tsv"

# CONTRIBUTING.md has the glossary that says what to write instead.
BANNED = {
    "headless clause": r"\bwhat (?:is|are|was|were|has|had|came|comes|goes|went|stands|waits)\b"
    r"|\bwhoever\b|\bthat which\b|\bwhatever (?:is|was|it)\b",
    "told": r"\b(?:is|are|was|were|be|been|has|have|had|of|and|or|not|nobody|never) told\b"
    r"|\btells?\b(?! you)",
    "goes with": r"\b(?:goes|go|went) with (?:its|the|it|latency)\b",
    "wanders": r"\bwander(?:s|ed|ing)?\b",
    "so many": r"\bso (?:many|long) (?!as\b|that\b)",
    "genitive chain": r"\b(?:virtual )?machines? of Java\b|\bcollectors? of garbage\b",
    "riddle": r"\b(?:patience|crew|letters? of)\b|\bat home\b",
    "fragment": r"(?:^|[.!?:] +|(?:///|//!|//|#|\"\"\") )(?:Of|Beside) (?!course\b)\w",
    "agentless said": r"\b(?:is|are|was|were) said\b",
}
PATTERN = re.compile("|".join(f"(?:{it})" for it in BANNED.values()), re.MULTILINE)

# This file quotes the phrases.
QUOTES = {"tests/rules/prose.py"}
TEXT = {".md", ".rs", ".py", ".java", ".sh", ".toml", ".proto", ".go", ".txt", ".yml", ".schema"}


def folder_of(path: Path) -> str:
    """Return the folder whose limit a file counts against: at most three names deep."""
    return "/".join(path.relative_to(ROOT).parts[:-1][:3]) or "."


def is_judged(name: str) -> bool:
    """Return whether the words of a file count: our own prose, and neither quotes nor samples."""
    ours = name not in QUOTES | {"THIRD-PARTY.txt"} and "third_party" not in name
    return ours and "/corpus/" not in name and Path(name).suffix in TEXT


def lines() -> list[tuple[Path, int, str]]:
    """Return every line with a banned phrase: its file, its number, and the phrase."""
    found = []
    for path in tracked():
        if not is_judged(str(path.relative_to(ROOT))) or not is_text(path):
            continue
        text = path.read_text(encoding="utf-8")
        for match in PATTERN.finditer(text):
            found.append((path, text.count("\n", 0, match.start()) + 1, match.group().strip()))
    return found


def counts() -> Counter[str]:
    """Return how many banned phrases each folder has."""
    return Counter(folder_of(path) for path, _, _ in lines())


def limits() -> dict[str, int]:
    """Return how many each folder may have."""
    rows = (line.split("\t") for line in LIMITS.read_text(encoding="utf-8").splitlines())
    return {folder: int(most) for folder, most in rows}


def main() -> None:
    """Print the lines, or lower the limits."""
    if sys.argv[1:] == ["--update"]:
        rows = (f"{folder}\t{count}\n" for folder, count in sorted(counts().items()))
        LIMITS.write_text("".join(rows), encoding="utf-8")
        return
    for path, number, phrase in lines():
        sys.stdout.write(f"{path.relative_to(ROOT)}:{number}: {phrase}\n")


if __name__ == "__main__":
    main()
