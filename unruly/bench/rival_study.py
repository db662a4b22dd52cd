"""Counts how often published intervals of the p99 are given, and how often these are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import stats

from bench.fquest import fquest
from bench.result import Result
from bench.rivals import Bounds, independent, latte, mlperf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.families import Family
    from unruly.stats import BlockInterval

P: Final = 0.99
NS: Final = 1e9
OURS: Final = "ours"
METHODS: Final = {
    OURS: "unruly",
    "fquest": "FQUEST",
    "fquest-clean": "FQUEST without a warning",
    "mlperf": "MLPerf's early stopping",
    "latte": "latte",
    "independent": "order statistics",
}
FQUEST_RUNS: Final = 100
"""Runs of a cell that FQUEST judges: it takes as long as everything else together."""
COVERAGE_LEAST: Final = 0.9
"""What the answers of each family that binds have to cover."""
Share = tuple[float, float, float]


def said(
    latencies: np.ndarray,
    ordered_ns: np.ndarray,
    found: BlockInterval,
    rng: np.random.Generator,
    number: int,
) -> dict[str, Bounds]:
    """Return what each method says of the p99 of the run of this number, in ns."""
    series, own = latencies * NS, found.interval
    bounds = {
        OURS: Bounds(own.low, own.high) if own is not None else Bounds(None, None),
        "mlperf": mlperf(ordered_ns, P),
        "latte": latte(series, ordered_ns, P, rng),
        "independent": independent(ordered_ns, P),
    }
    if number < FQUEST_RUNS:
        tested = bounds["fquest"] = fquest(series, P)
        bounds["fquest-clean"] = Bounds(None, None) if tested.warned else tested
    return bounds


def counted(
    family: Family, seconds: int, truth: float, oracle: float, rows: Sequence[dict[str, Bounds]]
) -> dict[str, Any]:
    """Return one cell: for each method, how many runs it answers, and how many answers are wrong.

    The median width of the answers is relative to the oracle's, which knows how estimates spread.
    """
    methods = {}
    for name in METHODS:
        judged = [row[name] for row in rows if name in row]
        answers = [it for it in judged if it.given]
        widths = [it.width for it in answers if it.width is not None]
        methods[name] = {
            "runs": len(judged),
            "answered": len(answers),
            "wrong": sum(not it.holds(truth) for it in answers),
            "width_over_oracle": float(np.median(widths) / oracle) if widths else None,
        }
    return {
        "family": family.name,
        "words": family.words,
        "kind": family.kind,
        "seconds": seconds,
        "p": P,
        "runs": len(rows),
        "methods": methods,
    }


def share(count: int, n: int) -> Share:
    """Return a share with its 95 % Clopper-Pearson interval.

    Examples
    --------
    >>> [round(it, 3) for it in share(2, 10)]
    [0.2, 0.025, 0.556]
    """
    found = stats.binomtest(count, n).proportion_ci(0.95)
    return count / n, float(found.low), float(found.high)


def too_often(wrong: int, answered: int) -> bool:
    """Return whether these answers certainly cover less than 90 %: the interval excludes it."""
    return answered > 0 and share(wrong, answered)[1] > 1 - COVERAGE_LEAST


def totals(cells: Sequence[dict[str, Any]], method: str) -> dict[str, Any]:
    """Return the sums of one method over cells, and the cells whose answers are too often wrong."""
    own = [cell["methods"][method] for cell in cells]
    widths = [it["width_over_oracle"] for it in own if it["width_over_oracle"] is not None]
    return {
        "runs": sum(it["runs"] for it in own),
        "answered": sum(it["answered"] for it in own),
        "wrong": sum(it["wrong"] for it in own),
        "width": float(np.median(widths)) if widths else None,
        "cells": sum(it["answered"] > 0 for it in own),
        "bad": [
            f"{cell['family']} {cell['seconds']} s"
            for cell, it in zip(cells, own, strict=True)
            if too_often(it["wrong"], it["answered"])
        ],
    }


def binding(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells of the families in which a run can know its quantile."""
    return [cell for cell in cells if cell["kind"] != "unseen"]


def result(cells: Sequence[dict[str, Any]], seed: int) -> Result:
    """Return the row of the page: each method over all cells in which a run can know."""
    bound = binding(cells)
    words = []
    for name, called in METHODS.items():
        found = totals(bound, name)
        _, low, high = share(found["wrong"], found["answered"])
        words.append(
            f"{called} answers {100 * found['answered'] / found['runs']:.0f} % of the runs,"
            f" {100 * found['wrong'] / found['answered']:.1f} %"
            f" [{100 * low:.1f}, {100 * high:.1f}] of its answers are wrong, and more than a tenth"
            f" in {len(found['bad'])} of {found['cells']} cells"
        )
    return Result(
        name="false-rivals",
        what="wrong intervals of the p99 by method, over"
        f" {len(bound)} cells of {len({it['family'] for it in bound})} families"
        f" ({bound[0]['runs']} runs each; {bound[0]['methods']['fquest']['runs']} for FQUEST)",
        bar="",
        measured="; ".join(words),
        met=None,
        raw={"seed": seed, "cells": list(cells)},
    )
