"""The audit in words that need no statistics, and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.quantity import about, count, duration, percent
from unruly.stats.claims import EARLY_LEVEL, LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.auditing import Audited
    from unruly.stats.claims import Held

GOOD: Final = 0.9
"""A claim of 95 % that holds as often as this is called sound."""
LEGEND: Final = (
    "How to read this: the p99 is the time that 1 request in 100 exceeds. Its bounds say how "
    "far the p99 of another run of the same system may lie from that of this file. Most tools "
    "compute them as if each request were slow or fast by itself. In truth slow requests come "
    "together, because a pause delays all that arrive meanwhile; then a file holds few "
    "independent cases, and such bounds are too narrow."
)


def audit_text(found: Sequence[Audited], *, width: int = 80) -> str:
    """Return the audit of all operations, the conclusion of each first."""
    blocks = [_block(it, width) for it in found]
    left_out = {it.file: it.ops_left_out for it in found if it.ops_left_out}
    for file, number in left_out.items():
        told = f"{file}: {count(number)} more operations, with fewer requests, were left out."
        blocks.append(textwrap.fill(told, width))
    legend = textwrap.fill(LEGEND, width)
    return "\n\n".join([*blocks, legend])


def audit_json(found: Sequence[Audited]) -> dict[str, Any]:
    """Return the audit for a program; times are in ns, and null stands for the unknown."""
    documents = []
    for it in found:
        document = asdict(it)
        document |= {"needed_ns": it.needed_ns, "as_narrow_ns": it.as_narrow_ns}
        if it.claims:
            own = document["claims"].pop("own")
            kept = ("interval", "abstained", "reason", "details", "n_effective", "design_effect")
            document["claims"]["own"] = {name: own[name] for name in kept}
        document["conclusion"] = conclusion(it)
        documents.append(document)
    return {"schema": 1, "audits": _plain(documents)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def name_of(it: Audited) -> str:
    """Return the percentile as people write it.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> name_of(SimpleNamespace(p=0.999))
    'p99.9'
    """
    return f"p{100 * it.p:.10g}"


def conclusion(it: Audited) -> str:
    """Return the first sentence: what the percentile of one operation is worth."""
    name = name_of(it)
    if it.estimate is None and it.failed:
        return f"there is no {name}: {count(it.failed)} of {count(it.n)} requests failed"
    known = it.estimate is not None and it.n * (1 - it.p) >= 1
    shown = f"the {name} of {duration(it.estimate)}" if known else f"its {name}"
    if it.claims is None:
        return f"nothing can be said about {shown}, because {it.why}"
    held = it.claims.interval_held
    if held is None:
        return f"this file cannot show what {shown} is worth: {_reason(it)}"
    if held.share >= GOOD:
        return f"{shown} is worth what it says"
    return (
        f"{shown} is less sure than it looks: bounds of the usual kind hold in about "
        f"{_share(held)} of such runs, and not in {LEVEL:.0%}".replace("%", " %")
    )


def _reason(it: Audited) -> str:
    assert it.claims is not None
    own = it.claims.own
    if own.abstained == "A1":
        return (
            f"{count(it.claims.beyond)} requests were slower, but they came in about "
            f"{_episodes(it.claims.episodes)}, and 7 are needed"
        )
    return str(own.reason)


def _episodes(number: float) -> str:
    if number < 1.5:
        return "one independent episode"
    return f"{about(number)} independent episodes"


def _share(held: Held) -> str:
    return f"{100 * held.share:.0f}%"


def _range(held: Held) -> str:
    return f"[{100 * held.low:.0f} %, {100 * held.high:.0f} %]"


def _block(it: Audited, width: int) -> str:
    where = f" in {it.cell}" if it.cell not in ("", "all") else ""
    where += f", repeat {it.repeat + 1}" if it.repeat else ""
    length = f" in {duration(it.duration_ns)}" if it.duration_ns else ""
    failed = f", {count(it.failed)} failed" if it.failed else ""
    first = f"{it.file} ({it.format}), {it.op}{where}: {conclusion(it)}."
    lines = textwrap.wrap(first, width)
    said = [f"{count(it.n)} requests{length}{failed}."]
    if it.left_out:
        said.append(f"The last {count(it.left_out)} requests of the file were left out.")
    if it.claims and it.claims.estimate is not None:
        said += [*_claimed(it), *_worth(it)]
    said.append(_waits(it))
    for sentence in said:
        lines += textwrap.wrap(sentence, width, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _claimed(it: Audited) -> list[str]:
    """Say what tools claim of such a file."""
    assert it.claims is not None
    found, name = it.claims, name_of(it)
    low, high = found.low, found.high
    if low is not None and high is not None:
        bounds = f"lies between {duration(low)} and {duration(high)}"
    elif low is not None:
        bounds = f"is at least {duration(low)}"
    else:
        return [
            f"The file is too short for any bounds of its {name}, even of independent requests."
        ]
    said = f"The usual claim: the {name} {bounds} ({LEVEL:.0%} confidence)"
    if found.bound is not None:
        said += (
            f", or at most {duration(found.bound)} ({EARLY_LEVEL:.0%}, as MLPerf's early stopping)"
        )
    said = said.replace("%", " %")
    return [f"{said}. Both take each request for independent of all others."]


def _worth(it: Audited) -> list[str]:
    """Say how often such claims hold, and what this file can really say."""
    assert it.claims is not None
    found, name, own = it.claims, name_of(it), it.claims.own
    said = []
    if found.interval_held:
        held, bound = found.interval_held, found.bound_held
        text = f"Where requests depend as here it holds {_pair(held)}, and not in {LEVEL:.0%}"
        if bound:
            text += f"; the limit of {EARLY_LEVEL:.0%} holds {_pair(bound)}"
        said.append(
            f"{text}. {count(found.beyond)} requests were slower than the {name}; they came in "
            f"about {_episodes(found.episodes)}.".replace("%", " %").replace("  ", " ")
        )
    interval = own.interval
    if interval and interval.low is not None:
        upper = f"and {duration(interval.high)}" if interval.high else "and a time nobody knows"
        said.append(
            f"What this file can say: the {name} lies between {duration(interval.low)} {upper} "
            f"(95 % confidence or better)."
        )
        if it.as_narrow_ns and found.interval_held and found.interval_held.share < GOOD:
            said.append(
                f"To know it as well as the usual claim says, measure for about "
                f"{duration(it.as_narrow_ns)}."
            )
    elif it.needed_ns:
        least = "at least" if own.abstained in ("A2a", "A2b") else "about"
        said.append(
            f"To have any bounds of the {name}, measure for {least} {duration(it.needed_ns)}."
        )
    return said


def _pair(held: Held) -> str:
    return f"in {100 * held.share:.0f} % {_range(held)}"


def _waits(it: Audited) -> str:
    """Say whether waits before the send are missing."""
    if it.scheduled:
        return "The file has scheduled times, so its latencies include the wait before the send."
    if it.omission:
        found = it.omission
        said = (
            f"Not measured: while slow requests were open, {percent(found.share)} of the usual "
            f"requests were sent, as from clients that wait for a reply before they send again "
            f"(coordinated omission). About {count(round(found.expected - found.sent))} requests "
            f"are missing"
        )
        if found.estimate is not None:
            said += f". With them the {name_of(it)} would be near {duration(found.estimate)}"
        return said + ". This is an estimate and corrects nothing."
    if it.seen:
        return (
            "No sign of clients that waited for slow requests before they sent others. A wait "
            "before the send is not in these latencies."
        )
    return (
        "This file cannot show whether clients waited for slow requests before they sent others "
        "(coordinated omission)."
    )
