"""Check the staged content of the staged files: format, lints, and banned phrases.

It reads the content that the commit will hold, so changes that are not staged do not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUFF = str(Path(sys.executable).with_name("ruff"))
sys.path.insert(0, str(ROOT / "tests" / "rules"))

import prose  # noqa: E402


def git(*words: str) -> bytes:
    """Return what git prints; nothing when it fails, as for a file that HEAD does not have."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False).stdout


def staged(letters: str) -> list[str]:
    """Return the staged files whose change ``git diff`` marks with one of these letters."""
    listed = git(
        "diff", "--cached", "--name-only", "--no-renames", f"--diff-filter={letters}", "-z"
    )
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def complaint(name: str, fix: str, words: list[str]) -> str:
    """Return what a tool says against the staged content of a file, or an empty text."""
    content = git("show", f":{name}")
    done = subprocess.run(words, cwd=ROOT, input=content, capture_output=True, check=False)
    details = (done.stdout + done.stderr).decode(errors="replace").strip()
    # rustfmt ends with 0 when it checks its standard input, and prints the difference.
    return f"{name}: {fix}\n{details}" if done.returncode or details else ""


def of_tools(names: list[str]) -> list[str]:
    """Return what the formatters and ruff say against staged files."""
    jobs = []
    for name in names:
        if name.endswith(".py"):
            ruff = ["--quiet", "--stdin-filename", name, "-"]
            jobs.append((name, "not formatted; hint: make fmt", [RUFF, "format", "--diff", *ruff]))
            check = [RUFF, "check", "--output-format", "concise", *ruff]
            jobs.append((name, "lints; hint: make fmt repairs some", check))
        elif name.endswith(".rs"):
            rustfmt = ["rustfmt", "--check", "--edition", "2024"]
            jobs.append((name, "not formatted; hint: make fmt", rustfmt))
    with ThreadPoolExecutor() as pool:
        return [found for found in pool.map(lambda job: complaint(*job), jobs) if found]


def phrases(revision: str, names: list[str]) -> Counter[str]:
    """Return how many banned phrases these files have at a revision, for each folder."""
    found: Counter[str] = Counter()
    for name in names:
        text = git("show", f"{revision}:{name}").decode(errors="replace")
        found[prose.folder_of(ROOT / name)] += len(list(prose.PATTERN.finditer(text)))
    return found


def of_prose(names: list[str]) -> list[str]:
    """Return the folders in which the staged files have another number of banned phrases."""
    judged = [name for name in names if prose.is_judged(name)]
    before, after = phrases("HEAD", judged), phrases("", judged)
    limits = os.path.relpath(prose.LIMITS, ROOT)
    found = []
    for folder in sorted(after):
        change = after[folder] - before[folder]
        if change > 0:
            hint = (
                "hint: python tests/rules/prose.py lists them; CONTRIBUTING.md says what to write"
            )
            found.append(f"{folder}: {change} more banned phrases; {hint}")
        elif change < 0 and limits not in names:
            hint = f"hint: python tests/rules/prose.py --update, and stage {limits}"
            found.append(f"{folder}: {-change} fewer banned phrases; {hint}")
    return found


def main() -> int:
    """Print every complaint; return 1 when there is one."""
    found = [*of_tools(staged("ACMT")), *of_prose(staged("ACDMT"))]
    for line in found:
        sys.stderr.write(f"pre-commit: {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
