"""The audit in words that need no statistics, and as JSON."""

from __future__ import annotations

import re
import textwrap
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly.auditing import FEW
from unruly.quantity import about, count, duration, percent
from unruly.stats.blocks import EPISODES_MIN
from unruly.stats.claims import EARLY_LEVEL, FEWEST, LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.auditing import Audited
    from unruly.stats.claims import Claims, Held, Omission

GOOD: Final = 0.9
"""A claim of 95 % that holds as often as this is called sound."""
LEVEL_SHOWN: Final = f"{100 * LEVEL:.0f} %"
EARLY_SHOWN: Final = f"{100 * EARLY_LEVEL:.0f} %"
ASSUMED: Final = "It assumes that each request is slow or fast by itself."
NO_BREAK: Final = "\u00a0"
BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s|min|h|d)\b)")
NAMED: Final = 6
"""The operations with few requests that are named."""
OUTCOMES: Final = {
    "sound": "worth what it says",
    "unsure": "less certain than it looks",
    "omits": "probably leaves out waiting",
    "undecided": "not known from this file",
    "silent": "nothing can be said",
    "failed": "too many failures",
}
"""What a percentile is worth, in a few words."""


def audit_text(found: Sequence[Audited], *, width: int = 80) -> str:
    """Return the audit of all operations, the conclusion of each first."""
    blocks = [_block(it, width) for it in shown(found)]
    said = [*left_out(found), *([f"How to read this: {legend(found[0])}"] if found else [])]
    blocks += ["\n".join(_wrapped(it, width)) for it in said]
    return "\n\n".join(blocks)


def shown(found: Sequence[Audited]) -> list[Audited]:
    """Return the audits without operations of few requests, but the first one of each file."""
    first = {it.file: it for it in reversed(found)}
    return [it for it in found if it.why != FEW or it is first[it.file]]


def left_out(found: Sequence[Audited]) -> list[str]:
    """Return a sentence for the operations of each file that have no words of their own."""
    said, kept = [], set(map(id, shown(found)))
    for file in dict.fromkeys(it.file for it in found):
        own = [it for it in found if it.file == file]
        names = [place_of(it) for it in own if id(it) not in kept]
        if names:
            more = f" and {count(len(names) - NAMED)} more" if len(names) > NAMED else ""
            said.append(
                f"{file}: nothing can be said about operations with fewer than {FEWEST} requests: "
                f"{', '.join(names[:NAMED])}{more}."
            )
        if own[0].ops_left_out:
            number = count(own[0].ops_left_out)
            said.append(f"{file}: {number} more operations, with fewer requests, were left out.")
    return said


def meaning(it: Audited) -> str:
    """Return what the percentile of an audit is.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> meaning(SimpleNamespace(p=0.99)), meaning(SimpleNamespace(p=0.97))
    ('the p99 is the time that 1 request in 100 exceeds', 'the p97 is the time that 3 % of the \
requests exceed')
    """
    one_in = 1 / (1 - it.p)
    if abs(one_in - round(one_in)) < 1e-6 * one_in:
        return f"the {name_of(it)} is the time that 1 request in {count(one_in)} exceeds"
    return f"the {name_of(it)} is the time that {percent(1 - it.p)} of the requests exceed"


def legend(it: Audited) -> str:
    """Return how to read an audit, for a reader without statistics."""
    name = name_of(it)
    return (
        f"{meaning(it)}. A run is a sample of what a system does, so its {name} is an estimate, "
        f"and bounds say where the true {name} lies. Most tools compute bounds as if each request "
        f"were slow or fast by itself. In truth slow requests come together, because one pause "
        f"delays every request that arrives during it. A file with thousands of slow requests may "
        f"hold only a few independent cases, and then the usual bounds are too narrow."
    )


def audit_json(found: Sequence[Audited]) -> dict[str, Any]:
    """Return the audit for a program; times are in ns, and null stands for the unknown."""
    documents = []
    for it in found:
        document = asdict(replace(it, points=None))
        del document["points"]
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


def outcome(it: Audited) -> str:
    """Return what the percentile of one operation is worth: a key of `OUTCOMES`."""
    if it.estimate is None and it.failed:
        return "failed"
    if it.claims is None:
        return "silent"
    if _omits(it):
        return "omits"
    held = it.claims.interval_held
    if held is None:
        return "undecided"
    return "sound" if held.share >= GOOD else "unsure"


