"""A tap that watches services while a test asks them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from house import UNRULY, Measured, need_root, wait_for


@contextmanager
def watching(folder: Path, *services: str) -> Iterator[subprocess.Popen[str]]:
    """A tap that watches while the block runs; its run is in the folder ``watched``."""
    need_root("a tap")
    out = folder / "watched"
    words = [UNRULY, "watch", *services, "-q", "-o", out]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # it is made after the ring of packets is open
        wait_for(lambda: (out / "manifest.json").exists() or process.poll() is not None, "a tap")
        yield process
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()


def watched(folder: Path) -> Measured:
    return Measured(folder / "watched")
