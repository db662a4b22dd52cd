"""Ask the databases of security advisories about every pinned crate and Python package.

An answer that was not had is reported as NOT CHECKED and never as a pass. RustSec's database is
fetched, unless ``ADVISORY_DB`` names a folder that holds it. Java's libraries are not looked up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 600
EXIT_FOUND = 1
JAVA = "Java: no tool of ours reads the advisories of Maven's libraries"


@dataclass
class Outcome:
    """What was found, and what could not be looked up."""

    lines: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def said(words: list[str]) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON that a tool prints, and the last line of its complaints."""
    try:
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error).splitlines()[0]
    complaints = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    try:
        return json.loads(done.stdout), complaints[0] if complaints else ""
    except json.JSONDecodeError:
        return None, complaints[0] if complaints else f"it ended with {done.returncode}"


def rust(outcome: Outcome, tool: str, lock: Path, database: str | None) -> None:
    """Look up every crate of a lock file in RustSec's database."""
    words = [tool, "audit", "--json", "--file", str(lock)]
    if database:
        words += ["--db", database, "--no-fetch"]
    answer, complaint = said(words)
    if answer is None:
        outcome.unchecked.append(f"Rust: {complaint}")
        return
    known, crates = answer["database"], answer["lockfile"]["dependency-count"]
    if not known["advisory-count"]:
        outcome.unchecked.append("Rust: the database holds no advisory")
        return
    for it in answer["vulnerabilities"]["list"]:
        package, advisory = it["package"], it["advisory"]
        outcome.found.append(
            f"{package['name']} {package['version']}: {advisory['id']} {advisory['title']}"
        )
    outcome.lines.append(
        f"Rust: {crates} crates looked up in {known['advisory-count']} advisories"
        f" of {known['last-updated'] or 'a database without a date'}"
    )


def python(outcome: Outcome, tool: str, lock: Path) -> None:
    """Look up every package of a requirements file at PyPI.

    pip-audit skips a package that its database does not name, and calls the result clean.
    """
    words = [tool, "--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
    answer, complaint = said([*words, "--requirement", str(lock)])
    if answer is None:
        outcome.unchecked.append(f"Python: {complaint}")
        return
    packages = answer["dependencies"]
    skipped = [it for it in packages if "skip_reason" in it]
    for it in packages:
        for advisory in it.get("vulns", []):
            outcome.found.append(f"{it['name']} {it['version']}: {advisory['id']}")
    if skipped or not packages:
        reason = skipped[0]["skip_reason"] if skipped else "the lock file names none"
        outcome.unchecked.append(
            f"Python: {len(skipped)} of {len(packages)} packages, such as: {reason}"
        )
    if len(skipped) < len(packages):
        outcome.lines.append(f"Python: {len(packages) - len(skipped)} packages looked up")


def report(outcome: Outcome) -> int:
    """Print the outcome, report unchecked parts to the runner of the stages; return the code."""
    for line in outcome.lines:
        sys.stdout.write(f"advisories: {line}\n")
    for line in outcome.found:
        sys.stdout.write(f"advisories: VULNERABLE {line}\n")
    for line in outcome.unchecked:
        sys.stdout.write(f"advisories: NOT CHECKED {line}\n")
    if place := os.environ.get("STAGE_UNCHECKED"):
        Path(place).write_text("".join(f"{line}\n" for line in outcome.unchecked))
    return EXIT_FOUND if outcome.found else 0


def main() -> int:
    """Look up both lock files; 1 when an advisory applies, 0 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True, help="folder of both tools")
    parser.add_argument("--cargo-lock", type=Path, default=ROOT / "Cargo.lock")
    parser.add_argument("--requirements", type=Path, default=ROOT / "requirements.lock")
    given = parser.parse_args()
    outcome = Outcome(unchecked=[JAVA])
    rust(
        outcome,
        str(given.tools / "cargo-audit"),
        given.cargo_lock.resolve(),
        os.environ.get("ADVISORY_DB"),
    )
    python(outcome, str(given.tools / "pip-audit"), given.requirements.resolve())
    return report(outcome)


if __name__ == "__main__":
    sys.exit(main())
