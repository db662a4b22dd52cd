"""The figures of a run so far: one state, which the page and both exports show."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from unruly import quantity
from unruly.base.ladder import PERCENTILES, STEPS, ladder_blocks, promise_ladder
from unruly.base.promise import PromiseLadder, step_refusal
from unruly.live.tally import Tally, percentile
from unruly.stats.blocks import BLOCKS
from unruly.stats.histogram import FAILED_BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.base.promise import PromiseStep

SHOWN: Final = ("p50", "p90", "p99", "p99.9")
TRIALS_MOST: Final = 100
OPS_MOST: Final = 64
"""Operations that are shown and exported."""


@dataclass(frozen=True)
class Operation:
    """One operation of the trial that goes on."""

    name: str
    n: int
    failed: int
    ladder: PromiseLadder | None
    """None before there are enough seconds for it."""
    estimates: dict[str, float]
    """Percentiles (ns) by the names of `SHOWN`; inf among the failed."""
    episodes: float | None
    """Independent episodes of requests beyond the p99."""


@dataclass
class State:
    """Takes the lines of the runner, and has the figures so far.

    `lock` is the caller's concern: lines and readers come from different threads.
    """

    clock: Callable[[], float] = time.monotonic
    about: dict[str, Any] = field(default_factory=dict)
    trial: dict[str, Any] = field(default_factory=dict)
    begun_s: float = 0.0
    begun_wall_ns: int = 0
    """When the trial began (ns since 1970)."""
    tally: Tally = field(default_factory=Tally)
    failed: Counter[str] = field(default_factory=Counter)
    """Copies that failed in this trial, by status; also in the warm-up, also those tried again."""
    latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The last second of each process."""
    sent: Counter[int] = field(default_factory=Counter)
    lag_most_ns: float = 0.0
    done: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    stopped: bool = False
    """A person ended the run before its time."""
    refused: int = 0
    """Lines that could not be read."""
    _known: tuple[int, list[Operation]] = (-1, [])
    _lines: int = 0

    def hear(self, line: dict[str, Any]) -> None:
        """Take one line: a run, a trial that begins, a second of a process, or the end."""
        self._lines += 1
        if "run" in line:
            self.about = line["run"]
        elif "trial" in line:
            self._close()
            self.trial, self.begun_s = line["trial"], self.clock()
            self.begun_wall_ns = time.time_ns()
            self.tally, self.failed, self.lag_most_ns = Tally(), Counter(), 0.0
            self.latest, self.sent, self._known = {}, Counter(), (-1, [])
        elif "second" in line:
            self._second(line["second"])
        elif "end" in line:
            self._close()
            self.ended, self.stopped = True, bool(line["end"].get("stopped"))

    def _second(self, second: dict[str, Any]) -> None:
        process = int(second["process"])
        bins = [(str(op), int(b), int(n)) for op, b, n in second["bins"]]
        self.tally.hear(process, bins, int(second["place"]))
        self.failed.update({str(k): int(n) for k, n in second["failed"].items()})
        self.latest[process] = second
        self.sent[process] += int(second["sent"])
        self.lag_most_ns = max(self.lag_most_ns, float(second["lag_ns"]))

    def _close(self) -> None:
        """Keep the figures of a trial that ends."""
        for op in self.operations() if self.trial and not self.ended else ():
            step = op.ladder.step("p99") if op.ladder else None
            self.done.append({
                "cell": self.trial["cell"], "number": self.trial["number"], "op": op.name,
                "n": quantity.count(op.n), "failed": quantity.count(op.failed),
                "p99": _shown(op.estimates["p99"]), "between": _between(step),
            })  # fmt: skip
        self.done = self.done[-TRIALS_MOST:]

    def operations(self) -> list[Operation]:
        """Return the figures of each operation, the most frequent first."""
        if self._known[0] != self._lines:
            found = [self._operation(name) for name in self._shown_ops()]
            self._known = (self._lines, sorted(found, key=lambda it: -it.n))
        return self._known[1]

    def _shown_ops(self) -> list[str]:
        """Return the operations that were met first: which they are does not change in a trial."""
        return list(self.tally.ops)[:OPS_MOST]

    def _operation(self, name: str) -> Operation:
        buckets, counts = self.tally.blocks(name)
        total = counts.sum(axis=1, keepdims=True)
        values = {it: float(percentile(buckets, total, p)[0]) for it, p in PERCENTILES.items()}
        n = int(total.sum())
        failed = int(total[buckets >= FAILED_BUCKET].sum())
        ladder = episodes = None
        if self.tally.seconds >= BLOCKS:
            figures = {it: value if np.isfinite(value) else None for it, value in values.items()}
            blocks = ladder_blocks(buckets, counts, figures)
            absent = dict.fromkeys(STEPS, "its requests failed")
            ladder = promise_ladder(
                blocks, figures, absent, n=n, failed=failed,
                duration_ns=self.tally.seconds * quantity.NS_PER_S,
            )  # fmt: skip
            episodes = float(blocks[0.99].n_effective)
        estimates = {
            it: values[field] if n >= round(1 / (1 - PERCENTILES[field])) or it == "p50" else np.nan
            for it, field in ((it, it.replace(".", "_")) for it in SHOWN)
        }
        return Operation(name, n, failed, ladder, estimates, episodes)

    @property
    def phase(self) -> str:
        """``starting``, ``warming up``, ``measuring``, ``ending``, ``ended`` or ``stopped``."""
        if self.ended:
            return "stopped" if self.stopped else "ended"
        if not self.trial:
            return "starting"
        past_ns = (self.clock() - self.begun_s) * quantity.NS_PER_S
        if past_ns < self.trial["warmup_ns"]:
            return "warming up"
        whole = self.trial["warmup_ns"] + self.trial["duration_ns"]
        return "measuring" if past_ns < whole else "ending"

    def document(self) -> dict[str, Any]:
        """Return all that the page shows; texts are ready to be read."""
        sent_hz = 0 if self.ended else sum(int(it["sent"]) for it in self.latest.values())
        lag_ns = max((float(it["lag_ns"]) for it in self.latest.values()), default=0.0)
        dropped = sum(int(it["dropped"]) for it in self.latest.values())
        asked = self.trial.get("rate")
        rate = quantity.rate(sent_hz) if self.latest else quantity.DASH
        return {
            "run": self.about,
            "trial": self.trial,
            "phase": self.phase,
            "past_s": self.clock() - self.begun_s if self.trial else 0,
            "seconds": self.tally.seconds,
            "facts": [
                ["Sent", quantity.count(self.sent.total())]
                if self.ended
                else [
                    "Sent in the last second",
                    rate + (f" of {quantity.rate(asked)}" if asked else ""),
                ],
                ["Open requests", quantity.count(sum(it["open"] for it in self.latest.values()))],
                ["Failed", _failures(self.failed)],
                ["Send delay of the load generator", _lag(lag_ns, self.lag_most_ns)],
                *([["Rows dropped", quantity.count(dropped)]] if dropped else []),
            ],
            "ops": [_op(it, self.tally.seconds) for it in self.operations()],
            "series": self._series(),
            "done": self.done,
        }

    def _series(self) -> dict[str, Any]:
        """Percentiles of all operations together over time; null where there is none."""
        buckets, counts = self.tally.over_time()
        lines = {
            name: [float(it) if np.isfinite(it) else None for it in percentile(buckets, counts, p)]
            for name, p in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        }
        good = counts[buckets < FAILED_BUCKET] if buckets.size else counts
        bad = counts.sum(axis=0) - good.sum(axis=0)
        width = self.tally.width_s
        return {
            "width_s": width,
            "answered_hz": (good.sum(axis=0) / width).tolist(),
            "failed_hz": (bad / width).tolist(),
            **lines,
        }


