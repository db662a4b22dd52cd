"""Runs for each judge of a claim: such that it holds, does not hold, and must stay undecided.

The numbers lie near the bounds of the judges, so that a judge with another bound, or with none,
says something else of one of them. A run is written as the evidence that a judge reads.
"""

from __future__ import annotations

from dataclasses import replace

from claims_applications import APPLICATIONS
from claims_chains import CHAINS
from unruly.papers.evidence import (
    Cell,
    Effect,
    End,
    Evidence,
    Explained,
    Facts,
    Fault,
    Group,
    Latency,
    Line,
    Load,
    Matrix,
    Metric,
    Operations,
    Outliers,
    Overlap,
    Rank,
    Slow,
    Stores,
    Stream,
    Tail,
    Target,
    Wait,
)
from unruly.papers.judgement import HOLDS, NOT, UNDECIDED
from unruly.stats import Interval

NOTHING = Evidence(Facts("nothing", "none", trustworthy=True))


def run(**parts):
    return Evidence(Facts("planted", "none", trustworthy=True), **parts)


def spans(low, high, estimate=None, n=4):
    return Interval((low + high) / 2 if estimate is None else estimate, low, high, 0.95, n, n, "")


def around(value, by=0.02):
    return spans(value * (1 - by), value * (1 + by), value)


# A matrix ------------------------------------------------------------------------------


def cell(number, **numbers):
    return Cell(**{"cell": f"c{number}", "system": "tcp", "n": 10_000, "mean": 100.0, **numbers})


def cells(*parts):
    """Cells by their numbers: (count, numbers), ..."""
    held = [numbers for count, numbers in parts for _ in range(count)]
    return tuple(cell(place, **numbers) for place, numbers in enumerate(held))


def matrix(*parts, **more):
    return run(matrix=Matrix(cells(*(parts or ((1, {}),))), **more))


def explained(**measures):
    """Of each measure the shares that a first and a second factor explain."""
    return tuple(
        Explained(name, (Effect("drive.think", spans(0.0, 0.01)), Effect("drive.clients", it)))
        for name, it in measures.items()
    )


LITTLE, SOME, MUCH = spans(0.02, 0.2), spans(0.04, 0.27), spans(0.3, 0.5)


def left(ratio):
    before = {"p99": 100.0, "largest": 5_000.0}
    return before | {"p99_after": 100.0, "mean_after": 100.0, "largest_after": 100.0 * ratio}


def p99(low, high, estimate=None):
    held = spans(low, high, estimate)
    return {"p99_over_mean": held, "p99": 100.0 * held.estimate}


def lines(**systems):
    """Of each system (r, n, slope)."""
    held = {name: Line(slope, r, n) for name, (r, n, slope) in systems.items()}
    return matrix(lines={**held, "*": Line(spans(90, 110), -0.99, 99)})


def ranks(against, *pairs, **others):
    """Correlations (rho, cells) of resources, beside a strong one with something else."""
    other = {"number of outliers": "size of outliers"}.get(against, "number of outliers")
    rows = tuple(Rank(f"echo-0: {n}", against, rho, of) for n, (rho, of) in enumerate(pairs))
    return matrix(resources=(*rows, Rank("echo-0: loud", other, 0.99, 90)))


def counts(rho, of):
    return matrix(count_against_size=Rank("number of outliers", "their size", rho, of))


def reaches(ratio, n=10_000, maximum=LITTLE):
    numbers = {"largest": 100.0 * ratio, "n": n}
    return matrix((3, {"largest": 500.0}), (1, numbers), explained=explained(maximum=maximum))


