"""One sentence for each piece of advice, that a person can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.quantity import duration, percent, significant
from unruly.stats.replies import WHAT_IF
from unruly.topics.advice.model import EVERY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.stats import Interval, Profit, ProfitPeak, SlaTable, Way, Ways
    from unruly.topics.advice.ground import Wanted
    from unruly.topics.advice.model import Absent, DetectionPoint, ReplicasPoint, XftPoint

UNSEEN_EVENTS = 3.7
"""What may have been missed when nothing was seen, at 95 %: the bound of a share of 0."""


def detection(
    op: str,
    points: Sequence[DetectionPoint],
    chosen: float | None,
    pings: int,
    members: int | None,
    wanted: Wanted,
) -> str:
    """Say what the chosen timeout does."""
    point = next((it for it in points if it.timeout_ns == chosen), points[-1])
    rate = point.false_per_hour
    if rate.estimate:
        often = (
            f"each pair is wrongly suspected {significant(rate.estimate)} times an hour "
            f"({significant(rate.low)} to {significant(rate.high)})"
        )
    else:
        often = (
            f"none of {pings:,} pings was late, which proves at most {significant(rate.high)} "
            "false suspicions an hour and pair"
        )
    sets = ""
    if point.missed is not None and members:
        all_but = int(point.missed.estimate or 0)
        who = "all members" if not all_but else f"all but {all_but} of {members} members"
        sets = (
            f"; {who} were seen in time by everybody in {percent(wanted.confidence)} of the windows"
        )
    return (
        f"{op}: with T = {duration(point.timeout_ns)} {often}, and a crash is known within "
        f"{duration(point.detection_max_ns)}{sets}"
    )


def replicas(
    op: str,
    points: Sequence[ReplicasPoint],
    chosen: float | None,
    windows: int,
    window_ns: int,
    wanted: Wanted,
) -> str:
    """Say how many replicas do, surely, by the estimate alone, or that none can be spared."""
    f = wanted.faults
    most = 2 * f + 1
    point = next((it for it in points if it.timeout_ns == chosen), None)
    if point is None:
        return (
            f"{op}: at no T up to {duration(points[-1].timeout_ns)} do fewer than 2f+1 = {most} "
            f"replicas do: stay with {most}"
        )
    found = point.replicas
    for_t = f"{op}: with T = {duration(point.timeout_ns)}"
    told = percent(wanted.confidence)
    s, peers, n = int(found.s.estimate or 0), found.size - 1, int(found.n.estimate or most)
    if found.saves > 0:
        s, n = int(found.s.high or 0), int(found.n.high or most)
        return (
            f"{for_t} {_slower(s, peers)} in {told} of the windows ({percent(found.s.level)} "
            f"confidence): 2f+1 = {most} falls to f+s+1 = {n}"
        )
    slow = f"{_slower(s, peers)} in {told} of {windows} windows"
    if n < most:
        needed = UNSEEN_EVENTS / (1 - wanted.confidence)
        # some windows were slow: it takes more to prove that they are as few
        longer = max(1.5, needed / windows) * windows * window_ns
        return (
            f"{for_t} {slow}, so f+s+1 = {n} would do, but so few windows do not prove it: stay "
            f"with 2f+1 = {most}, or measure about {duration(longer)}"
        )
    return f"{for_t} {slow}, no fewer: stay with 2f+1 = {most}"


def _slower(s: int, peers: int) -> str:
    if peers == 1:
        return "the one peer was " + ("not slower" if s == 0 else "slower or not")
    if s == 0:
        return f"none of {peers} peers was slower"
    return f"at most {s} of {peers} peers {'was' if s == 1 else 'were'} slower"


def cross_faults(op: str, points: Sequence[XftPoint], chosen: float | None, faults: int) -> str:
    """Compare the nines at the chosen timeout."""
    point = next((it for it in points if it.timeout_ns == chosen), points[-1])
    nines, sure = point.nines, point.sure
    worth = (
        "XFT is worth it"
        if sure.xft_consistency - sure.cft_consistency >= 1
        else "whether XFT is worth it is not sure"
        if nines.xft_consistency - nines.cft_consistency >= 1
        else "XFT is not worth it"
    )
    return (
        f"{op}: with T = {duration(point.timeout_ns)} a member is partitioned "
        f"{percent(point.partitioned.estimate)} of the time (at most "
        f"{percent(point.partitioned.high)}): {2 * faults + 1} replicas have "
        f"{nines.cft_consistency:.1f} nines of consistency with CFT, {nines.xft_consistency:.1f} "
        f"with XFT (surely {sure.xft_consistency:.1f}), and {3 * faults + 1} have "
        f"{nines.bft_consistency:.1f} with BFT; {worth}"
    )


def profit(what: str, found: Profit, requests: int) -> str:
    """Return a sentence: the profit of a cell or of the run, and the share lost to latency."""
    rate = found.per_hour
    bounds = (
        f" ({significant(rate.low)} to {significant(rate.high)})"
        if rate.low is not None and rate.high is not None
        else ""
    )
    lost = (
        "nothing is lost to latency or failures"
        if not found.lost_share
        else f"{percent(found.lost_share)} of what the same requests could earn is lost to latency "
        "and failures"
    )
    beyond = found.counts[-1]
    penalty = f", {beyond:,} of {requests:,} pay the penalty" if beyond else ""
    return f"{what} earns {significant(rate.estimate)} an hour{bounds}; {lost}{penalty}"


def peak(factor: str, others: dict[str, str], found: ProfitPeak) -> str:
    """Say where profit falls."""
    where = f" at {', '.join(f'{k} = {v}' for k, v in others.items())}" if others else ""
    best = (
        f"profit{where} is largest at {factor} = {significant(found.load)} "
        f"({significant(found.per_hour.estimate)} an hour)"
    )
    if found.falls:
        less = significant(found.falls_at)
        return f"{best} and surely less from {less} on: stay at or below the peak"
    if found.falls is None:
        return f"{best}; the lower profit beyond it may be chance: measure longer there"
    return f"{best}, the highest load that was measured: measure higher ones to find where it falls"


def hedge(op: str, peers: int, ways: Ways, chosen: Way | None) -> str:
    """Compare the ways of asking at the p99, and say which hedge would help."""
    first, every, single = (_p99(way) for way in (ways.first, ways.all, ways.single))
    told = (
        f"{op}: of {peers} peers the first answers within {first} at the p99, all within {every}, "
        f"a single one within {single}"
    )
    if chosen is None or chosen.extra is None:
        return f"{told}; no hedge that adds at most a tenth would surely shorten that ({WHAT_IF})"
    return (
        f"{told}; a second copy after {duration(chosen.delay_ns)} makes it {_p99(chosen)} for "
        f"{percent(chosen.extra.estimate)} more requests ({WHAT_IF})"
    )


def _p99(way: Way) -> str:
    return duration(way.quantiles[0.99])


def interval(found: Interval, show: str = "") -> str:
    """Write an estimate with its bounds."""
    low = "-" if found.low is None else significant(found.low)
    high = "no bound" if found.high is None else significant(found.high)
    return f"{significant(found.estimate)}{show} ({low} to {high})"


def steps(table: SlaTable) -> str:
    """Write an agreement.

    Examples
    --------
    >>> from unruly.stats import DEFAULT_SLA
    >>> steps(DEFAULT_SLA)
    '200 ms 0.002, 500 ms 0.0015, 1 s 0.0013, 2 s 0.0005, beyond -0.0047'
    """
    parts = [
        f"{duration(bound)} {significant(pays)}"
        for bound, pays in zip(table.at_most_ns, table.pays, strict=False)
    ]
    return ", ".join([*parts, f"beyond {significant(table.pays[-1])}"])


def by_reason(absent: Sequence[Absent]) -> dict[str, list[str]]:
    """For each reason why there is no advice, whom it is about, each once."""
    found: dict[str, list[str]] = {}
    for it in absent:
        who = "anything" if it.cell == it.op == EVERY else it.op if it.op != EVERY else it.cell
        if who not in found.setdefault(it.reason, []):
            found[it.reason].append(who)
    return found