def _omits(it: Audited) -> bool:
    """Return whether requests that were not sent would lift the percentile out of its bounds."""
    if it.omission is None or it.claims is None or it.claims.interval_held is None:
        return False
    if it.omission.estimate is None:
        return True
    return it.claims.high is not None and it.omission.estimate > it.claims.high


def conclusion(it: Audited) -> str:
    """Return the first sentence: what the percentile of one operation is worth."""
    name, found = name_of(it), outcome(it)
    if found == "failed":
        return (
            f"there is no {name}: {count(it.failed)} of {count(it.n)} requests failed, and a "
            f"failed request counts as slower than every reply"
        )
    known = it.estimate is not None and it.n * (1 - it.p) >= 1
    shown = f"the {name} of {duration(it.estimate)}" if known else f"its {name}"
    if found == "silent":
        return f"nothing can be said about {shown}, because {it.why}"
    if found == "omits" and it.omission:
        said = (
            f"{shown} probably leaves out waiting: about {missing(it.omission)} fewer requests "
            f"than usual were sent while slow ones were open"
        )
        with_them = it.omission.estimate
        return (
            f"{said}, and with them it would be near {duration(with_them)}" if with_them else said
        )
    if found == "undecided":
        return f"this file cannot show what {shown} is worth: {reason(it)}"
    if found == "sound":
        return f"{shown} is worth what it says"
    assert it.claims is not None
    assert it.claims.interval_held is not None
    return (
        f"{shown} is less certain than it looks: bounds from the usual formula would be right in "
        f"about {share(it.claims.interval_held)} of such runs, not in {LEVEL_SHOWN}"
    )


def reason(it: Audited) -> str:
    """Return why the file supports no bounds of its percentile."""
    assert it.claims is not None
    own = it.claims.own
    if own.abstained == "A1" and not it.claims.beyond:
        return f"no request was slower than its {name_of(it)}"
    if own.abstained == "A1":
        return (
            f"{_slower(it)}, but they came in about {episodes(it.claims)}, and {EPISODES_MIN:g} "
            f"are needed"
        )
    return str(own.reason)


def _slower(it: Audited) -> str:
    assert it.claims is not None
    number = it.claims.beyond
    return f"{count(number)} {'request was' if number == 1 else 'requests were'} slower"


def episodes(found: Claims) -> str:
    """Return in how many independent episodes the slow requests came."""
    number = min(found.episodes, float(found.beyond))
    return f"{about(number)} independent episodes" if number >= 2 else "one independent episode"


def share(held: Held) -> str:
    """Return how often a claim holds, in whole per cent."""
    return f"{100 * held.share:.0f} %"


def span(held: Held) -> str:
    """Return the range of `share`."""
    return f"{100 * held.low:.0f} % to {100 * held.high:.0f} %"


def size(it: Audited) -> str:
    """Return how many requests there are, how many failed, and how long the run was."""
    length = f" in {duration(it.duration_ns)}" if it.duration_ns else ""
    failed = f", {count(it.failed)} failed" if it.failed else ""
    said = f"{count(it.n)} {'request' if it.n == 1 else 'requests'}{length}{failed}."
    if it.left_out:
        said += f" The last {count(it.left_out)} requests of the file were left out."
    return said


def place_of(it: Audited) -> str:
    """Return the operation, and the cell and repeat if there are several."""
    where = f" in {it.cell}" if it.cell not in ("", "all") else ""
    where += f", repeat {it.repeat + 1}" if it.repeat else ""
    return f"{it.op}{where}"


def _block(it: Audited, width: int) -> str:
    lines = _wrapped(f"{it.file} ({it.format}), {place_of(it)}: {conclusion(it)}.", width)
    said = [size(it)]
    if it.claims and it.claims.estimate is not None:
        said += [claimed(it), held(it), supported(it), length(it)]
    for sentence in filter(None, [*said, waits(it)]):
        lines += _wrapped(sentence, width, "  ")
    return "\n".join(lines)


