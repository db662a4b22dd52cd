"""What the fuzzer of files and the soak found, as figures of the benchmarks page."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from bench.program import ROOT
from bench.result import Result

CASES = 20_000
SEED = 1
MINUTES = os.environ.get("SOAK_MINUTES", "10")


def fuzz() -> list[Result]:
    """Change files that tools wrote, limits, manifests and segments, and read them all."""
    program = str(ROOT / "tests" / "fuzz" / "files.py")
    words = [sys.executable, program, str(CASES), str(SEED)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    ends = re.findall(r"^(\S.*): exit (-?\d+): (\d+)$", done.stdout, re.MULTILINE)
    totals: dict[str, int] = {}
    for _, code, times in ends:
        totals[code] = totals.get(code, 0) + int(times)
    (bad,) = re.findall(r"^\d+ cases, (\d+) ended badly$", done.stdout, re.MULTILINE)
    read, refused = totals.get("0", 0), totals.get("2", 0)
    return [
        Result(
            "fuzz-files",
            f"{CASES:,} files, limits, manifests and segments that are nearly right: those that"
            " end in anything but a result or an error in words",
            "0",
            f"{bad}; {read:,} were read, {refused:,} refused in words,"
            f" {sum(totals.values()) - read - refused:,} ended with a finding",
            bad == "0",
            {"seed": SEED, "ends": [list(it) for it in ends]},
        )
    ]


def soak() -> list[Result]:
    """Ten minutes under load: the memory of every process after two minutes and at the end."""
    words = [sys.executable, "-m", "pytest", "-q", "-s", "unruly/tests/soak", "-k", "steady_load"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    found = re.findall(r"^\.?(.+): ([\d.]+) MiB, then ([\d.]+) MiB$", done.stdout, re.MULTILINE)
    grown = [
        (float(after) - float(before), re.sub(r" \(\d+\)$", "", name))
        for name, before, after in found
    ]
    most, name = max(grown, default=(0.0, "nothing"))
    return [
        Result(
            "soak",
            f"{MINUTES} minutes, 10,000 requests a second to an echo server and 1,000 through"
            " Flurry's gateway: memory that a process gains between two minutes and the end",
            "<= 4 MiB, or a tenth",
            f"{most:.1f} MiB at most ({name}), of {len(found)} processes",
            done.returncode == 0,
            {"processes": [list(it) for it in found]},
        )
    ]