ORDER_OF_P99 = explained(p99=MUCH)
MATRIX = {
    "haircut": [
        (HOLDS, matrix((17, left(9)), (3, left(30)))),
        # the maximum was small before: the cut did nothing
        (UNDECIDED, matrix((20, left(9) | {"largest": 900.0}))),
        (UNDECIDED, matrix((10, left(9)), (10, left(9) | {"largest": 1_000.0}), (8, left(11)))),
        (NOT, matrix((3, left(9)), (17, left(11)))),
        (UNDECIDED, matrix((10, left(9)), (10, left(11)))),
    ],
    "haircut_everywhere": [
        (HOLDS, matrix((36, left(9)))),
        # a tenth of all others may be otherwise
        (UNDECIDED, matrix((35, left(9)))),
        # a configuration of which nothing is known
        (UNDECIDED, matrix((36, left(9)), (1, {"mean": None}))),
        (NOT, matrix((16, left(9)), (4, left(11)))),
        (UNDECIDED, matrix((19, left(9)), (1, left(11)))),
    ],
    "maximum_unruly": [
        (HOLDS, reaches(1_100)),
        (NOT, reaches(900)),
        (NOT, reaches(1_100, maximum=MUCH)),
        (UNDECIDED, reaches(900, n=9_000)),
    ],
    "outliers_few": [
        (HOLDS, matrix((17, {"over_3_sigma": 90}), (3, {"over_3_sigma": 500}))),
        (NOT, matrix((3, {"over_3_sigma": 90}), (17, {"over_3_sigma": 110}))),
        (UNDECIDED, matrix((10, {"over_3_sigma": 90}), (10, {"over_3_sigma": 110}))),
    ],
    "p99_within_order": [
        (HOLDS, matrix((9, p99(8, 9.5)), explained=ORDER_OF_P99)),
        (NOT, matrix((8, p99(8, 9.5)), (1, p99(11, 13)), explained=ORDER_OF_P99)),
        (NOT, matrix((9, p99(8, 9.5)), explained=explained(p99=LITTLE))),
        (UNDECIDED, matrix((8, p99(8, 9.5)), (1, p99(8.4, 10.1, 9.2)), explained=ORDER_OF_P99)),
        (UNDECIDED, matrix((9, p99(8, 9.5)), explained=explained(p99=SOME))),
        (UNDECIDED, matrix((9, {"p99": 500.0}), explained=ORDER_OF_P99)),
    ],
    "p99_bound": [
        (HOLDS, matrix((9, p99(18.5, 21.5)))),
        (NOT, matrix((8, p99(18.5, 21.5)), (1, p99(27, 33)))),
        (UNDECIDED, matrix((9, p99(17, 24, 20)))),
    ],
    "p99_follows_mean": [
        (HOLDS, lines(tcp=(0.87, 20, None), udp=(0.9, 20, None))),
        (NOT, lines(tcp=(0.87, 20, None), udp=(0.0, 20, None))),
        (UNDECIDED, lines(tcp=(0.87, 20, None), udp=(0.65, 20, None))),
    ],
    "p99_slope": [
        (HOLDS, lines(tcp=(0.9, 20, spans(0.9, 1.9)), udp=(0.9, 20, spans(0.6, 0.75)))),
        (NOT, lines(tcp=(0.9, 20, spans(0.9, 1.9)), udp=(0.9, 20, spans(2.2, 3)))),
        (NOT, lines(tcp=(0.9, 20, spans(0.37, 0.5)))),
        (UNDECIDED, lines(tcp=(0.9, 20, spans(1.5, 2.5)))),
    ],
    "counts_against_sizes": [
        (HOLDS, counts(-0.47, 20)),
        (NOT, counts(0.6, 20)),
        (UNDECIDED, counts(-0.42, 20)),
    ],
    "maximum_unexplained": [
        (HOLDS, matrix(explained=explained(mean=MUCH, maximum=LITTLE))),
        (NOT, matrix(explained=explained(mean=LITTLE, maximum=MUCH))),
        (UNDECIDED, matrix(explained=explained(mean=LITTLE, maximum=SOME))),
    ],
    "mean_but_not_maximum": [
        (HOLDS, matrix(explained=explained(mean=MUCH, maximum=LITTLE))),
        (NOT, matrix(explained=explained(mean=LITTLE, maximum=LITTLE))),
        (NOT, matrix(explained=explained(mean=MUCH, maximum=MUCH))),
        (UNDECIDED, matrix(explained=explained(mean=SOME, maximum=LITTLE))),
    ],
    "only_p99_has_trend": [
        (HOLDS, matrix(explained=explained(p99=MUCH, maximum=LITTLE))),
        (NOT, matrix(explained=explained(p99=LITTLE, maximum=LITTLE))),
        (NOT, matrix(explained=explained(p99=MUCH, maximum=MUCH))),
        # 14 % of the p99 and 16 % of the maximum, as once seen, are read alike
        (UNDECIDED, matrix(explained=explained(p99=spans(0.04, 0.26), maximum=SOME))),
    ],
    "two_modes": [
        (HOLDS, matrix((3, {"dip": 0.005, "dip_q": 0.9}), (1, {"dip": 0.013, "dip_q": 0.04}))),
        (NOT, matrix((3, {"dip": 0.005, "dip_q": 0.9}), (1, {"dip": 0.009, "dip_q": 0.01}))),
        (UNDECIDED, matrix((1, {"dip": 0.013, "dip_q": 0.06}))),
    ],
}
for judge, against in (
    ("resources_and_number", "number of outliers"),
    ("resources_and_size", "size of outliers"),
):
    MATRIX[judge] = [
        (HOLDS, ranks(against, (0.05, 30), (-0.1, 30))),
        (NOT, ranks(against, (0.05, 30), (-0.8, 30))),
        # no correlation stands beyond chance, and a strong one is not excluded
        (UNDECIDED, ranks(against, (0.05, 30), (-0.42, 22))),
        # beyond the bound alone, and not at once with the other
        (UNDECIDED, ranks(against, (0.05, 30), (0.75, 30))),
    ]

