"""Write the table of real faults on the page methods/causes.md from the kept runs.

Run ``make pages``.
"""

from __future__ import annotations

import json
from pathlib import Path

import kept
from bench import causes_real

PAGE = Path(__file__).with_name("methods") / "causes.md"


def written(page: str) -> str:
    """Return the page with the table of the kept runs of all days and hosts."""
    rows = [
        json.loads(line)
        for path in sorted(kept.RUNS.glob("*/causes-real.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return kept.filled(page, {"real faults": causes_real.table(rows)})
