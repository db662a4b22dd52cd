"""How often claims of a percentile hold on a long real file, and what the audit says of its parts.

A long file is cut into parts of equal numbers of requests. Each part claims bounds of the
percentile; the percentile of the whole file stands for the truth. Then the audit judges each part
alone, as if the rest of the file were unknown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import unruly
from bench import compact
from unruly.stats import quantile
from unruly.stats.claims import claims
from unruly.tables import fetch
from unruly.tables.requests import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unruly.stats.claims import Claims

P: Final = 0.99
PARTS: Final = 30


def latencies(path: Path, **options: Any) -> tuple[NDArray[np.float64], float]:
    """Return the latencies (ns) of a file in the order of their times, and its length (ns).

    Raises
    ------
    IngestError
        The file cannot be imported.
    """
    with tempfile.TemporaryDirectory(prefix="unruly-audits-") as folder:
        run = unruly.open_run(unruly.import_file(path, Path(folder, "run"), **options).directory)
        rows = counted(run.requests).select("intended_ns", "request", "response")
        frame = fetch(rows.order_by("intended_ns", "request"))
    started = frame["intended_ns"].to_numpy(np.int64)
    return frame["response"].to_numpy(np.float64), float(started[-1] - started[0])


def studied(values: NDArray[np.float64], parts: int = PARTS, p: float = P) -> dict[str, Any]:
    """Return how often the claims of the parts hold, and what the audit says of that.

    Parameters
    ----------
    values : ndarray, float64
        Latencies (ns) in the order of their times.
    parts : int
        How many parts the file is cut into.
    p : float
        In (0, 1).
    """
    truth = quantile(np.sort(values), p)
    found = [claims(part, p) for part in np.array_split(values, parts)]
    own = [it.own.interval for it in found]
    given = [it for it in own if it is not None and it.low is not None]
    return {
        "requests": values.size,
        "p": p,
        "truth_ns": truth,
        "whole": _figures([claims(values, p)]),
        "parts": parts,
        "usual_held": sum(_within(it, truth) for it in found),
        "early_held": sum(it.bound is not None and truth <= it.bound for it in found),
        "supported": len(given),
        "supported_held": sum(
            float(it.low or 0) <= truth and (it.high is None or truth <= it.high) for it in given
        ),
        "figures": _figures(found),
    }


def _within(it: Claims, truth: float) -> bool:
    low, high = it.low, it.high
    return (low is None or low <= truth) and (high is None or truth <= high)


def _figures(found: list[Claims]) -> dict[str, Any]:
    """Return the mean figures of the audits that give one, and how many those are."""
    figures: dict[str, Any] = {}
    for name in ("interval_held", "bound_held"):
        known = [it for it in (getattr(one, name) for one in found) if it is not None]
        figures[name] = {"n": len(known)} | {
            part: float(np.mean([getattr(it, part) for it in known])) if known else None
            for part in ("share", "low", "high")
        }
    return figures


def main() -> None:
    """Study the named files and print the results as JSON."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("files", type=Path, nargs="+", metavar="NAME=FILE")
    studies = []
    for text in given.parse_args().files:
        name, _, path = str(text).partition("=")
        values, length_ns = latencies(Path(path))
        studies.append({"name": name, "length_ns": length_ns} | studied(values))
    sys.stdout.write(compact.text({"files": studies}))


if __name__ == "__main__":
    main()