# Groups --------------------------------------------------------------------------------


def tails(*bounds):
    return run(
        latencies=tuple(
            Latency("base", f"op-{n}", 10.0, 10.0 * it.estimate, spans(10 * it.low, 10 * it.high))
            for n, it in enumerate(bounds)
        )
    )


def groups(*parts):
    """(Count, ratio): by that ratio groups of four wait longer than groups of three."""
    ratios = [ratio for count, ratio in parts for _ in range(count)]
    rows = [
        Group(f"c{n}", "null", size, "all", 100.0 if size == 3 else 100.0 * ratio)
        for n, ratio in enumerate(ratios)
        for size in (3, 4)
    ]
    return run(groups=tuple(rows))


def medians(**changes):
    held = {"null": 1.0, "crypto": 1.1, "network": 3.0, "disk": 10.0, "mixed": 12.0, **changes}
    return run(medians={op: around(value) for op, value in held.items()})


def overlaps(*values, struck=("agent-3",), calm=()):
    """Windows with a slow node, and some without one."""
    rows = [(it, struck) for it in values] + [(it, ()) for it in calm]
    return run(
        overlaps=tuple(Overlap("base", 0, n, value, who) for n, (value, who) in enumerate(rows))
    )


def metrics(collected, *others):
    rows = [("gc_ns", collected)] + [(f"other-{n}", it) for n, it in enumerate(others)]
    return run(metrics=tuple(Metric(name, it) for name, it in rows))


