"""Follows a page of the documents: runs its commands in order and compares what it shows.

A comment of HTML above a block says what the block's words do not:

``<!-- file: NAME -->``      the reader saves this block as NAME
``<!-- exit: 0 1 -->``       exit codes that are right here, 1 for a finding; 0 without it
``<!-- or: BEGINNING -->``   a line that begins so may stand for the block, as in a run too short
``<!-- not run: REASON -->`` nobody can run the block in a test
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

COMMANDS = {"sh", "yaml"}
"""Languages of the blocks that a reader runs."""
BLOCK = re.compile(r"((?:^<!-- .+? -->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (file|exit|or|not run): (.+?) -->")
INDENTED = re.compile(r"^ {4}\S.*$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w-])\d[\d.,]*(?: (?:ns|µs|ms|s|min|h)\b)?")
"""A number that stands by itself, with its unit: another run has another one there."""
ANY_NUMBER = r"\d[\d.,]*(?: (?:ns|µs|ms|s|min|h))?"
SECONDS_MOST = 100


@dataclass(frozen=True)
class Block:
    """A fenced block, and what the comments above it say."""

    language: str
    text: str
    marks: dict[str, str]

    @property
    def codes(self) -> set[int]:
        """Exit codes that are right."""
        return {int(code) for code in self.marks.get("exit", "0").split()}


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    return [
        Block(language, body, dict(MARK.findall(marks)))
        for marks, language, body in BLOCK.findall(text)
    ]


def indented(text: str) -> list[str]:
    """Return the lines that a page shows as code without a fence, so that no test runs them."""
    return INDENTED.findall(BLOCK.sub("", text))


def unfolded(screen: str) -> list[str]:
    """Return the lines of a screen, unindented, each with the lines that its width has wrapped."""
    lines = re.sub(r"\n {8,}", " ", screen.rstrip()).splitlines()
    return [line.strip() for line in lines]


def pattern(line: str) -> re.Pattern[str]:
    """Return what a shown line stands for: the same words with other numbers."""
    pieces = (ANY_NUMBER.join(map(re.escape, NUMBER.split(it))) for it in line.split("..."))
    return re.compile(".*".join(pieces))


def missing(shown: Block, screen: str) -> str:
    """Return the first shown line that the screen does not have in its order, or an empty text."""
    printed = unfolded(screen)
    if "or" in shown.marks and any(it.startswith(shown.marks["or"]) for it in printed):
        return ""
    lines = iter(printed)
    for line in unfolded(shown.text):
        if line != "..." and not any(pattern(line).fullmatch(it) for it in lines):
            return line
    return ""


def replaced(text: str, changes: dict[str, str]) -> str:
    """Return a text with each pattern replaced: lengths are shorter and addresses are ours."""
    for old, new in changes.items():
        text = re.sub(old, new, text)
    return text


def follow(text: str, folder: Path, changes: dict[str, str], env: dict[str, str]) -> None:
    """Do what a page says, in an empty folder.

    Raises
    ------
    AssertionError
        A command ends with another code, or a shown line is not printed.
    """
    exported = folder.parent / f"{folder.name}.env"
    exported.touch()
    screen = ""
    for block in blocks(text):
        body = replaced(block.text, changes)
        if "not run" in block.marks:
            continue
        if "file" in block.marks:
            (folder / block.marks["file"]).write_text(body)
        elif block.language == "sh":
            # A code that is right goes on to the next command, any other one ends the block.
            right = "|".join(map(str, sorted(block.codes)))
            trap = f"trap 'code=$?; case $code in {right}) ;; *) exit $code ;; esac' ERR"
            script = f". {exported}\n{trap}\n{body}\ncode=$?\nexport -p >{exported}\nexit $code\n"
            done = subprocess.run(
                ["bash", "-uc", script],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS_MOST,
                check=False,
                env={**os.environ, **env},
            )
            screen = done.stdout
            assert done.returncode in block.codes, f"{body}\nended with {done.returncode}\n{screen}"
        elif block.language == "text":
            lost = missing(block, screen)
            assert not lost, f"not printed: {lost}\n{screen}"
