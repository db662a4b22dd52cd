"""Ways to find the design effect that were tried on the families where answers are often wrong.

All of them judge the same runs: the variance of 30 blocks as it stands, the larger one of 30, 15
and 10 blocks, and the variance corrected for what a memory hides, which the method uses.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import special

from bench.false_promises import blocked
from bench.families import FAMILIES
from bench.result import Result
from bench.rival_study import NS, P, share
from bench.rivals import Bounds
from unruly.stats import blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

RUNS: Final = 400
SEED: Final = 20261128
LEVEL: Final = 0.95
CELLS: Final = (
    ("N5", 30), ("F2", 30), ("LN", 30), ("N6", 30), ("F3e", 30), ("F1", 30), ("F3a", 30),
    ("F5a", 30), ("N2b", 30), ("F2", 120), ("LN", 120), ("N5", 120), ("N6", 120), ("N1w", 120),
)  # fmt: skip


class Corrected(blocks._Edges):
    """The design effect of the method."""


class Plain(blocks._Edges):
    """The variance and the correlation of 30 blocks, without a correction for their memory."""

    def _design_effects(self, alpha: float, corrected: bool) -> Array:
        del corrected  # neither way corrects
        return plain(self.excess, self.total, self.n, alpha)


class Merged(blocks._Edges):
    """The largest of the design effects of 30, 15 and 10 blocks, each without a correction."""

    def _design_effects(self, alpha: float, corrected: bool) -> Array:
        del corrected
        merged = (self.excess.reshape(len(self.excess), -1, it).sum(axis=2) for it in (1, 2, 3))
        largest: Array = np.maximum.reduce([plain(it, self.total, self.n, alpha) for it in merged])
        return largest


def plain(excess: Array, total: Array, n: int, alpha: float) -> Array:
    """Return the design effect of each edge from the excess of its blocks."""
    count = excess.shape[1]
    squares = excess**2
    variance = squares.sum(axis=1)
    varied = (total > 0) & (variance > 0) & (total < n)
    variance, total = np.where(varied, variance, 1), np.where(varied, total, n / 2)
    memory = (excess[:, 1:] * excess[:, :-1]).sum(axis=1) / variance + 1 / count
    memory = np.clip(memory, 0, blocks.MEMORY_MAX)
    spread = (squares**2).sum(axis=1) - variance**2 / count
    freedom = 2 * variance**2 / np.maximum(spread, 2 * variance**2 / count)
    freedom = np.clip(freedom, 1, count - 1)
    widened = (special.stdtrit(freedom, 1 - alpha) / special.ndtri(1 - alpha)) ** 2
    ratio = variance * count / (count - 1) / (total * (1 - total / n))
    effects: Array = np.where(varied, ratio * widened * (1 + memory) / (1 - memory), 0.0)
    return effects


WAYS: Final = {
    "30 blocks, without a correction": Plain,
    "largest of 30, 15 and 10 blocks": Merged,
    "30 blocks, corrected (the method)": Corrected,
}


def study(name: str, seconds: int, runs: int = RUNS, seed: int = SEED) -> dict[str, Any]:
    """Return one cell: for each way, how many runs it answers, and how many answers are wrong."""
    place = [it.name for it in FAMILIES].index(name)
    family = FAMILIES[place]
    truth = family.truth(P) * NS
    found = {way: {"answered": 0, "wrong": 0} for way in WAYS}
    for number in range(runs):
        latencies = family.draw(np.random.default_rng([seed, place, seconds, number]), seconds)
        counted = blocked(latencies)
        estimate = float(np.quantile(latencies, P)) * NS
        for way, edges in WAYS.items():
            tail = blocks._Tail.of(edges.build(*counted), P, LEVEL)
            interval = blocks._said(tail, estimate, LEVEL, LEVEL).interval
            if interval is not None:
                found[way]["answered"] += 1
                found[way]["wrong"] += not Bounds(interval.low, interval.high).holds(truth)
    return {
        "family": name,
        "words": family.words,
        "seconds": seconds,
        "runs": runs,
        "ways": found,
    }


def run() -> list[Result]:
    """Judge the same runs in each way; about five minutes of one core."""
    os.nice(10)
    cells = []
    for name, seconds in CELLS:
        cells.append(study(name, seconds))
        print(f"  {name} {seconds} s", file=sys.stderr, flush=True)
    words = []
    for way in WAYS:
        answered, wrong = (
            sum(it["ways"][way][key] for it in cells) for key in ("answered", "wrong")
        )
        of_answers, low, high = share(wrong, answered)
        words.append(
            f"{way}: {100 * answered / sum(it['runs'] for it in cells):.0f} % answered,"
            f" {100 * of_answers:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of the answers wrong"
        )
    return [
        Result(
            name="false-tried",
            what=f"wrong intervals of the p99 by the way of finding the variance, in {len(CELLS)}"
            f" cells ({RUNS} runs each)",
            bar="",
            measured="; ".join(words),
            met=None,
            raw={"seed": SEED, "cells": cells},
        )
    ]
