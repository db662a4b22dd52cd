"""A drive whose server stands still for a second: what its rows must say of that."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from house import UNRULY, Measured, spooled, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def conserved(run: Measured) -> bool:
    (rows, distinct) = run.rows("select count(*), count(distinct request) from requests")[0]
    return bool(rows == distinct == run.manifest["counts"]["copies"]["scheduled"])


def counts_its_stall(out: Path, rate: int, server: Callable[[], list[int]], *words: str) -> None:
    """Drive for 4 s, stop the processes of `server` for 1 s, and look at the rows."""
    line: list[str | Path] = [UNRULY, "drive", *words, "-r", str(rate), "-d", "4s", "-w", "0s"]
    with subprocess.Popen([*line, "-q", "-o", out]) as process:
        # Half a second of rows, of about 100 bytes each: the run has begun.
        wait_for(lambda: spooled(out) > rate * 50, "the first rows")
        own = server()
        for pid in own:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            # the stall itself, and no wait for anything
            time.sleep(1)
        finally:
            for pid in own:
                os.kill(pid, signal.SIGCONT)
        stalled = time.monotonic() - began
        assert process.wait(timeout=60) in (0, 1)
    run = Measured(out)
    assert conserved(run)
    ((slow,),) = run.rows("select count(*) from requests where received_ns - intended_ns > 5e8")
    # Each of them was scheduled in the stall but for its last half second.
    assert slow >= 0.98 * rate * (stalled - 0.5)
