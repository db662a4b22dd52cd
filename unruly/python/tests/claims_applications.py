"""Planted runs for the judges of three-tier applications."""

from __future__ import annotations

from dataclasses import replace

from unruly.papers.evidence import Cell, Effect, Evidence, Explained, Facts, Matrix
from unruly.papers.judgement import HOLDS, NOT, UNDECIDED
from unruly.papers.three_tier import (
    APPLICATION,
    PLATFORM,
    REPLICATION,
    Layer,
    Recovered,
    SlowRequests,
)
from unruly.stats import Interval

NAMES = (
    "board", "su-duel-ku", "blackjack", "ftex", "ejbay", "mafia", "parkn-park", "ticket-center",
)  # fmt: skip


def run(**parts):
    return Evidence(Facts("planted", "none", trustworthy=True), **parts)


def spans(low, high):
    return Interval((low + high) / 2, low, high, 0.95, 30, 30.0, "")


# Outliers ------------------------------------------------------------------------------


def application(name, share, place=0, **numbers):
    factors = {APPLICATION: name, PLATFORM: "http", REPLICATION: "none"}
    held = {"n": 10_000, "mean": 100.0, "over_3_sigma": round(10_000 * share), **numbers}
    return Cell(cell=f"{name} {place}", system=name, factors=factors, **held)


def outliers(*parts):
    """(Count, share): as many configurations of each application in turn have these outliers."""
    shares = [share for count, share in parts for _ in range(count)]
    cells = [application(NAMES[at % 8], share, at) for at, share in enumerate(shares)]
    return run(matrix=Matrix(tuple(cells)))


# Platform and replication --------------------------------------------------------------

LITTLE, SOME, MUCH = spans(0.02, 0.2), spans(0.1, 0.27), spans(0.3, 0.5)


def effects(platform, replication, measure="maximum"):
    rows = {PLATFORM: platform, REPLICATION: replication, APPLICATION: spans(0.5, 0.9)}
    return Explained(measure, tuple(Effect(name, it) for name, it in rows.items()))


def infrastructure(maximum, share):
    """What platform and replication explain of the maximum and of the share of outliers."""
    explained = (effects(*maximum), effects(*share, measure="outliers"))
    return run(matrix=Matrix((application("board", 0.01),), explained=explained))


# Recovery ------------------------------------------------------------------------------


def crashed(name, *ratios, longest=50.0, crashes=9, place="1", longer=0):
    """Repeats of a cell whose recoveries take this many times the longest fault-free latency."""
    factors = {APPLICATION: name, "drive.clients": place}
    return [
        Recovered(
            f"{name} {place}", repeat, "app-1", factors,
            tuple(None if ratio is None else 50.0 * ratio for _ in range(crashes)),
            longest, longer,
        )
        for repeat, ratio in enumerate(ratios)
    ]  # fmt: skip


def recoveries(*ratios, **more):
    """The first applications, by the ratio of each."""
    rows = [
        row for name, it in zip(NAMES, ratios, strict=False) for row in crashed(name, it, **more)
    ]
    return run(recoveries=tuple(rows))


def several(*rows):
    return run(recoveries=tuple(it for held in rows for it in held))


def lost(rows, count):
    """The same without the first recoveries."""
    return [replace(it, totals_ns=(None,) * count + it.totals_ns[count:]) for it in rows]


OTHERS = [crashed(name, 1.0) for name in NAMES[1:]]

# Layers --------------------------------------------------------------------------------


def slow(*layers, op="bid", covered=1.0):
    """An operation whose slow requests have these layers: (service, name, role, low, high)."""
    held = tuple(Layer(*names, spans(low, high)) for *names, low, high in layers)
    return SlowRequests("base", op, 100, covered, held)


def traced(*rows):
    return run(slow_requests=rows)


def own(name, low, high):
    return ("app", name, "own", low, high)


def call(name, low, high):
    return ("app", name, "call", low, high)


OUTSIDE = ("", "", "outside", 0.0, 0.02)

