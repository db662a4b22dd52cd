"""What a run can promise of one operation: a ladder of percentiles, and each step in words.

The verdict, the report and the notebook say it alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unruly.quantity import duration
from unruly.shown import Sheet, Shown
from unruly.stats.blocks import DRIFTS

if TYPE_CHECKING:
    from unruly.contract import Refusal
    from unruly.stats import Interval

StepName = Literal["p50", "p90", "p95", "p99", "p99.9", "p99.99"]
CONFIDENCE = "95 % confidence or better"
SPOILED = "a measurement that cannot be trusted promises nothing"


@dataclass(frozen=True, repr=False)
class PromiseStep(Shown):
    """One percentile of one (cell, op): what this run can promise of it, or why it cannot.

    ``interval`` is two-sided at 95 %, ``promise`` the upper bound, one-sided at 97.5 %: the highest
    step is chosen after seeing the data, and at that level the choice keeps 95 %. Both are None
    when the step is refused; ``reason`` then says why in plain words and ``details`` with numbers.
    """

    name: StepName
    """As people write it: ``"p99.9"``."""
    p: float
    estimate: float | None
    interval: Interval | None
    promise: Interval | None
    lower_bound: float | None
    """The percentile is at least this, at 97.5 %; known also when the step is refused."""
    abstained: Refusal | None = None
    """The rule that refused: "A1" (not enough data), "A2a" (the tail drifted), "A2b" (latency
    drifted, the tail with it) or "short" (the source has no blocks of time). None when failed
    requests refused it, and when the step has a promise."""
    reason: str | None = None
    details: str = ""
    needed_ns: float | None = None
    """About the run length that would do; the least one after a drift."""
    note: str = ""
    """Of a promise: typical latency drifted, the tail did not follow."""

    def _sheet(self) -> Sheet:
        if self.promise is None:
            return Sheet(f"{self.name}: {step_refusal(self)}")
        return Sheet(f"{bound_words(self, 'requests')}, {CONFIDENCE}")

    @property
    def drifted(self) -> bool:
        """Latency drifted: a longer run may not help, and ``needed_ns`` is the least length."""
        return self.abstained in DRIFTS


@dataclass(frozen=True, repr=False)
class PromiseLadder(Shown):
    """The steps p50, p90, p95, p99, p99.9, p99.99 of one (cell, op).

    They are not monotone: when typical latency drifts and the tail does not follow, the p99 has a
    promise and the p50 has none. Only the highest promise may be published.
    """

    steps: tuple[PromiseStep, ...] = ()

    def _sheet(self) -> Sheet:
        rows = [(it.name, it._sheet().line) for it in self.steps]
        best = self.highest
        return Sheet(best._sheet().line if best else "no promise", ("step", "promise"), rows)

    @property
    def highest(self) -> PromiseStep | None:
        """The highest step that has a promise; None when not even the p50 has."""
        return next((step for step in reversed(self.steps) if step.promise is not None), None)

    @property
    def next(self) -> PromiseStep | None:
        """The first refused step above the highest promise; None above the last step."""
        highest = self.highest
        place = self.steps.index(highest) + 1 if highest else 0
        return self.steps[place] if place < len(self.steps) else None

    def step(self, name: str) -> PromiseStep | None:
        """The step of this name, such as ``"p99.9"``."""
        return next((step for step in self.steps if step.name == name), None)


def share_words(step: PromiseStep) -> str:
    """Write the share of requests that a step is about.

    Examples
    --------
    >>> from unruly.base.promise import PromiseStep
    >>> share_words(PromiseStep("p99.9", 0.999, None, None, None, None))
    '99.9 %'
    """
    return f"{100 * step.p:.10g} %"


def bound_words(step: PromiseStep, label: str) -> str:
    """Write the bound of a step that has a promise: ``99 % of read within 4.90 ms``."""
    assert step.promise is not None
    return f"{share_words(step)} of {label} within {duration(step.promise.high)}"


def next_words(ladder: PromiseLadder) -> str:
    """Say what the next step needs; empty above the last step.

    Examples
    --------
    >>> from unruly.base.promise import PromiseLadder, PromiseStep
    >>> refused = PromiseStep(
    ...     "p50", 0.5, 9.0, None, None, None, "A1", "not enough data", needed_ns=180e9
    ... )
    >>> next_words(PromiseLadder((refused,)))
    'p50 needs about 3 min'
    """
    step = ladder.next
    if step is None:
        return ""
    if step.needed_ns is None:
        return f"no promise for the {step.name}: {step.reason}"
    if step.drifted:
        return (
            f"{step.name} needs at least {duration(step.needed_ns)}, because {reason_words(step)}"
        )
    return f"{step.name} needs about {duration(step.needed_ns)}"


def step_refusal(step: PromiseStep) -> str:
    """Say why a step has no interval and how long a run would: ``not enough data; run ...``."""
    return f"{step.reason or ''}{length_words(step)}"


def reason_words(step: PromiseStep) -> str:
    """Say why a step was refused, as the end of a sentence after "because"."""
    reason = step.reason or ""
    return "there is not enough data" if reason == "not enough data" else reason


def length_words(step: PromiseStep) -> str:
    """Say how long a run would give the step a promise; empty when that is unknown."""
    if step.needed_ns is None:
        return ""
    return f"; run {'at least' if step.drifted else 'about'} {duration(step.needed_ns)}"
