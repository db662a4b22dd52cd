"""Collect licence texts and copyright lines, each text once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE = re.compile(r"^(licen[cs]e|copying|notice|copyright|unlicense)([-_.].*)?$", re.IGNORECASE)
SUFFIXES = {"", ".md", ".txt", ".apache", ".mit", ".boost"}
COPYRIGHT = re.compile(
    r"^\W*(Copyright\s+(?=\(c\)|\(C\)|©|\d|by |[A-Z])(?!Notice|License|Owner|Holder|\[)|©|\(c\) \d)"
)
TITLE = re.compile(
    r"^\W*(the\s+)?(mit|isc|bsd|apache|zlib|boost|unicode)\b.{0,40}licen[cs]e\b.{0,24}$",
    re.IGNORECASE,
)
FOREIGN = "GNU GENERAL PUBLIC LICENSE"
"""zstd is offered under BSD or the GPL. We take BSD, so the other text is not ours to give."""


def files_of(folder: Path) -> list[Path]:
    """The licence files of a library, also those of the sources that it carries."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and FILE.match(path.name)
        and (path.suffix.lower() in SUFFIXES or path.name.upper().startswith("LICENSE-"))
        and FOREIGN not in path.read_text(encoding="utf-8", errors="replace")
    )


def split(text: str) -> tuple[list[str], str]:
    """Return the copyright lines of a licence file, and its text without them."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").splitlines()]
    owners = [line.strip(" #*/-\t") for line in lines if COPYRIGHT.match(line)]
    body = [line for line in lines if not COPYRIGHT.match(line)]
    return owners, re.sub(r"\n{3,}", "\n\n", "\n".join(body)).strip("\n")


class Texts:
    """Licence texts with numbers. Texts that differ in spacing, title or owner are one."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, body: str) -> int:
        """Return the number of a text, which is kept if it is new."""
        words = [line for line in body.splitlines() if not TITLE.match(line)]
        plain = re.sub(r"\W+", " ", " ".join(words)).lower().strip()
        plain = plain.replace("all rights reserved ", "")
        # Apache's appendix says how to use the licence; some leave it out.
        plain = plain.partition(" end of terms and conditions")[0]
        if plain not in self._numbers:
            self.bodies.append(body)
            self._numbers[plain] = len(self.bodies)
        return self._numbers[plain]

    def of(self, folder: Path) -> tuple[list[str], list[int]]:
        """Return the copyright lines of a library and the numbers of its texts."""
        owners: dict[str, None] = {}
        numbers: dict[int, None] = {}
        for path in files_of(folder):
            found, body = split(path.read_text(encoding="utf-8", errors="replace"))
            owners |= dict.fromkeys(found)
            if len(body) > 200:
                numbers[self.number(body)] = None
        return list(owners), sorted(numbers)