SMOOTH = [0.55 + 0.4 * n / 23 for n in range(24)]
GROUPS = {
    "long_tail": [
        (HOLDS, tails(spans(2.5, 4), spans(3, 5))),
        (NOT, tails(spans(1.4, 1.8), spans(3, 5))),
        (UNDECIDED, tails(spans(1.8, 2.5), spans(3, 5))),
    ],
    "larger_groups_slower": [
        (HOLDS, groups((17, 1.2), (3, 0.9))),
        (NOT, groups((3, 1.2), (17, 0.9))),
        (UNDECIDED, groups((5, 1.2))),
    ],
    "by_workload": [
        (HOLDS, medians()),
        (NOT, medians(disk=2.0)),
        (NOT, medians(mixed=2.0)),
        (NOT, medians(crypto=2.0)),
        (UNDECIDED, medians(mixed=3.0)),
    ],
    "disk_costs_most": [
        (HOLDS, medians()),
        (NOT, medians(network=12.0)),
        (NOT, medians(crypto=12.0)),
        (UNDECIDED, medians(network=10.0)),
    ],
    "crypto_costs_little": [
        (HOLDS, medians(crypto=1.3)),
        (NOT, medians(crypto=2.0)),
        (UNDECIDED, medians(crypto=1.5)),
    ],
    "network_at_most_disk": [
        (HOLDS, medians(network=11.0)),
        (NOT, medians(network=16.0)),
        (UNDECIDED, medians(network=12.5)),
    ],
    "slow_seen_alike": [
        (HOLDS, overlaps(0.8, 0.7, 0.8, 0.7, 0.9, 0.7, calm=[0.0] * 50)),
        (NOT, overlaps(0.35, 0.45, 0.35, 0.45, 0.35, 0.45)),
        (UNDECIDED, overlaps(0.4, 0.8, 0.3, 0.9, 0.4, 0.8)),
        (UNDECIDED, overlaps(0.8, 0.7, 0.8, 0.7)),
        # nobody was slow: what one observer sees is chance
        (UNDECIDED, overlaps(*[0.0, 0.1] * 160, struck=())),
        # 24 windows that hardly differ from their neighbours are worth a few
        (UNDECIDED, overlaps(*SMOOTH)),
    ],
    "paired_share": [
        (HOLDS, run(paired_share=0.9)),
        (HOLDS, run(paired_share=0.2)),
        (NOT, run(paired_share=1.0)),
        (NOT, run(paired_share=0.12)),
        (UNDECIDED, run(paired_share=None)),
    ],
    "collections_strongest": [
        (HOLDS, metrics(spans(0.6, 0.8), spans(0.1, 0.4), spans(-0.5, -0.3))),
        (NOT, metrics(spans(0.1, 0.2), spans(0.0, 0.1), spans(-0.5, -0.3))),
        (UNDECIDED, metrics(spans(0.3, 0.5), spans(0.1, 0.4))),
    ],
}

# Stores and the arrival log ------------------------------------------------------------


def tail(store, *, worst=5.0, n=1_000, far=None, outcome="open"):
    return Tail(
        f"store={store}", "read", n, 0, 1.0, worst, 0, far, Target(spans(0.99, 1.0), outcome)
    )


def drives(*tails, faults=()):
    names = [it.cell.split("=")[1] for it in (*tails, *faults)]
    loads = tuple(Load(f"store={it}", {"drive.store": it}) for it in names)
    return run(stores=Stores(tails, faults, loads))


STORES_OF_STUDY = ("cassandra", "garage", "memcached")


def outliers_of(store):
    other = tail("redis", worst=5_000.0, n=10**7)
    return [
        (HOLDS, drives(other, tail(store, worst=110.0))),
        (NOT, drives(other, tail(store, worst=90.0, n=110_000))),
        (UNDECIDED, drives(other, tail(store, worst=90.0, n=90_000))),
        # the failed ones may have taken longer
        (UNDECIDED, drives(other, replace(tail(store, worst=90.0, n=110_000), failed=1))),
        (UNDECIDED, drives(other)),
    ]


def struck(*faults):
    return drives(faults=tuple(Fault(f"store={it}", f"fault {kind}", ms * 1e6)
                               for it, kind, ms in faults))  # fmt: skip


def log(first=10.0, quorum=10.0, last=10.0, *, means=(1.0, 1.0), maxima=(30.0, 60.0), **more):
    """Return an arrival log: p99 of the three, then means and maxima of first and all."""
    waits = (
        Wait("first", 1_000, around(means[0]), maxima[0], around(first)),
        Wait("quorum", 1_000, around(means[0]), maxima[0], around(quorum)),
        Wait("all", 1_000, around(means[1]), maxima[1], around(last)),
    )
    return run(arrivals=(Operations("base", "write", more.pop("n", 1_000), waits, **more),))