APPLICATIONS = {
    "three_tier_outliers": [
        (HOLDS, outliers((90, 0.004), (6, 0.05))),
        # 15 of 96 are surely not so
        (NOT, outliers((81, 0.004), (15, 0.08))),
        (UNDECIDED, outliers((94, 0.004), (2, 0.08))),
        # of other systems the figure says nothing
        (UNDECIDED, run(matrix=Matrix((Cell("c", "tcp", 10_000, 100.0, over_3_sigma=10),)))),
    ],
    "three_tier_infrastructure": [
        (HOLDS, infrastructure((LITTLE, LITTLE), (LITTLE, LITTLE))),
        (NOT, infrastructure((MUCH, LITTLE), (LITTLE, LITTLE))),
        (NOT, infrastructure((LITTLE, LITTLE), (LITTLE, MUCH))),
        (UNDECIDED, infrastructure((LITTLE, SOME), (LITTLE, LITTLE))),
        (UNDECIDED, infrastructure((LITTLE, LITTLE), (SOME, LITTLE))),
        (UNDECIDED, infrastructure((LITTLE, LITTLE), (None, LITTLE))),
    ],
    "three_tier_recovery": [
        (HOLDS, recoveries(*[8.0, 1 / 8, 1.0, 1.0, 2.0, 0.5, 1.0, 1.0])),
        (NOT, recoveries(*[12.0, 1 / 12] * 4)),
        # seven of eight may be a half
        (UNDECIDED, recoveries(*[1.0] * 7, 12.0)),
        (UNDECIDED, recoveries(*[1.0] * 4)),
        # five crashes give no interval of a median
        (UNDECIDED, recoveries(*[1.0] * 8, crashes=5)),
        # failed requests without a crash
        (UNDECIDED, recoveries(*[1.0] * 8, longest=None)),
        # both repeats of a cell count: half of the crashes may be the median
        (UNDECIDED, several(crashed("board", 1.0, 12.0), *OTHERS)),
        (UNDECIDED, several(crashed("board", 1.0, 1 / 12), *OTHERS)),
        # failed requests without a crash in one of two repeats
        (UNDECIDED, several(
            *(crashed(name, 1.0) + crashed(name, 1.0, longest=None) for name in NAMES)
        )),
        # the next crash came before six of 19 recoveries: they are longer than the others
        (UNDECIDED, several(*(lost(crashed(name, 1.0, crashes=19), 6) for name in NAMES))),
        # no crash was recovered from before the next one
        (UNDECIDED, several(crashed("board", None), *OTHERS)),
        # one of two cells is not most of them
        (UNDECIDED, several(crashed("board", 1.0), crashed("board", 12.0, place="4"), *OTHERS)),
        (HOLDS, several(
            crashed("board", 1.0), crashed("board", 2.0, place="4"),
            crashed("board", 12.0, place="7"), *OTHERS,
        )),
    ],
    "three_tier_each_layer": [
        (HOLDS, traced(slow(own("price", 0.5, 0.7), call("SELECT", 0.06, 0.1)))),
        # one layer is surely not the main one of more than a few
        (NOT, traced(slow(own("price", 0.5, 0.7), call("SELECT", 0.06, 0.1), OUTSIDE))),
        (NOT, traced(slow(own("price", 0.96, 1.0), call("SELECT", 0.0, 0.049)))),
        (UNDECIDED, traced(slow(own("price", 0.5, 0.7), call("SELECT", 0.04, 0.1)))),
        # many calls that are seldom by themselves may be often together
        (UNDECIDED, traced(slow(
            own("price", 0.5, 0.7), *(call(f"q{it}", 0.01, 0.045) for it in range(20)),
        ))),
        # it is in another operation
        (HOLDS, traced(
            slow(own("price", 0.9, 1.0), call("SELECT", 0.0, 0.02)),
            slow(own("price", 0.1, 0.2), call("SELECT", 0.3, 0.9), op="view"),
        )),
        # of a tenth nobody knows the layer
        (UNDECIDED, traced(
            slow(own("price", 0.5, 0.7), call("SELECT", 0.0, 0.02), covered=0.9),
        )),
    ],
    "three_tier_layers": [
        (HOLDS, traced(slow(own("price", 0.5, 0.7), call("SELECT", 0.06, 0.1), OUTSIDE))),
        (NOT, traced(slow(own("price", 0.96, 1.0), call("SELECT", 0.0, 0.03), OUTSIDE))),
        (UNDECIDED, traced(slow(own("price", 0.9, 0.99), call("SELECT", 0.04, 0.1), OUTSIDE))),
        # two statements are one layer
        (UNDECIDED, traced(slow(call("SELECT", 0.6, 0.8), call("UPDATE", 0.2, 0.4)))),
        # each operation has a layer of its own, of the same kind or of another one
        (UNDECIDED, traced(
            slow(own("bid", 0.96, 1.0)), slow(own("view", 0.6, 0.9), op="view"),
        )),
        (HOLDS, traced(slow(own("bid", 0.96, 1.0)), slow(call("SELECT", 0.96, 1.0), op="view"))),
        (NOT, traced(slow(call("UPDATE", 0.96, 1.0)), slow(call("SELECT", 0.96, 1.0), op="view"))),
        # of 80 % nobody knows the layer
        (UNDECIDED, traced(slow(own("price", 0.96, 1.0), covered=0.2))),
        (UNDECIDED, traced(
            slow(own("price", 0.5, 0.7), call("SELECT", 0.06, 0.1), covered=0.8),
        )),
    ],
}  # fmt: skip
