"""What a run that drives stores, or an arrival log of Flurry, says of the study of data stores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unruly.papers.judgement import (
    HOLDS,
    NOT,
    UNDECIDED,
    Judgement,
    all_of,
    beside_line,
    between,
    most,
    unknown,
)
from unruly.quantity import duration
from unruly.stats import Interval, interval_of_ratio

if TYPE_CHECKING:
    from unruly.papers.evidence import Evidence, Operations, Tail

FLURRY: Final = "flurry"
ORDER: Final = 10.0
TWO_ORDERS: Final = 100.0
ENOUGH: Final = 100_000
"""So many requests without an outlier say that there is none of the kind that the study saw."""
ALIKE: Final = 2.0
"""Means are alike if they are surely within this factor."""
HIDDEN: Final = 2.0
"""First hides a slow replica if waiting for all replies surely takes this many times as long."""
LARGER: Final = 2.0
NO_LARGER: Final = 1.25
"""A maximum gains from the first reply beyond the first of these; below the second it does not."""
BETTER: Final = 1.1
A_FIFTH: Final = (0.1, 0.4)
"""About a fifth: within a factor of two."""
OF_STUDY: Final = ("cassandra", "garage", "memcached")
"""The stores of the study; Garage stands for Riak."""
AS_SLOW: Final = 0.9
DETECTED_NS: Final = 500e6
MS: Final = 1e6


def _tails(evidence: Evidence) -> dict[str, list[Tail]]:
    """Return the tails of each store."""
    found: dict[str, list[Tail]] = {}
    if evidence.stores is not None:
        for it in evidence.stores.tails:
            name = evidence.stores.store_of(it.cell, evidence.facts.store)
            found.setdefault(name, []).append(it)
    return found


def _is_flurry(store: str) -> bool:
    return store.partition("-")[0] == FLURRY


def _outliers_of(evidence: Evidence, store: str) -> Judgement:
    """The slowest request of a store took more than a hundred times the mean."""
    rows = [it for it in _tails(evidence).get(store, ()) if it.mean_ok and it.max_ok is not None]
    if not rows:
        return unknown(f"the run does not drive {store}")
    worst = max((it.max_ok or 0) / (it.mean_ok or 1) for it in rows)
    enough = sum(it.n for it in rows) >= ENOUGH
    failed = sum(it.failed for it in rows)
    verdict = HOLDS if worst > TWO_ORDERS else NOT if enough and not failed else UNDECIDED
    sentence = f"the slowest request of {store} took {worst:.0f} x the mean"
    if failed:
        sentence += f"; {failed:,} failed, and may have taken longer"
    return Judgement(verdict, worst, None, None, sentence, (store,))


def cassandra_has_outliers(evidence: Evidence) -> Judgement:
    """Cassandra on a virtual machine has outliers."""
    return _outliers_of(evidence, "cassandra")


def garage_has_outliers(evidence: Evidence) -> Judgement:
    """Garage, which stands for Riak, has outliers on a virtual machine."""
    return _outliers_of(evidence, "garage")


def memcached_has_outliers(evidence: Evidence) -> Judgement:
    """Memcached on a virtual machine has outliers."""
    return _outliers_of(evidence, "memcached")


def far_tail_beyond_mean(evidence: Evidence) -> Judgement:
    """The p99.999 of every store exceeds ten times its mean."""
    parts = []
    for store, rows in _tails(evidence).items():
        for it in rows:
            held = it.p99_999_over_mean
            if held is None:
                why = f"{it.n:,} requests of {store} {it.op} have no p99.999"
                parts.append(unknown(why))
                continue
            words = f"the p99.999 of {store} {it.op} is {held.estimate or 0:.0f} x its mean"
            found = beside_line(held, ORDER, words, above=True)
            parts.append(replace(found, systems=(store,)))
    if not parts:
        return unknown("the run drives no store")
    found = _shortly(all_of(parts), parts)
    missing = [it for it in OF_STUDY if it not in _tails(evidence)]
    if found.verdict == HOLDS and missing:
        told = f"{found.sentence}; of every store it says nothing without {', '.join(missing)}"
        return replace(found, verdict=UNDECIDED, sentence=told)
    return found


def _shortly(found: Judgement, parts: list[Judgement]) -> Judgement:
    """Return it with the sentences of those parts alone that have an estimate."""
    told = [it.sentence for it in parts if it.estimate is not None]
    silent = sum(it.estimate is None for it in parts)
    if silent:
        told.append(f"{silent} of {len(parts)} operations have too few requests for a p99.999")
    return replace(found, sentence="; ".join(told))


def flurry_within_target(evidence: Evidence) -> Judgement:
    """99.999 % of the requests to Flurry are answered within 500 ms."""
    rows = [
        (store, it)
        for store, tails in _tails(evidence).items()
        if _is_flurry(store)
        for it in tails
    ]
    if not rows:
        return unknown("the run does not drive Flurry")
    verdicts = {"met": HOLDS, "missed": NOT}
    parts = [
        Judgement(
            verdicts.get(it.target.outcome, UNDECIDED),
            it.target.within.estimate,
            it.target.within.low,
            it.target.within.high,
            f"the target of {store} {it.op} is {it.target.outcome} after {it.n:,} requests",
            (store,),
        )
        for store, it in rows
    ]
    return all_of(parts)


def flurry_routes_around(evidence: Evidence) -> Judgement:
    """While a server of Flurry is struck, clients have a good reply at least each 500 ms."""
    stores = evidence.stores
    rows = (
        [
            (stores.store_of(it.cell, evidence.facts.store), it)
            for it in stores.faults
            if it.gap_ns is not None
        ]
        if stores
        else []
    )
    ours = [(store, it) for store, it in rows if _is_flurry(store)]
    if not ours:
        return unknown("no fault struck a server of Flurry")
    longest = max(it.gap_ns or 0 for _, it in ours)
    kinds = {it.kind for _, it in ours}
    decides = {"fault stop", "fault kill"} <= kinds
    verdict = NOT if longest > DETECTED_NS else HOLDS if decides else UNDECIDED
    sentence = (
        f"in {len(ours)} faults of {len(kinds)} kinds the longest time without a good reply was "
        f"{duration(longest)}"
    )
    systems = tuple(dict.fromkeys(store for store, _ in ours))
    return Judgement(verdict, longest / MS, None, None, sentence, systems)


def _log(evidence: Evidence) -> tuple[Operations, ...]:
    return evidence.arrivals


def _ratio(row: Operations, slow: str, fast: str, of: str) -> Interval | None:
    """One algorithm over another, of the same operations: as far as both intervals allow."""
    bounds = []
    for name in (fast, slow):
        wait = row.wait(name)
        held = getattr(wait, of) if wait else None
        if held is None or not held.estimate:
            return None
        bounds.append((held.estimate, held.low, held.high))
    found = interval_of_ratio(*bounds)
    return Interval(*found, 0.95, row.n, None, "both intervals")


NO_LOG: Final = "the run is no arrival log, or its numbers have no interval"


def first_hides_delays(evidence: Evidence) -> Judgement:
    """With delays in the servers, the first reply is much faster than all of them at the p99."""
    return _p99s(evidence, "all", HIDDEN)


def first_beats_quorum(evidence: Evidence) -> Judgement:
    """On virtual machines the first reply has the better p99."""
    return _p99s(evidence, "quorum", BETTER)


def _p99s(evidence: Evidence, slow: str, line: float) -> Judgement:
    parts = []
    for row in _log(evidence):
        found = _ratio(row, slow, "first", "p99_interval")
        if found is not None:
            words = f"{row.op}: the p99 of {slow} is {found.estimate:.2f} x that of first"
            parts.append(beside_line(found, line, words, above=True))
    return all_of(parts) if parts else unknown(NO_LOG)


def means_alike_maxima_not(evidence: Evidence) -> Judgement:
    """The means of first, quorum and all are alike, and the maxima are not."""
    parts = []
    for row in _log(evidence):
        mean = _ratio(row, "all", "first", "mean_ok")
        first, last = row.wait("first"), row.wait("all")
        if mean is None or not (first and last and first.max_ok and last.max_ok):
            continue
        words = f"{row.op}: the mean of all is {mean.estimate:.2f} x that of first"
        parts.append(beside_line(mean, ALIKE, words, above=False))
        ratio = last.max_ok / first.max_ok
        verdict = HOLDS if ratio >= LARGER else NOT if ratio < NO_LARGER else UNDECIDED
        parts.append(Judgement(verdict, ratio, None, None, f"its maximum {ratio:.2f} x"))
    return all_of(parts) if parts else unknown(NO_LOG)


def quorum_has_outliers(evidence: Evidence) -> Judgement:
    """Under quorum some operations take more than ten means."""
    rows = [(it.n, it.outliers.n) for it in _log(evidence) if it.outliers]
    if not rows:
        return unknown(NO_LOG)
    n, outliers = (sum(it) for it in zip(*rows, strict=True))
    verdict = HOLDS if outliers else NOT if n >= ENOUGH else UNDECIDED
    sentence = f"{outliers:,} of {n:,} operations are beyond 10 x the mean of the quorum"
    return Judgement(verdict, outliers / n if n else None, None, None, sentence)


def a_fifth_vanishes(evidence: Evidence) -> Judgement:
    """About a fifth of the outliers are none with the first correct reply."""
    parts = [
        between(it.outliers.share, *A_FIFTH, f"{it.op}: {it.outliers.vanished} of {it.outliers.n}")
        for it in _log(evidence)
        if it.outliers and it.outliers.share
    ]
    return all_of(parts) if parts else unknown("no operation is an outlier")


def slowest_stay_slow(evidence: Evidence) -> Judgement:
    """Most of the ten slowest transactions are as slow with the first reply."""
    rows = [it for row in _log(evidence) for it in row.slowest]
    if not rows:
        return unknown(NO_LOG)
    stay = sum(it.first_ns is not None and it.first_ns >= AS_SLOW * it.quorum_ns for it in rows)
    return most(stay, len(rows), "slowest operations are as slow with the first reply")


JUDGES: Final = {
    "cassandra_has_outliers": cassandra_has_outliers,
    "garage_has_outliers": garage_has_outliers,
    "memcached_has_outliers": memcached_has_outliers,
    "far_tail_beyond_mean": far_tail_beyond_mean,
    "flurry_within_target": flurry_within_target,
    "flurry_routes_around": flurry_routes_around,
    "first_hides_delays": first_hides_delays,
    "first_beats_quorum": first_beats_quorum,
    "means_alike_maxima_not": means_alike_maxima_not,
    "quorum_has_outliers": quorum_has_outliers,
    "a_fifth_vanishes": a_fifth_vanishes,
    "slowest_stay_slow": slowest_stay_slow,
}
