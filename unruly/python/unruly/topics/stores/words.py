"""What is found of a store, as one calm sentence each: its target, its faults, its load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.base.words import named
from unruly.quantity import about, count, duration, percent, rate, times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from unruly.base.tails import Tail
    from unruly.stats import Step
    from unruly.topics.stores.faults import FaultEffect
    from unruly.topics.stores.loads import Load, Ramp
    from unruly.topics.stores.statistics import Stores

FEW = 2
"""Up to this many (cell, op) get words of their own; more are counted by outcome."""


def target_sentence(stores: Stores, label: Callable[[Tail], str]) -> str:
    """Return a sentence that says which (cell, op) met the target."""
    rows = stores.tails
    wanted = stores.target.words
    if len(rows) <= FEW:
        return f"{wanted}: " + "; ".join(f"{label(row)} {target_words(row)}" for row in rows)
    parts = []
    for outcome, words in (
        ("met", "met by"), ("missed", "missed by"), ("open", "not decided yet for"),
    ):  # fmt: skip
        found = [row for row in rows if row.target.outcome == outcome]
        if len(found) == len(rows):
            parts.append(f"{words} all {len(rows)}")
        elif found:
            listed = f" ({named([label(row) for row in found])})" if outcome != "met" else ""
            parts.append(f"{words} {len(found)} of {len(rows)}{listed}")
    needed = [row.target.needed for row in rows if row.target.needed]
    more = f"; about {about(max(needed))} requests of each would decide" if needed else ""
    return f"{wanted}: " + ", ".join(parts) + more


def target_words(row: Tail) -> str:
    """Return words that say whether one (cell, op) met the target."""
    within = row.target.within
    if within.estimate is None or within.low is None or within.high is None:
        return "had no request"
    between = f"{percent(within.estimate)} [{percent(within.low)}, {percent(within.high)}]"
    of = f"of {count(row.n)}"
    if row.target.outcome == "met":
        return f"meets it, with {between} {of} within"
    if row.target.outcome == "missed":
        return f"misses it, with {between} {of} within"
    needed = row.target.needed
    more = f"about {about(needed)} would decide" if needed else "no number of them would decide"
    return f"is not decided yet, with {between} {of} requests within; {more}"


def worst_fault(effects: Sequence[FaultEffect]) -> FaultEffect | None:
    """Return the effect that hurts most; None if no effect hurts noticeably."""
    hurt = [it for it in effects if is_hurt(it)]
    return max(hurt, key=lambda it: it.rank) if hurt else None


def is_hurt(effect: FaultEffect) -> bool:
    """Return whether requests failed, a write was lost, or p99 or silence doubled."""
    return effect.failed > 0 or effect.lost > 0 or effect.silent or effect.hurt >= 2.0


def is_comparable(effect: FaultEffect) -> bool:
    """Return whether there is a fault-free p99 or silence to compare with, or requests failed."""
    known = effect.p99_ratio is not None or effect.free_gap_ns is not None
    return effect.failed > 0 or known


def unseen_sentence(effects: Sequence[FaultEffect]) -> str:
    """Return why no fault hurts: some cannot be compared, or none shows in the requests."""
    unknown = [it for it in effects if not is_comparable(it)]
    if not unknown:
        return "no fault shows in the requests scheduled during it"
    several = len({it.cell for it in effects}) > 1
    longest = max(unknown, key=lambda it: it.gap_ns or 0.0)
    all_of_them = len(unknown) == len(effects)
    which = "the faults" if all_of_them else f"{len(unknown)} of {len(effects)} faults"
    return (
        f"{which} cannot be compared: {longest.absent['p99_ratio']}; the longest time without a "
        f"good reply was {duration(longest.gap_ns)} ({fault_name(longest, several=several)})"
    )


def fault_name(effect: FaultEffect, *, several: bool) -> str:
    """Name a fault: its kind, whose, and in which cell where there are several."""
    where = f" ({effect.cell})" if several else ""
    return f"{effect.kind.removeprefix('fault ')} of {effect.process}{where}"


def fault_sentence(effect: FaultEffect, *, several: bool) -> str:
    """Say what one fault did."""
    name = fault_name(effect, several=several)
    failed = f"{count(effect.failed)} of {count(effect.due)}"
    if not effect.due:
        hurt = "no request was due in it"
    elif effect.p99 is None:
        hurt = f"{failed} requests due in it failed"
    else:
        ratio = effect.p99_ratio
        hurt = f"the p99 was {duration(effect.p99)}"
        hurt += "" if ratio is None else f", {times(ratio)} the fault-free one"
        hurt += f", and {failed} failed" if effect.failed else ""
    gap = f"; the longest time without a good reply was {duration(effect.gap_ns)}"
    gap += f" ({duration(effect.free_gap_ns)} without faults)" if effect.silent else ""
    back = effect.back_ns or ()
    never = sum(it is None for it in back)
    if never:
        times_never = f" after {never} of {len(back)}" if len(back) > 1 else ""
        again = f", and none came again{times_never} before the next fault or the end"
    elif any(back):
        again = f", and one came again {duration(max(it or 0.0 for it in back))} after its begin"
    else:
        again = ""
    lost = f"; {count(effect.lost)} replies lacked an acknowledged write" if effect.lost else ""
    return f"{name} ({duration(effect.lasted_ns)}): {hurt}{gap}{again}{lost}{_beside(effect)}"


def _beside(effect: FaultEffect) -> str:
    if not effect.beside:
        return ""
    when = "" if effect.beside == effect.times else f" {effect.beside} of {effect.times} times"
    return f"; another fault was going on meanwhile{when}, and these are the effects of both"


def knee_sentence(ramp: Ramp) -> str:
    """Say where the p99 breaks."""
    found, loads = ramp.knee, ramp.loads
    where = f" ({ramp.series})" if ramp.series else ""
    if found.holds is None:
        lowest = f"at {rate(loads[0].asked_hz)}, the lowest load that was tried"
        return f"the p99{where} does not hold even {lowest}{_whose(loads[0])}{_sure(ramp)}"
    held = f"the p99{where} holds up to {rate(found.holds)}"
    beyond = _next(ramp)
    if beyond is None:
        return f"{held}, the highest load that was tried{_sure(ramp)}"
    load, step = beyond
    ratio = step.ratio.estimate if step.ratio else None
    if ratio is not None and ratio != float("inf"):
        broken = f"at {rate(step.offered)} it is {times(ratio)} that at the lowest load"
    else:
        broken = f"at {rate(step.offered)} more than 1 % fail"
    share = step.achieved.estimate or 0.0
    less = f", and {100 * share:.0f} % of the load is answered" if share < 0.95 else ""
    return f"{held}; {broken}{less}{_whose(load)}{_sure(ramp)}"


def _whose(load: Load) -> str:
    return " (there the generator was late itself)" if load.own else ""


def _sure(ramp: Ramp) -> str:
    """Between which loads it lies, where that says more than the estimate, or less."""
    found, beyond = ramp.knee, _next(ramp)
    if found.surely is None and found.breaks is None:
        alone = max(load.repeats for load in ramp.loads) == 1
        return "; one repeat says no more" if alone else "; the repeats leave it open"
    if found.surely == found.holds and found.breaks == (beyond[1].offered if beyond else None):
        return ""
    if found.surely is None:
        place = f"below {rate(found.breaks or 0.0)}"
    elif found.breaks is None:
        place = f"at {rate(found.surely)} or above"
    else:
        place = f"between {rate(found.surely)} and {rate(found.breaks)}"
    return f"; with 95 % confidence the knee lies {place}"


def _next(ramp: Ramp) -> tuple[Load, Step] | None:
    """The load above the highest that holds."""
    steps = zip(ramp.loads, ramp.knee.steps, strict=True)
    return next((it for it in steps if it[1].offered > (ramp.knee.holds or 0.0)), None)
