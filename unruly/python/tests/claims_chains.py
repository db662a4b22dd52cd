"""Planted runs for the judges of n-tier applications."""

from __future__ import annotations

from dataclasses import replace

from unruly.papers.chains import Loaded
from unruly.papers.evidence import Evidence, Facts
from unruly.papers.judgement import HOLDS, NOT, UNDECIDED
from unruly.stats import Interval


def spans(low, high):
    return Interval((low + high) / 2, low, high, 0.95, 30, 30.0, "")


def around(value, by=1.0):
    return spans(value - by, value + by)


def loaded(*cells, bottleneck="app"):
    """Cells by their numbers: (clients, factors, parts), ..."""
    rows = tuple(
        Loaded(f"c{place}", clients, {"drive.clients": str(clients), **factors},
               bottleneck=bottleneck, busy=0.9, **parts)
        for place, (clients, factors, parts) in enumerate(cells)
    )  # fmt: skip
    return Evidence(Facts("planted", "none", trustworthy=True), chains=rows)


def load(*cells, factors=None):
    """Loads with a profit and a throughput each."""
    return [
        (clients, factors or {}, {"per_hour": around(earns), "rate": around(rate)})
        for clients, earns, rate in cells
    ]


GROWS = load((1_000, 80, 100), (1_100, 90, 110), (1_200, 70, 120))
STALLS = load((1_000, 80, 100), (1_100, 90, 110), (1_200, 70, 105))
EVEN = load((1_000, 80, 100), (1_100, 90, 110), (1_200, 70, 110))


def swings(factor, calm, wild, one, other, clients=1_100):
    return [
        (clients, {factor: calm}, {"swing": one}),
        (clients, {factor: wild}, {"swing": other}),
    ]


def swinging(factor, calm, wild):
    """Runs of a judge that compares the swing at both ends of a factor."""
    low, high, both = spans(9, 11), spans(12, 14), spans(8, 16)
    return [
        (HOLDS, loaded(*swings(factor, calm, wild, low, high))),
        (NOT, loaded(*swings(factor, calm, wild, high, low))),
        (UNDECIDED, loaded(*swings(factor, calm, wild, low, both))),
        (UNDECIDED, loaded(*swings(factor, calm, wild, low, high), bottleneck="db")),
        # cells that differ in more than the factor cannot be compared
        (UNDECIDED, loaded(
            (1_100, {factor: calm, "x": "1"}, {"swing": low}),
            (1_100, {factor: wild, "x": "2"}, {"swing": high}),
        )),
        # the highest load that has both decides
        (HOLDS, loaded(
            *swings(factor, calm, wild, high, low, clients=900),
            *swings(factor, calm, wild, low, high, clients=1_200),
        )),
    ]  # fmt: skip


EARLY = [(1_000, 90, 100), (1_100, 80, 110), (1_200, 70, 120)]
LATE = [(1_000, 80, 100), (1_100, 90, 110), (1_200, 70, 120)]
UNSURE = [(1_000, 80, 100), (1_100, 90, 110), (1_200, 89.5, 120)]
NEVER = [(1_000, 80, 100), (1_100, 90, 110), (1_200, 95, 120)]


def falling(factor, calm, wild):
    """Runs of a judge that compares from which load profit falls."""

    def both(one, other):
        return loaded(*load(*one, factors={factor: calm}), *load(*other, factors={factor: wild}))

    return [
        (HOLDS, both(LATE, EARLY)),
        (HOLDS, both(NEVER, LATE)),
        (NOT, both(EARLY, LATE)),
        (NOT, both(LATE, NEVER)),
        # where the highest load may earn less, nobody knows
        (UNDECIDED, both(LATE, UNSURE)),
        (UNDECIDED, both(UNSURE, LATE)),
        # cells that are left out may be where profit falls at the other end
        (UNDECIDED, left_out(both(NEVER, LATE))),
        (UNDECIDED, both(LATE, LATE)),
        (UNDECIDED, both(NEVER, NEVER)),
    ]


def left_out(evidence):
    """The same with a cell whose bottleneck is another tier."""
    other = replace(evidence.chains[-1], cell="more", clients=1_300, bottleneck="web")
    return replace(evidence, chains=(*evidence.chains, other))


def collecting(*cells):
    return loaded(
        *(
            (clients, {"service.pool_size": size}, {"collecting": spans(at - 0.01, at + 0.01)})
            for clients, size, at in cells
        )
    )


def small(low, high):
    return (900, "2", low), (1_200, "2", high)


def large(low, high):
    return (900, "24", low), (1_200, "24", high)


def earning(one, other):
    return loaded(
        (1_100, {"service.pool": "local"}, {"per_hour": one}),
        (1_100, {"service.pool": "global"}, {"per_hour": other}),
    )


def crossed(*ratios):
    """A run in which each factor in turn has cells of a swing of 10 and of this many."""
    calm = {"drive.dispersion": "1", "service.pool": "local", "service.collector": "Z"}
    wild = {"drive.dispersion": "100", "service.pool": "global", "service.collector": "Parallel"}
    cells = [(1_100, calm, {"swing": spans(9, 11)})]
    for name, ratio in zip(calm, ratios, strict=True):
        cells.append((1_100, {**calm, name: wild[name]}, {"swing": ratio}))
    return loaded(*cells)


CHAINS = {
    "tiers_profit_falls_first": [
        (HOLDS, loaded(*GROWS)),
        (NOT, loaded(*STALLS)),
        (UNDECIDED, loaded(*EVEN)),
        (UNDECIDED, loaded(*load(*NEVER))),
        (UNDECIDED, loaded(*GROWS, bottleneck="web")),
    ],
    "tiers_bursts_swing": swinging("drive.dispersion", "1", "100"),
    "tiers_bursts_lower_peak": falling("drive.dispersion", "1", "400"),
    "tiers_global_pool_swings": swinging("service.pool", "local", "global"),
    "tiers_global_pool_earns_less": [
        (HOLDS, earning(spans(80, 84), spans(70, 74))),
        (NOT, earning(spans(70, 74), spans(80, 84))),
        (UNDECIDED, earning(spans(70, 80), spans(72, 82))),
    ],
    "tiers_collector_grows": [
        (HOLDS, collecting(*small(0.02, 0.03), *large(0.02, 0.09))),
        (NOT, collecting(*small(0.02, 0.09), *large(0.02, 0.03))),
        (UNDECIDED, collecting(*small(0.02, 0.04), *large(0.02, 0.05))),
        (UNDECIDED, collecting((900, "2", 0.02), (900, "24", 0.09))),
    ],
    "tiers_collector_swings": swinging("service.pool_size", "2", "24"),
    "tiers_large_pool_falls_first": falling("service.pool_size", "2", "24"),
    "tiers_each_matters": [
        (HOLDS, crossed(spans(12, 14), spans(12, 14), spans(12, 14))),
        (NOT, crossed(spans(12, 14), spans(6, 8), spans(12, 14))),
        (UNDECIDED, crossed(spans(12, 14), spans(8, 14), spans(12, 14))),
    ],
}  # fmt: skip
