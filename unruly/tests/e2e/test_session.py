"""What a new user sees in the first hour: whole screens, kept as transcripts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from house import UNRULY, spooled, wait_for
from http_house import nginx
from test_help import said, verbs

KEPT = Path(__file__).parent / "transcripts"
SECONDS_MOST = 120
DEPENDS = "exit 0, or 1 on a busy machine"
SPOILED = "trust: DO NOT TRUST THIS RUN"
ROWS_BYTES = 50_000
"""A run has measured for some time when it kept so much."""


@dataclass(frozen=True)
class Entry:
    """A typed command, the event meanwhile, and the pattern of the output."""

    words: list[str]
    meanwhile: str
    screen: str


def entries(transcript: Path, server: str) -> list[Entry]:
    """Return the entries of a transcript; the text before the first is for its readers."""
    blocks = transcript.read_text().replace("SERVER", server).split("\n$ unruly ")[1:]
    found = []
    for block in blocks:
        typed, _, screen = block.strip().partition("\n")
        words, _, meanwhile = typed.partition("   # ")
        found.append(Entry(words.split(), meanwhile, screen))
    return found


def expected(screen: str, seen: str) -> str:
    """The screen with its exit code: a run that is not to be trusted exits with 1."""
    return screen.replace(DEPENDS, "exit 1" if SPOILED in seen else "exit 0")


def pattern(screen: str) -> re.Pattern[str]:
    """``...`` is any text within a line, or any lines where it stands alone."""
    lines = []
    for line in screen.splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*?".join(map(re.escape, line.split("..."))) + r"\n")
    return re.compile("".join(lines))


def first_difference(screen: str, seen: str) -> str:
    """The first expected line that no beginning of the screen reaches."""
    lines = screen.splitlines()
    for end in range(1, len(lines) + 1):
        if not pattern("\n".join([*lines[:end], "..."])).fullmatch(seen):
            return lines[end - 1]
    return "(something follows)"


def watch(words: list[str], home: Path, meanwhile: Callable[[subprocess.Popen[str]], None]) -> str:
    """Run the program in a folder; return its screen and how it ended."""
    with subprocess.Popen(
        [UNRULY, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
    ) as process:
        try:
            meanwhile(process)
            screen, _ = process.communicate(timeout=SECONDS_MOST)
        finally:
            process.kill()
    return f"{screen.rstrip()}\nexit {process.returncode}\n"


def test_a_new_users_first_hour_reads_as_its_transcript(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with nginx(tmp_path) as server:
        for entry in entries(KEPT / "new-user.txt", server):

            def meanwhile(process: subprocess.Popen[str], entry: Entry = entry) -> None:
                if not entry.meanwhile:
                    return
                out = home / entry.words[-1]
                wait_for(lambda: spooled(out) > ROWS_BYTES, "the first rows")
                if "Ctrl-C" in entry.meanwhile:
                    process.send_signal(signal.SIGINT)
                else:
                    os.kill(int((tmp_path / "nginx.pid").read_text()), signal.SIGTERM)

            seen = watch(entry.words, home, meanwhile)
            screen = expected(entry.screen, seen)
            assert pattern(screen).fullmatch(seen), (
                f"not seen: {first_difference(screen, seen)}\n{seen}"
            )


def test_every_help_page_reads_as_its_transcript() -> None:
    """With UNRULY_UPDATE=1 the transcript is written anew; read what changed."""
    pages = [["--help"], *([verb, "--help"] for verb in verbs())]
    seen = "\n".join(f"$ unruly {' '.join(words)}\n{said(*words)[1]}" for words in pages)
    kept = KEPT / "help.txt"
    if os.environ.get("UNRULY_UPDATE"):
        kept.write_text(seen)
    assert seen == kept.read_text()
