"""What a run of streams says of the claims of the study of throughput stability.

A share that a protocol keeps is that of the cells without a competing load, with its interval over
repeats; a ratio of two shares has the bounds that both intervals allow together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import scipy

from unruly.papers.judgement import (
    HOLDS,
    LEVEL,
    NOT,
    UNDECIDED,
    Judgement,
    beside_line,
    unknown,
)
from unruly.quantity import percent
from unruly.stats import Interval, interval_of_ratio
from unruly.topics.streams.hypotheses import is_jvm
from unruly.topics.streams.model import CPU, GC, NONE, streams_of
from unruly.topics.streams.verdicts import SATURATED_LEAST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.base.analysis import Analysis
    from unruly.topics.streams.model import End, Stream

KERNEL: Final = ("tcp", "udp", "jvm-tcp", "jvm-nio", "jvm-udp")
ALIKE: Final = 0.95
"""A share of at least so much of another's is no worse."""
PAPER_JGROUPS: Final = 0.06
"""What JGroups over UDP kept beside the collector; twice that is still of its order."""


def _row(analysis: Analysis, protocol: str, load: str) -> Stream | None:
    rows = held.rows if (held := streams_of(analysis)) else ()
    return next((row for row in rows if (row.protocol, row.load) == (protocol, load)), None)


def _loaded(analysis: Analysis, load: str) -> list[Stream]:
    rows = held.rows if (held := streams_of(analysis)) else ()
    return [row for row in rows if row.load == load and _whole(row.of_unloaded)]


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


def saturated(analysis: Analysis) -> Judgement:
    """Kernel TCP and UDP saturate the link: so the slowest of them does."""
    rows = [_row(analysis, protocol, NONE) for protocol in KERNEL]
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
    return Judgement(
        NOT if surely_not else HOLDS if each else UNDECIDED, share, low, high, sentence
    )


def java_costs_more(analysis: Analysis) -> Judgement:
    """Both ends of TCP from Java take more processor time for a message than native ones."""
    rows = [_row(analysis, protocol, NONE) for protocol in ("jvm-tcp", "tcp")]
    sums = [_both(row.writer, row.reader) for row in rows if row]
    java, native = sums if len(sums) == len(rows) else (None, None)
    if java is None or native is None:
        return unknown("jvm-tcp and tcp do not both say what a message costs")
    found = _over(java, native)
    if found is None:
        return unknown("the CPU time of a message of one of them is too small to measure")
    sentence = f"a message of jvm-tcp costs {found.estimate:.2f} x the CPU time of one of tcp"
    return beside_line(found, 1.0, sentence, above=True)


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
        f"{percent(_kept(least).estimate)}, of {len(rows)}{_doubt(*rows)}"
    )
    # who may have lost a part of a hundred has lost nothing that anybody feels
    surely_not = any((_at_once(_kept(row), len(rows)).low or 0.0) > ALIKE for row in rows)
    each = all((_at_once(_kept(row), len(rows)).high or 2.0) < 1 for row in rows)
    verdict = NOT if surely_not else HOLDS if each else UNDECIDED
    return Judgement(verdict, keeps.estimate, keeps.low, keeps.high, sentence)


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


def _doubt(*rows: Stream) -> str:
    """Words for rows whose competing load was off its share."""
    return "; its load was off its share" if any(row.in_doubt for row in rows) else ""


def all_lose_beside_processors(analysis: Analysis) -> Judgement:
    """Beside busy processors every protocol loses bandwidth."""
    return _all_lose(_loaded(analysis, CPU), "protocol")


def all_lose_beside_collector(analysis: Analysis) -> Judgement:
    """Beside a collector every protocol of Java loses bandwidth."""
    rows = [row for row in _loaded(analysis, GC) if is_jvm(row.protocol)]
    return _all_lose(rows, "protocol of Java")


def udp_loses_least(analysis: Analysis) -> Judgement:
    """Beside busy processors UDP loses least: no other keeps more of its bandwidth."""
    rows = _loaded(analysis, CPU)
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
    return beside_line(found, ALIKE, sentence, above=True)


def jgroups_keeps_little(analysis: Analysis) -> Judgement:
    """JGroups over UDP keeps 6 % beside the collector, or a part of that order."""
    row = next((it for it in _loaded(analysis, GC) if it.protocol == "jgroups-udp"), None)
    if row is None:
        return unknown("jgroups-udp has no share with an interval beside a collector")
    sentence = f"jgroups-udp keeps {percent(_kept(row).estimate)} beside the collector{_doubt(row)}"
    return beside_line(_kept(row), 2 * PAPER_JGROUPS, sentence, above=False)


def library_suffers_most(analysis: Analysis) -> Judgement:
    """A protocol in the collected machine keeps less than one whose work is done by a daemon."""
    return _worse(analysis, GC, "aeron", "aeron-daemon")


def nio_suffers_more(analysis: Analysis) -> Judgement:
    """NIO keeps less beside busy processors than plain sockets."""
    return _worse(analysis, CPU, "jvm-nio", "jvm-tcp")


def _worse(analysis: Analysis, load: str, worse: str, better: str) -> Judgement:
    rows = {row.protocol: row for row in _loaded(analysis, load)}
    if not {worse, better} <= rows.keys():
        return unknown(f"{worse} and {better} do not both have a share with an interval")
    first, second = _kept(rows[worse]), _kept(rows[better])
    found = _over(first, second)
    if found is None:
        return unknown(f"nothing came of {worse} or {better} beside the load")
    sentence = (
        f"beside {load} {worse} keeps {percent(first.estimate)}, "
        f"{better} {percent(second.estimate)}{_doubt(rows[worse], rows[better])}"
    )
    return beside_line(found, ALIKE, sentence, above=False)