def _op(op: Operation, seconds: int) -> dict[str, Any]:
    steps = []
    for name in SHOWN:
        step = op.ladder.step(name) if op.ladder else None
        known = step is not None and step.interval is not None
        steps.append({
            "name": name,
            "value": _shown(op.estimates[name]),
            "known": known,
            "text": _between(step) if known else _why(step, seconds),
        })  # fmt: skip
    episodes = quantity.DASH
    if op.episodes is not None:
        episodes = "under 1" if op.episodes < 1 else quantity.significant(op.episodes, 2)
    return {
        "name": op.name,
        "n": quantity.count(op.n),
        "failed": quantity.count(op.failed),
        "episodes": episodes,
        "steps": steps,
    }


def _between(step: PromiseStep | None) -> str:
    if step is None or step.interval is None:
        return ""
    low, high = step.interval.low, step.interval.high
    if high is None:
        return f"at least {quantity.duration(low)}"
    return f"between {quantity.duration(low)} and {quantity.duration(high)}"


def _why(step: PromiseStep | None, seconds: int) -> str:
    if step is None:
        left = BLOCKS - seconds
        return f"an interval needs {left} s more" if left > 0 else "not known yet"
    return step_refusal(step) or "not known yet"


def _shown(value: float) -> str:
    return "failed" if np.isinf(value) else quantity.duration(None if np.isnan(value) else value)


def _lag(now_ns: float, most_ns: float) -> str:
    return f"{quantity.duration(now_ns)}; at most {quantity.duration(most_ns)} so far"


def _failures(failed: Counter[str]) -> str:
    if not failed:
        return "none"
    kinds = ", ".join(f"{quantity.count(n)} {status}" for status, n in failed.most_common(3))
    return f"{quantity.count(failed.total())} ({kinds}{', ...' if len(failed) > 3 else ''})"
