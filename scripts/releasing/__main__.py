"""``python -m releasing [ARCHITECTURE...]`` writes the release files to ``target/dist``."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from releasing.files import release
from releasing.programs import PLATFORMS, build
from third_party.components import ROOT
from third_party.sbom import version, write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DIST = ROOT / "target" / "dist"
SUMS = "SHA256SUMS"


def commit_time_s() -> int:
    """Return when the last commit was made, so that a second build has the same times."""
    words = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)


def changes() -> str:
    """Return what differs from the last commit, which names the release; empty if nothing does."""
    words = ["git", "status", "--porcelain"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


def sums(files: Mapping[str, bytes]) -> bytes:
    """Return the checksums of files, as ``sha256sum --check`` reads them."""
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    return "".join(sorted(lines, key=lambda line: line.split()[1])).encode()


def save(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files and their checksums to a folder, which then holds nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in {**files, SUMS: sums(files)}.items():
        (folder / name).write_bytes(data)
        sys.stdout.write(f"{len(data):>12,} bytes  {name}\n")


def main(architectures: list[str]) -> None:
    """Build the programs for each architecture and write every release file."""
    unknown = sorted(set(architectures) - PLATFORMS.keys())
    if unknown:
        known = ", ".join(PLATFORMS)
        sys.exit(f"releasing: there is no architecture {unknown[0]}; hint: use {known}")
    if platform.machine() not in architectures:
        sys.exit(
            f"releasing: {platform.machine()} is missing, whose program writes the man pages; "
            f"hint: ARCHITECTURES='{platform.machine()} {' '.join(architectures)}'"
        )
    if changed := changes():
        sys.exit(
            f"releasing: the checkout differs from its commit:\n{changed}\nhint: commit or stash it"
        )
    built = {architecture: build(architecture) for architecture in architectures}
    files = release(built, version(), commit_time_s())
    files[f"unruly-{version()}.cdx.json"] = write().read_bytes()
    save(files, DIST)
    sys.stdout.write(f"release files: {DIST.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or list(PLATFORMS))
