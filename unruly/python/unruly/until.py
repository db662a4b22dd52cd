"""Whether a run knows enough: ``python -m unruly.until 99 0.1``, spoken to by the runner.

Each line it reads is a second of a process, ``{"process": 0, "bins": [["read", bucket, count]]}``.
It looks after 30 seconds, one for each block of the method, and then each time the run has become
an eighth longer; looking more often would make it likelier to stop at a lucky moment. It answers
``{"said": words, "enough": true or false}``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import numpy as np

from unruly.live.tally import Tally
from unruly.stats.blocks import BLOCKS, block_interval

if TYPE_CHECKING:
    from collections.abc import Iterable

GROWTH = 1.125
"""From one look to the next, as a factor on the length of the run."""


@dataclass
class Seconds:
    """The histograms of a run so far, and the rule that they must meet."""

    percentile: float
    within: float
    tally: Tally = field(default_factory=Tally)

    def hear(self, process: int, bins: Iterable[tuple[str, int, int]]) -> int:
        """Take a second of one process; return how many there are by now."""
        return self.tally.hear(process, bins)

    def width(self, op: str) -> float | None:
        """How far the farther bound is from the percentile, as a share; None if it abstains."""
        buckets, table = self.tally.blocks(op)
        found = block_interval(buckets, table, self.percentile / 100).interval
        if found is None or found.estimate is None or found.low is None or found.high is None:
            return None
        return max(found.high / found.estimate - 1, 1 - found.low / found.estimate)

    def look(self, seconds: int) -> dict[str, object]:
        """Say how well each operation is known, and whether that is enough."""
        widths = {op: self.width(op) for op in sorted(self.tally.ops)}
        enough = all(it is not None and it <= self.within for it in widths.values())
        told = ", ".join(
            f"{op} {'not yet known' if width is None else f'within {100 * width:.2g} %'}"
            for op, width in widths.items()
        )
        said = f"p{self.percentile:g} after {seconds} s: {told or 'nothing came back'}"
        return {"said": said, "enough": enough and bool(widths)}


def answer(lines: Iterable[str], out: IO[str], percentile: float, within: float) -> None:
    """Read the seconds of a run, and write a look when one is due."""
    seconds = Seconds(percentile, within)
    next_look = BLOCKS
    out.write("ready\n")
    out.flush()
    for line in lines:
        second = json.loads(line)
        passed = seconds.hear(second["process"], second["bins"])
        if passed < next_look:
            continue
        next_look = int(np.ceil(passed * GROWTH))
        out.write(json.dumps(seconds.look(passed)) + "\n")
        out.flush()


if __name__ == "__main__":
    answer(sys.stdin, sys.stdout, float(sys.argv[1]), float(sys.argv[2]))
