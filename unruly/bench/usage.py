"""The CPU time and the memory that a process has used, from the kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS_HZ: Final = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, in user mode and in the kernel."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS_HZ


def memory_bytes(pid: int) -> int:
    """Return the most memory that a process had resident so far."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
