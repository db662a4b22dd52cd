"""Where the release files are."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
DIST = REPOSITORY / "target" / "dist"
MACHINE = {"x86_64": 62, "aarch64": 183}
"""The architectures of the release files, and the number of each in the head of an ELF file."""


def release_file(pattern: str) -> Path:
    """Return a release file for this host; a test fails without it."""
    found = list(DIST.glob(pattern.format(architecture=platform.machine())))
    if len(found) != 1:
        pytest.fail(f"target/dist: {len(found)} files {pattern}; hint: make release")
    return found[0]
