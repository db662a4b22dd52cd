"""The parts of a request itself: what they usually take, and when they were unusually long.

A single long part proves nothing: every distribution has a longest value. What counts is a time in
which most requests of a node were long in the same part, or, of what a server did itself, that most
of the slow ones were, and by far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from unruly.base.suspects import Suspect, above_usual, of_part
from unruly.tables import causes as cause_tables
from unruly.tables import fetch, inline
from unruly.tables.causes import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unruly.base.context import Context
    from unruly.base.mechanisms import MechanismName

SIDES: Final = {
    "client": ("send_lag", "client_kernel"),
    "server": ("server_kernel", "handler", "rest"),
}
NAMES: Final[Mapping[str, MechanismName]] = {
    "send_lag": "send lag",
    "client_kernel": "client kernel to user",
    "server_kernel": "server kernel to user",
    "handler": "handler",
}
DEVIATIONS: Final = 10.0
FLOORS: Final = 10.0
"""Times the noise floor of the hosts."""
BIN_NS_LEAST: Final = 100_000_000
BINS_MOST: Final = 600
BIN_REQUESTS: Final = 10
BIN_LEAST: Final = 5
BIN_SAMPLE: Final = 100
"""Mean number of a node's requests read in a bin: more would not show the majority any better."""
FAR: Final = 10.0
"""Requests beyond this many times the p99 of the others are a population of their own."""
FAR_NS_LEAST: Final = 1e6
MOSTLY: Final = 0.5
STAMPED: Final = 0.95
APART_LEAST: Final = 5
"""Least number of separate spans, because a single burst delays several requests at once."""


@dataclass(frozen=True)
class Usual:
    """Median, limit and p99 of each part (ns), of requests that are not slow."""

    took_ns: float
    took_spread_ns: float
    median: dict[str, float]
    spread: dict[str, float]
    """The distance of `DEVIATIONS` robust deviations from the median."""
    p99: dict[str, float]
    stamped: bool
    """Nearly all requests have the server's own time."""

    @classmethod
    def of(cls, ordinary: pd.DataFrame) -> Usual:
        """Return the usual times of a sample; NaN for a part without stamps."""
        known = {
            part: ordinary[part].dropna().to_numpy(dtype=np.float64) for part in (*PARTS, "took_ns")
        }
        medians = {name: _quantile(values, 0.5) for name, values in known.items()}
        spreads = {
            name: above_usual(known[name], DEVIATIONS) - middle if known[name].size else np.nan
            for name, middle in medians.items()
        }
        p99 = {name: _quantile(known[name], 0.99) for name in PARTS}
        stamped = bool(ordinary["handler"].notna().mean() > STAMPED)
        took, spread = medians.pop("took_ns"), spreads.pop("took_ns")
        return cls(took, spread, medians, spreads, p99, stamped)

    def limit(self, part: str, floor_ns: float) -> float:
        """Return the time beyond which a part is unusually long; infinity if it is not known."""
        found = self.median[part] + max(self.spread[part], FLOORS * floor_ns)
        return found if np.isfinite(found) else np.inf

    def where(self, slow: pd.DataFrame) -> NDArray[np.object_]:
        """The part that makes up most of each request's excess, or an empty word.

        One that failed at once took less than usual: it spent its time nowhere.
        """
        excess = slow["took_ns"].to_numpy(dtype=np.float64, na_value=np.nan) - self.took_ns
        found = np.full(len(slow), "", dtype=object)
        for part in PARTS:
            own = slow[part].to_numpy(dtype=np.float64, na_value=np.nan) - self.median[part]
            with np.errstate(invalid="ignore"):
                found[(excess > 0) & (own > MOSTLY * excess)] = part
        return found

    def name(self, part: str) -> MechanismName:
        """What a part is called; the rest by whether the server's own time is known."""
        return NAMES.get(part, "network and queue" if self.stamped else "server or network")


def _quantile(values: NDArray[np.float64], p: float) -> float:
    return float(np.quantile(values, p)) if values.size else np.nan


def long_spans(
    context: Context, usual: Mapping[tuple[str, str], tuple[Usual, int]], floor_ns: float
) -> Iterator[Suspect]:
    """Times in which most requests of a node had an unusually long part."""
    longs = []
    for (cell, op), (own, n) in usual.items():
        bins = {side: _bins(context, (cell, op), side, n) for side in SIDES}
        wanted = max(BIN_SAMPLE * number for _, number in bins.values())
        longs.append(
            {
                "cell": cell,
                "op": op,
                "least": BIN_LEAST,
                "cut": cause_tables.cut(wanted, n),
                **{f"{side}_bin_ns": bin_ns for side, (bin_ns, _) in bins.items()},
                **{f"long_{part}": own.limit(part, floor_ns) for part in PARTS},
            }
        )
    if not longs:
        return
    rows = cause_tables.with_parts(context.rows)
    frame = fetch(cause_tables.long_parts(rows, inline(longs), SIDES))
    for (cell, op, node), of_node in frame.groupby(["cell", "op", "node"]):
        for part in PARTS:
            found = of_node[of_node[part].notna()]
            if found.empty:
                continue
            untils = found["started_ns"] + found[part].astype("int64")
            spans = zip(found["started_ns"], untils, strict=True)
            name = usual[cell, op][0].name(part)
            yield of_part(context, name, int(node), (str(cell), str(op)), spans)


def _bins(context: Context, key: tuple[str, str], side: str, n: int) -> tuple[int, int]:
    """How long the bins of a side are, and how many there are of all its nodes.

    As short as leaves some requests of each node in a bin, and not too many of them.
    """
    extents = context.extents
    own = extents[(extents["cell"] == key[0]) & (extents["op"] == key[1])]
    nodes = int(own["senders" if side == "client" else "receivers"].max())
    length = int((own["last_ns"] - own["first_ns"]).sum()) + 1
    bin_ns = max(BIN_NS_LEAST, length // BINS_MOST, length * nodes * BIN_REQUESTS // max(1, n))
    return bin_ns, (length // bin_ns + 1) * nodes


def handled_slowly(
    context: Context, key: tuple[str, str], slow: pd.DataFrame, usual: Usual
) -> Iterator[Suspect]:
    """Servers that took far longer than ever to handle most of the slow requests, one by one."""
    handler = slow["handler"].to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        far = handler > max(FAR * usual.p99["handler"], FAR_NS_LEAST)
    far &= usual.where(slow) == "handler"
    if far.sum() < MOSTLY * len(slow):
        return
    begin = slow["intended_ns"] + slow["handler_from_ns"].fillna(0).astype("int64")
    spans = pd.DataFrame(
        {"node": slow["server"], "start": begin, "end": begin + slow["handler"].fillna(0)}
    )
    for node, own in spans[far].astype("int64").groupby("node"):
        times = zip(own["start"], own["end"], strict=True)
        found = of_part(context, NAMES["handler"], int(node), key, times)
        if len(found.starts) >= APART_LEAST:
            yield found
