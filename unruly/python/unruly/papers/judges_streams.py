"""What a run of streams says of the claims of the study of throughput stability.

A share that a protocol keeps is that of the cells without a competing load, with its interval over
repeats; a ratio of two shares has the bounds that both intervals allow together. Cells whose
competing load was off its share decide nothing: nobody knows what they were beside.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import scipy

from unruly.papers.judgement import (
    HOLDS,
    LEVEL,
    NOT,
    UNDECIDED,
    Judgement,
    all_of,
    beside_line,
    unknown,
)
from unruly.quantity import percent
from unruly.stats import Interval, interval_of_ratio
from unruly.topics.streams.hypotheses import is_jvm
from unruly.topics.streams.model import CPU, GC, NONE
from unruly.topics.streams.verdicts import SATURATED_LEAST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.papers.evidence import End, Evidence, Stream

KERNEL: Final = ("tcp", "udp", "jvm-tcp", "jvm-nio", "jvm-udp")
ALIKE: Final = 0.95
"""A share of at least so much of another's is no worse."""
PAPER_JGROUPS: Final = 0.06
"""What JGroups over UDP kept beside the collector."""
OF_ITS_ORDER: Final = 2.0
"""Twice that is still of its order."""
NO_CHANGE: Final = 1.0
"""Who keeps surely less than this has lost some; who costs surely more than this costs more."""
AMONG: Final = 1 / 3
"""A protocol is among those that suffer most if at most this share of the others keep less."""


def _row(evidence: Evidence, protocol: str, load: str) -> Stream | None:
    rows = evidence.streams
    return next((row for row in rows if (row.protocol, row.load) == (protocol, load)), None)


def _loaded(evidence: Evidence, load: str) -> list[Stream]:
    return [row for row in evidence.streams if row.load == load and _whole(row.of_unloaded)]


def _whole(found: Interval | None) -> bool:
    return found is not None and None not in (found.estimate, found.low, found.high)


def _bounds(found: Interval) -> tuple[float, float, float]:
    return found.estimate or 0.0, found.low or 0.0, found.high or 0.0


def _over(first: Interval, second: Interval) -> Interval | None:
    """A ratio; None where one of the two is nothing."""
    if not (first.estimate and second.estimate):
        return None
    ratio, low, high = interval_of_ratio(_bounds(second), _bounds(first))
    return Interval(ratio, low, high, LEVEL, 0, None, "both intervals")


def _kept(row: Stream) -> Interval:
    """What a row of ``_loaded`` keeps."""
    assert row.of_unloaded is not None
    return row.of_unloaded


def saturated(evidence: Evidence) -> Judgement:
    """Kernel TCP and UDP saturate the link: so the slowest of them does."""
    rows = [_row(evidence, protocol, NONE) for protocol in KERNEL]
    shares = {
        row.protocol: [bound / row.link_bps for bound in _bounds(row.bandwidth_bps)]
        for row in rows
        if row and row.link_bps and row.bandwidth_bps and _whole(row.bandwidth_bps)
    }
    if not shares:
        return unknown("no stream of the kernel's has a bandwidth over a link with a rate")
    worst = min(shares, key=lambda protocol: shares[protocol][0])
    share, low, high = shares[worst]
    each = all(bounds[1] > SATURATED_LEAST for bounds in shares.values())
    surely_not = any(bounds[2] < SATURATED_LEAST for bounds in shares.values())
    sentence = f"the slowest of {len(shares)} is {worst}, {percent(share)} of the link"
    verdict = NOT if surely_not else HOLDS if each else UNDECIDED
    return Judgement(verdict, share, low, high, sentence, tuple(shares))