def slowest(stay, go, first=0.7):
    rows = (*([Slow(95.0, 100.0)] * stay), *([Slow(100 * first, 100.0)] * go))
    return log(slowest=rows)


def vanish(low, high):
    return log(outliers=Outliers(100, 20, spans(low, high)))


STORES = {
    "cassandra_has_outliers": outliers_of("cassandra"),
    "garage_has_outliers": outliers_of("garage"),
    "memcached_has_outliers": outliers_of("memcached"),
    "far_tail_beyond_mean": [
        (HOLDS, drives(*(tail(it, far=spans(11, 20)) for it in STORES_OF_STUDY))),
        # without the stores of the study it says nothing of every store
        (UNDECIDED, drives(tail("redis", far=spans(11, 20)), tail("etcd", far=spans(12, 20)))),
        (NOT, drives(tail("redis", far=spans(11, 20)), tail("etcd", far=spans(8, 9)))),
        (UNDECIDED, drives(tail("redis", far=spans(11, 20)), tail("etcd"))),
    ],
    "flurry_within_target": [
        (HOLDS, drives(tail("flurry", outcome="met"), tail("redis", outcome="missed"))),
        (NOT, drives(tail("flurry-disk", outcome="missed"), tail("flurry", outcome="met"))),
        (UNDECIDED, drives(tail("flurry"), tail("redis", outcome="met"))),
        (UNDECIDED, drives(tail("redis", outcome="met"))),
    ],
    "flurry_routes_around": [
        (HOLDS, struck(("flurry", "stop", 400), ("flurry", "kill", 9), ("redis", "kill", 9_000))),
        (NOT, struck(("flurry", "stop", 600), ("flurry", "kill", 9))),
        (UNDECIDED, struck(("flurry", "busy", 400), ("redis", "stop", 9), ("redis", "kill", 9))),
    ],
    "first_hides_delays": [
        (HOLDS, log(last=25.0)),
        (NOT, log(last=17.0, quorum=40.0)),
        (UNDECIDED, log(last=20.0)),
    ],
    "first_beats_quorum": [
        (HOLDS, log(quorum=13.0)),
        (NOT, log(quorum=10.0, last=40.0)),
        (UNDECIDED, log(quorum=11.0)),
    ],
    "means_alike_maxima_not": [
        (HOLDS, log(means=(1.0, 1.5), maxima=(30.0, 75.0))),
        (NOT, log(means=(1.0, 1.5), maxima=(30.0, 33.0))),
        (NOT, log(means=(1.0, 2.5), maxima=(30.0, 120.0))),
        (UNDECIDED, log(means=(1.0, 1.2), maxima=(30.0, 45.0))),
    ],
    "quorum_has_outliers": [
        (HOLDS, log(outliers=Outliers(5, 0, None))),
        (NOT, log(n=110_000, outliers=Outliers(0, 0, None))),
        (UNDECIDED, log(n=90_000, outliers=Outliers(0, 0, None))),
    ],
    "a_fifth_vanishes": [
        (HOLDS, vanish(0.14, 0.3)),
        (NOT, vanish(0.45, 0.55)),
        (NOT, vanish(0.07, 0.09)),
        (UNDECIDED, vanish(0.05, 0.3)),
    ],
    "slowest_stay_slow": [
        (HOLDS, slowest(17, 3)),
        (NOT, slowest(3, 17)),
        (UNDECIDED, slowest(5, 5)),
    ],
}

# Streams -------------------------------------------------------------------------------


def stream(protocol, load, keeps=None, *, share=0.96, cost=100.0, in_doubt=False, by=0.01):
    end = End(around(cost, by))
    bandwidth = around(share * 1e9, by)
    return Stream(protocol, load, 1e9, bandwidth, keeps, end, end, in_doubt)


def alone(**shares):
    return run(streams=tuple(stream(it.replace("_", "-"), "none", share=share)
                             for it, share in shares.items()))  # fmt: skip


def costs(java, native):
    return run(streams=(stream("jvm-tcp", "none", cost=java), stream("tcp", "none", cost=native)))