def glued(text: str) -> str:
    """Return the text with a space that does not break between a number and its unit."""
    return BEFORE_UNIT.sub(NO_BREAK, text)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return lines that keep a number and its unit together, with plain spaces."""
    lines = textwrap.wrap(glued(text), width, initial_indent=indent, subsequent_indent=indent)
    return [line.replace(NO_BREAK, " ") for line in lines]


def claimed(it: Audited) -> str:
    """Return what tools claim of such a file, and what they assume."""
    assert it.claims is not None
    found, name = it.claims, name_of(it)
    if found.low is None:
        return f"The file is too short for any bounds of its {name}, even from the usual formula."
    if found.high is None:
        return (
            f"The usual formula puts the {name} at {duration(found.low)} or more, with "
            f"{LEVEL_SHOWN} confidence. {no_upper(found.high_failed)} {ASSUMED}"
        )
    said = (
        f"The usual formula puts the {name} between {duration(found.low)} and "
        f"{duration(found.high)}, with {LEVEL_SHOWN} confidence."
    )
    if found.bound is None:
        return f"{said} {ASSUMED}"
    return (
        f"{said} MLPerf's early stopping puts it at {duration(found.bound)} or less, with "
        f"{EARLY_SHOWN} confidence. {ASSUMED.replace('It assumes', 'Both assume')}"
    )


def held(it: Audited) -> str:
    """Return how often such claims hold; empty if the file cannot show it."""
    assert it.claims is not None
    found, name = it.claims, name_of(it)
    if found.interval_held is None:
        return ""
    said = (
        f"{_slower(it)} than the {name}, in about {episodes(found)}. If such a run were repeated, "
        f"the usual bounds would contain the true {name} in {share(found.interval_held)} of the "
        f"runs (range {span(found.interval_held)}); the formula claims {LEVEL_SHOWN}."
    )
    if found.bound_held:
        said += (
            f" MLPerf's bound would be right in {share(found.bound_held)} (range "
            f"{span(found.bound_held)}); it claims {EARLY_SHOWN}."
        )
    return said


def supported(it: Audited) -> str:
    """Return the bounds that the file supports; empty if there are none."""
    assert it.claims is not None
    name, found = name_of(it), it.claims.own.interval
    if found is None or found.low is None:
        return ""
    if not found.high:
        return (
            f"This file supports: the {name} is {duration(found.low)} or more. "
            f"{no_upper(it.failed > 0)}"
        )
    return (
        f"This file supports: the {name} lies between {duration(found.low)} and "
        f"{duration(found.high)}, with {LEVEL_SHOWN} confidence, even if slow requests come "
        f"together. It knows nothing of pauses that the run did not meet."
    )


def no_upper(among_failed: bool) -> str:
    """Return why there is no upper bound."""
    if among_failed:
        return "Its upper bound falls among the failed requests, however long the run is."
    return "The file is too short for an upper bound."


def at_least(it: Audited) -> bool:
    """Return whether a run length that gives any bounds is only known to be no shorter."""
    return it.claims is not None and it.claims.own.abstained in ("A2a", "A2b")


def length(it: Audited) -> str:
    """Return the run length that would support the claim; empty if it is this one or unknown."""
    assert it.claims is not None
    name, own = name_of(it), it.claims.own
    if outcome(it) == "unsure" and it.as_narrow_ns:
        return (
            f"To know the {name} as exactly as the usual formula claims, measure for about "
            f"{duration(it.as_narrow_ns)}."
        )
    if own.abstained and it.needed_ns:
        least = "at least" if at_least(it) else "about"
        return f"To have any bounds of the {name}, measure for {least} {duration(it.needed_ns)}."
    return ""


def waits(it: Audited) -> str:
    """Return whether waits before the send are missing."""
    if it.scheduled:
        return "The file has scheduled times, so its latencies include the wait before the send."
    if it.omission:
        found = it.omission
        said = (
            f"While slow requests were open, only {percent(found.share)} of the usual requests "
            f"were sent, as from clients that wait for a reply before they send again (coordinated "
            f"omission). If they did, about {missing(found)} requests are missing."
        )
        if found.estimate is not None:
            said += f" With them the {name_of(it)} would be near {duration(found.estimate)}."
        return (
            f"{said} This is an estimate, and the other figures leave it out. To measure it, send "
            f"on a schedule."
        )
    if it.seen:
        return (
            "The file has no sign of clients that waited for slow requests before they sent "
            "others (coordinated omission). But a wait before the send is not in its latencies."
        )
    return (
        f"This file cannot show whether clients waited for slow requests before they sent others "
        f"(coordinated omission), because {_unseen(it)}."
    )


def missing(found: Omission) -> str:
    """Return about how many requests were not sent."""
    return about(max(0.0, found.expected - found.sent))


def _unseen(it: Audited) -> str:
    if it.n < FEWEST:
        return FEW
    if it.duration_ns is None:
        return "it has no time of each request"
    if it.covered:
        return "slow requests were open nearly all the time, so nothing shows how many are usual"
    return "its times are whole seconds"