def java_costs_more(evidence: Evidence) -> Judgement:
    """Both ends of TCP from Java take more processor time for a message than native ones."""
    rows = [_row(evidence, protocol, NONE) for protocol in ("jvm-tcp", "tcp")]
    sums = [_both(row.writer, row.reader) for row in rows if row]
    java, native = sums if len(sums) == len(rows) else (None, None)
    if java is None or native is None:
        return unknown("jvm-tcp and tcp do not both say what a message costs")
    found = _over(java, native)
    if found is None:
        return unknown("the CPU time of a message of one of them is too small to measure")
    sentence = f"a message of jvm-tcp costs {found.estimate:.2f} x the CPU time of one of tcp"
    return replace(beside_line(found, NO_CHANGE, sentence, above=True), systems=("jvm-tcp", "tcp"))


def _both(writer: End, reader: End) -> Interval | None:
    """The cost of a message at both ends: as little, and as much, as both may be."""
    parts = [end.cpu_per_message_ns for end in (writer, reader)]
    known = [part for part in parts if part is not None and _whole(part)]
    if len(known) < len(parts):
        return None
    total, low, high = (sum(bounds) for bounds in zip(*map(_bounds, known), strict=True))
    return Interval(total, low, high, LEVEL, 0, None, "both intervals")


def _all_lose(rows: Sequence[Stream], what: str) -> Judgement:
    """Every one keeps less than before: it holds if each does, and not if one surely does not."""
    if not rows:
        return unknown(f"no {what} has both bandwidths, with intervals")
    most, least = (pick(rows, key=lambda row: _bounds(_kept(row))[0]) for pick in (max, min))
    keeps = _kept(most)
    sentence = (
        f"{most.protocol} keeps most, {percent(keeps.estimate)}, {least.protocol} least, "
        f"{percent(_kept(least).estimate)}, of {len(rows)}"
    )
    # who may have lost a part of a hundred has lost nothing that anybody feels
    surely_not = any((_at_once(_kept(row), len(rows)).low or 0.0) > ALIKE for row in rows)
    each = all((_at_once(_kept(row), len(rows)).high or math.inf) < NO_CHANGE for row in rows)
    verdict = NOT if surely_not else HOLDS if each else UNDECIDED
    found = Judgement(verdict, keeps.estimate, keeps.low, keeps.high, sentence)
    return _unless_in_doubt(found, *rows)


def _at_once(found: Interval, many: int) -> Interval:
    """Return an interval that holds at once with `many` - 1 others (Bonferroni), on logarithms."""
    estimate, low, high = _bounds(found)
    if not (estimate > 0 and low > 0):
        return Interval(estimate, None, None, LEVEL, found.n, found.n_effective, found.method)
    level = 1 - (1 - LEVEL) / many
    free = max(1, found.n - 1)
    wider = scipy.stats.t.ppf((1 + level) / 2, free) / scipy.stats.t.ppf((1 + LEVEL) / 2, free)
    low, high = (float(estimate * (bound / estimate) ** wider) for bound in (low, high))
    return Interval(estimate, low, high, level, found.n, found.n_effective, found.method)


def _unless_in_doubt(found: Judgement, *rows: Stream) -> Judgement:
    """Return it with its protocols, undecided if the load of one was off its share."""
    found = replace(found, systems=tuple(row.protocol for row in rows))
    if not any(row.in_doubt for row in rows):
        return found
    sentence = f"{found.sentence}; the competing load was off its share, so that decides nothing"
    return replace(found, verdict=UNDECIDED, sentence=sentence)


def all_lose_beside_processors(evidence: Evidence) -> Judgement:
    """Beside busy processors every protocol loses bandwidth."""
    return _all_lose(_loaded(evidence, CPU), "protocol")


def all_lose_beside_collector(evidence: Evidence) -> Judgement:
    """Beside a collector every protocol of Java loses bandwidth."""
    rows = [row for row in _loaded(evidence, GC) if is_jvm(row.protocol)]
    return _all_lose(rows, "protocol of Java")


def udp_least_sctp_most(evidence: Evidence) -> Judgement:
    """Beside busy processors UDP loses least, and SCTP is among those that lose most."""
    return all_of([_udp_loses_least(evidence), _sctp_among_most(evidence)])