def beside(load, in_doubt=(), **keeps):
    return run(
        streams=tuple(
            stream(
                name.replace("_", "-"), load, it if isinstance(it, Interval) else around(it),
                in_doubt=name in in_doubt,
            )
            for name, it in keeps.items()
        )
    )  # fmt: skip


OTHERS = {"tcp": 0.6, "quic": 0.5, "kcp": 0.4}
NEAR = spans(0.75, 0.96, 0.85)
STREAMS = {
    "streams_saturated": [
        (HOLDS, alone(tcp=0.96, udp=0.95, sctp=0.1)),
        (NOT, alone(tcp=0.96, udp=0.7)),
        (UNDECIDED, alone(sctp=0.96)),
    ],
    "streams_java_costs_more": [
        (HOLDS, costs(125.0, 100.0)),
        (NOT, costs(80.0, 100.0)),
        (UNDECIDED, costs(100.0, 100.0)),
    ],
    "streams_all_lose_beside_processors": [
        (HOLDS, beside("cpu", tcp=spans(0.7, 0.8), udp=NEAR)),
        (NOT, beside("cpu", tcp=spans(0.5, 0.6), udp=spans(0.975, 0.985))),
        (UNDECIDED, beside("cpu", tcp=spans(0.5, 0.6), udp=spans(0.9, 1.05))),
        (UNDECIDED, beside("cpu", ("tcp",), tcp=spans(0.7, 0.8))),
    ],
    "streams_all_lose_beside_collector": [
        (HOLDS, beside("gc", jvm_tcp=spans(0.7, 0.8), tcp=spans(0.99, 1.01))),
        (NOT, beside("gc", jvm_tcp=spans(0.975, 0.985), aeron=spans(0.1, 0.2))),
        (UNDECIDED, beside("gc", jvm_tcp=spans(0.9, 1.05))),
        (UNDECIDED, beside("gc", ("jvm_tcp",), jvm_tcp=spans(0.7, 0.8))),
    ],
    "streams_udp_least_sctp_most": [
        (HOLDS, beside("cpu", udp=0.8, tcp=0.6, quic=0.5, enet=0.2, sctp=0.3)),
        (NOT, beside("cpu", udp=0.7, **{**OTHERS, "tcp": 0.9}, sctp=0.3)),
        (NOT, beside("cpu", udp=0.8, **OTHERS, sctp=0.55)),
        (UNDECIDED, beside("cpu", udp=0.8, **OTHERS, enet=0.2, sctp=0.4)),
        (UNDECIDED, beside("cpu", ("kcp",), udp=0.8, **OTHERS, sctp=0.3)),
    ],
    "streams_jgroups_keeps_little": [
        (HOLDS, beside("gc", jgroups_udp=0.1)),
        (NOT, beside("gc", jgroups_udp=0.15)),
        (UNDECIDED, beside("gc", jgroups_udp=spans(0.1, 0.14))),
        (UNDECIDED, beside("gc", ("jgroups_udp",), jgroups_udp=0.1)),
    ],
    "streams_library_suffers_most": [
        (HOLDS, beside("gc", aeron=0.4, aeron_daemon=0.5)),
        (NOT, beside("gc", aeron=0.55, aeron_daemon=0.5)),
        (UNDECIDED, beside("gc", aeron=0.475, aeron_daemon=0.5)),
        (UNDECIDED, beside("gc", ("aeron",), aeron=0.4, aeron_daemon=0.5)),
    ],
    "streams_nio_suffers_more": [
        (HOLDS, beside("cpu", jvm_nio=0.4, jvm_tcp=0.5)),
        (NOT, beside("cpu", jvm_nio=0.55, jvm_tcp=0.5)),
        (UNDECIDED, beside("cpu", jvm_nio=0.475, jvm_tcp=0.5)),
        (UNDECIDED, beside("cpu", ("jvm_tcp",), jvm_nio=0.4, jvm_tcp=0.5)),
    ],
}
PLANTED = {**MATRIX, **GROUPS, **STORES, **STREAMS, **CHAINS, **APPLICATIONS}