def _udp_loses_least(evidence: Evidence) -> Judgement:
    rows = _loaded(evidence, CPU)
    udp = next((row for row in rows if row.protocol == "udp"), None)
    others = [row for row in rows if row.protocol not in ("udp", "jvm-udp")]
    if udp is None or not others:
        return unknown("udp and others do not both have a share with an interval")
    best = max(others, key=lambda row: _bounds(_kept(row))[0])
    found = _over(_kept(udp), _kept(best))
    if found is None:
        return unknown("nothing came beside the load")
    sentence = (
        f"udp keeps {percent(_kept(udp).estimate)}, {best.protocol} {percent(_kept(best).estimate)}"
    )
    return _unless_in_doubt(beside_line(found, ALIKE, sentence, above=True), udp, *others)


def _sctp_among_most(evidence: Evidence) -> Judgement:
    """At most a third of the others surely keep less than SCTP."""
    rows = _loaded(evidence, CPU)
    sctp = next((row for row in rows if row.protocol == "sctp"), None)
    others = [row for row in rows if row.protocol != "sctp"]
    if sctp is None or not others:
        return unknown("sctp and others do not both have a share with an interval")
    keeps, low, high = _bounds(_kept(sctp))
    below = sum(_bounds(_kept(row))[2] < low for row in others)
    perhaps = sum(_bounds(_kept(row))[1] < high for row in others)
    most = AMONG * len(others)
    verdict = HOLDS if perhaps <= most else NOT if below > most else UNDECIDED
    sentence = f"sctp keeps {percent(keeps)}, and surely {below} of {len(others)} others keep less"
    return _unless_in_doubt(Judgement(verdict, keeps, low, high, sentence), sctp, *others)


def jgroups_keeps_little(evidence: Evidence) -> Judgement:
    """JGroups over UDP keeps 6 % beside the collector, or a part of that order."""
    row = next((it for it in _loaded(evidence, GC) if it.protocol == "jgroups-udp"), None)
    if row is None:
        return unknown("jgroups-udp has no share with an interval beside a collector")
    sentence = f"jgroups-udp keeps {percent(_kept(row).estimate)} beside the collector"
    found = beside_line(_kept(row), OF_ITS_ORDER * PAPER_JGROUPS, sentence, above=False)
    return _unless_in_doubt(found, row)


def library_suffers_most(evidence: Evidence) -> Judgement:
    """A protocol in the collected machine keeps less than one whose work is done by a daemon."""
    return _worse(evidence, GC, "aeron", "aeron-daemon")


def nio_suffers_more(evidence: Evidence) -> Judgement:
    """NIO keeps less beside busy processors than plain sockets."""
    return _worse(evidence, CPU, "jvm-nio", "jvm-tcp")


def _worse(evidence: Evidence, load: str, worse: str, better: str) -> Judgement:
    rows = {row.protocol: row for row in _loaded(evidence, load)}
    if not {worse, better} <= rows.keys():
        return unknown(f"{worse} and {better} do not both have a share with an interval")
    first, second = _kept(rows[worse]), _kept(rows[better])
    found = _over(first, second)
    if found is None:
        return unknown(f"nothing came of {worse} or {better} beside the load")
    sentence = (
        f"beside {load} {worse} keeps {percent(first.estimate)}, "
        f"{better} {percent(second.estimate)}"
    )
    judged = beside_line(found, ALIKE, sentence, above=False)
    return _unless_in_doubt(judged, rows[worse], rows[better])


JUDGES: Final = {
    "streams_saturated": saturated,
    "streams_java_costs_more": java_costs_more,
    "streams_all_lose_beside_processors": all_lose_beside_processors,
    "streams_udp_least_sctp_most": udp_least_sctp_most,
    "streams_all_lose_beside_collector": all_lose_beside_collector,
    "streams_jgroups_keeps_little": jgroups_keeps_little,
    "streams_library_suffers_most": library_suffers_most,
    "streams_nio_suffers_more": nio_suffers_more,
}
