"""Is B different from A: compares the operations that both sides have, by the runs' design."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd

from unruly.base.cells import histograms_of
from unruly.base.context import Context
from unruly.base.histograms import kept_bins
from unruly.base.ladder import too_few_pieces
from unruly.base.quantiles import quantiles_of
from unruly.errors import ComparisonError
from unruly.quantity import duration, percent
from unruly.shown import Sheet, Shown
from unruly.stats import (
    Interval,
    bin_quantile,
    block_interval,
    grouped_shift,
    interval_of_ratio,
    paired_shift,
    share_interval,
)
from unruly.stats.comparison import GROUP_LEAST
from unruly.stats.histogram import FAILED_BUCKET, bucket_edges
from unruly.tables import requests as request_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unruly.contract import Latency, NotBelowZero, Share
    from unruly.run import Run
    from unruly.stats import Shift

GRID: Final = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
LEVEL: Final = 0.95
NO_BLOCKS: Final = "no blocks of time to judge it by"
ALPHA: Final = 0.05
BEYOND_LEAST: Final = 10
"""Rows expected beyond a quantile, in the smaller of two samples, for it to be compared."""
ALLOWANCE: Final = 0.25
"""How much two single runs of one system may differ, as they do on a shared machine: measured."""
PAIRS_LEAST: Final = 6
BLOCK_BEYOND_LEAST: Final = 5
Direction = Literal["slower", "faster", "not shown", "undecided"]
Outcome = Literal["different", "not shown", "undecided"]


@dataclass(frozen=True)
class Side:
    """One of the things that are compared: its name, and its runs."""

    name: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Sample:
    """The latencies of one (cell, op) of one run, or of one repeat of it."""

    started_ns: int
    n: int
    failed: int
    quantiles: dict[str, float]
    buckets: NDArray[np.int64] = field(repr=False)
    counts: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True)
class Moved:
    """One quantile: A's and B's value (of one run each, else the geometric means), B over A.

    ``outcome`` is "slower", "faster", "not shown" or "undecided" (then ``reason`` says why).
    ``detectable`` is the ratio that would have been found with power 0.8, where that can be said.
    """

    quantile: str
    a: float | None
    b: float | None
    ratio: Interval
    outcome: Direction
    detectable: float | None = None
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """B against A in what both have: ``outcome`` is "different", "not shown" or "undecided"."""

    a: str
    b: str
    cell: str
    op: str
    design: str
    """How many runs of each, and whether they were pairs."""
    p_value: Share | None
    """Adjusted (Holm) over everything that was compared; None for one run each."""
    moved: tuple[Moved, ...]
    failed_a: Interval
    failed_b: Interval
    outcome: Outcome
    sentence: str
    next_step: str

    def _sheet(self) -> Sheet:
        rows = [
            (it.quantile, duration(it.a), duration(it.b), _ratio_words(it), it.outcome)
            for it in self.moved
        ]
        about = ", ".join(part for part in (self.cell, self.op) if part)
        return Sheet(
            f"{self.b} against {self.a}, {about}: {self.sentence}",
            ("quantile", self.a, self.b, "ratio", "outcome"),
            rows,
            f"Next: {self.next_step}" if self.next_step else "",
        )


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Everything that was compared, and what could not be."""

    latency: Latency
    allowance: NotBelowZero
    results: tuple[Compared, ...]
    left_out: tuple[str, ...]

    @property
    def different(self) -> bool:
        """Whether a difference was found anywhere."""
        return any(it.outcome == "different" for it in self.results)

    def _sheet(self) -> Sheet:
        rows = [(it.op, it.cell, it.b, it.outcome, it.sentence) for it in self.results]
        sides = list(dict.fromkeys(name for it in self.results for name in (it.b, it.a)))
        return Sheet(
            f"{' against '.join(sides)}, {self.latency} time: "
            + ("a difference was found" if self.different else "no difference was found"),
            ("operation", "cell", "compared", "outcome", "why"),
            rows,
            "; ".join(self.left_out),
        )


def _ratio_words(moved: Moved) -> str:
    ratio = moved.ratio
    if ratio.estimate is None or ratio.low is None or ratio.high is None:
        return ""
    return f"{ratio.estimate:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]"


Key = tuple[str, str]


def compare(
    sides: Sequence[Side],
    *,
    latency: str = "response",
    op: str | None = None,
    allowance: float = ALLOWANCE,
) -> Comparison:
    """Compare each side after the first with the first.

    Parameters
    ----------
    sides : sequence of Side
        Two or more. Several runs of each are used as what they are: pairs where they were taken in
        turns (in time order an A stands beside each B), else groups.
    latency : str
        ``"response"`` or ``"service"``.
    op : str, optional
        One operation only.
    allowance : float
        For one run each: how much two runs of one system may differ. 0 believes the blocks alone.

    Returns
    -------
    Comparison

    Raises
    ------
    ComparisonError
        Fewer than two sides, or nothing that both have.
    """
    _check(sides, allowance)
    known = _known(latency)
    samples = [[_samples(run, known) for run in side.runs] for side in sides]
    raw, left_out = [], []
    for place in range(1, len(sides)):
        found, missing = _matched(sides[0], samples[0], sides[place], samples[place], op)
        left_out += missing
        raw += [(sides[place].name, key, runs) for key, runs in found]
    if not raw:
        raise ComparisonError(
            " and ".join(side.name for side in sides),
            "have no operation in common" + (f" that is {op!r}" if op else ""),
            "runs of the same operations",
            "`unruly verdict` lists the measured operations",
        )
    judged = [_judge(sides[0].name, name, key, runs, allowance) for name, key, runs in raw]
    return Comparison(known, allowance, tuple(_holm(judged)), tuple(left_out))


def compare_levels(
    run: Run, factor: str, *, latency: str = "response", op: str | None = None
) -> Comparison:
    """Compare the levels of one factor inside a run: its repeats, and its other factors, are pairs.

    The seed of the plan draws the order of the cells, so the order is random.

    Raises
    ------
    ComparisonError
        The run has no such factor, or one level of it, or there is no such latency.
    """
    known = _known(latency)
    levels, others = _levels(run, factor)
    samples = _samples(run, known, by_repeat=True)
    found: dict[str, dict[Any, Sample]] = defaultdict(dict)
    for (cell, name, repeat), sample in samples.items():
        if op in (None, name) and cell in levels:
            found[levels[cell]][others[cell], name, repeat] = sample
    names = list(dict.fromkeys(levels.values()))
    judged = []
    for level in names[1:]:
        ops = sorted({key[1] for key in found[names[0]].keys() & found[level].keys()})
        for name in ops:
            keys = [k for k in found[names[0]] if k in found[level] and k[1] == name]
            pairs = [(found[names[0]][key], found[level][key]) for key in keys]
            label = f"{factor}={level}"
            judged.append(
                _judge(f"{factor}={names[0]}", label, ("", name), _Runs(pairs=pairs), ALLOWANCE)
            )
    if not judged:
        raise ComparisonError(
            run.path, f"has nothing to compare over {factor}", "cells of two levels", "more cells"
        )
    return Comparison(known, ALLOWANCE, tuple(_holm(judged)), ())


def judge_samples(a: str, b: str, held_a: list[Sample], held_b: list[Sample]) -> Compared:
    """Compare samples that are at hand, one run each or groups: what `compare` does with runs."""
    return _judge(a, b, ("", "latency"), _Runs(a=held_a, b=held_b), ALLOWANCE)


def _check(sides: Sequence[Side], allowance: float) -> None:
    if len(sides) < 2:
        raise ComparisonError("compare", "one side", "two or more", "unruly compare A B")
    if not 0 <= allowance < 10:
        raise ComparisonError("--allowance", f"is {allowance}", "0 to 10", "--allowance 0.25")


def _known(latency: str) -> Latency:
    for it in request_tables.LATENCIES:
        if it == latency:
            return it
    wanted = " or ".join(request_tables.LATENCIES)
    raise ComparisonError("--latency", f"is {latency!r}", wanted, "--latency response")


def _levels(run: Run, factor: str) -> tuple[dict[str, str], dict[str, str]]:
    cells = [it for it in run.manifest.get("cells") or [] if isinstance(it, dict)]
    known = sorted({name for it in cells for name in it.get("factors") or {}})
    levels, others = {}, {}
    for it in cells:
        factors = dict(it.get("factors") or {})
        if factor in factors:
            levels[str(it["name"])] = str(factors.pop(factor))
            others[str(it["name"])] = " ".join(f"{k}={v}" for k, v in sorted(factors.items()))
    if len(set(levels.values())) < 2:
        what = f"has no factor {factor!r}" if factor not in known else f"{factor} has one level"
        wanted = f"one of {', '.join(known) or 'none'}"
        raise ComparisonError(run.path, what, wanted, "--factor NAME")
    return levels, others


def _samples(run: Run, latency: Latency, *, by_repeat: bool = False) -> dict[Any, Sample]:
    """Every (cell, op) of a run, or every (cell, op, repeat)."""
    if latency == "service" and run.keeps_bins_alone:
        what = "has histograms of response times, and no service times"
        raise ComparisonError(run.path, what, "a run with its rows", "--latency response")
    context = Context.of(run, lambda _: None)
    found: dict[Any, Sample] = {}
    if not context.empty:
        blocks = {} if by_repeat else {k: (b, c) for k, b, c in histograms_of(context, latency)}
        keys = ["cell", "op", "repeat"] if by_repeat else ["cell", "op"]
        starts = context.extents.groupby(keys)["first_ns"].min().to_dict()
        grid = list(GRID.values())
        frames = [
            quantiles_of(part.rows, keys, grid, part.size, latencies=(latency,))
            for part in context.parts()
        ]
        for row in pd.concat(frames).sort_values(keys).to_dict("records"):
            key = tuple(row[name] for name in keys)
            buckets, counts = blocks.get(key, (np.zeros(0, np.int64), np.zeros((0, 0))))
            values = dict(zip(GRID, map(float, row[latency]), strict=True))
            found[key] = Sample(
                int(starts[key]), int(row["n"]), int(row["failed"]), values, buckets, counts
            )
    for kept in kept_bins(run):
        values = {
            name: quantile.value if quantile.value is not None else float("nan")
            for name, p in GRID.items()
            for quantile in [bin_quantile(kept.low, kept.high, kept.count, p)]
        }
        failed = round(float(kept.count[np.isinf(kept.high)].sum()))
        # one summary of a whole run has no blocks: nothing is known of how its requests depend
        is_cut = too_few_pieces(kept.intervals) is None
        blocks_of = kept.blocks() if is_cut else (np.zeros(0, np.int64), np.zeros((0, 0)))
        key = (kept.cell, kept.op, 0) if by_repeat else (kept.cell, kept.op)
        found[key] = Sample(kept.first_ns, kept.n, failed, values, *blocks_of)
    return found


@dataclass(frozen=True)
class _Runs:
    """The samples that are compared: pairs, or two groups (of one each, perhaps)."""

    pairs: list[tuple[Sample, Sample]] | None = None
    a: list[Sample] = field(default_factory=list)
    b: list[Sample] = field(default_factory=list)


def _matched(
    first: Side,
    samples_a: list[dict[Any, Sample]],
    second: Side,
    samples_b: list[dict[Any, Sample]],
    op: str | None,
) -> tuple[list[tuple[Key, _Runs]], list[str]]:
    """Runs of what both sides have; a cell's name does not matter where each side has one."""
    one_cell = all(len({key[0] for key in held}) == 1 for held in [*samples_a, *samples_b] if held)

    def by_key(held: list[dict[Any, Sample]]) -> dict[Key, list[Sample]]:
        found: dict[Key, list[Sample]] = defaultdict(list)
        for run in held:
            for (cell, name), sample in run.items():
                if name == (op or name) and (name != "*" or op == "*"):
                    found["" if one_cell else cell, name].append(sample)
        return found

    a, b = by_key(samples_a), by_key(samples_b)
    left_out = []
    for side, mine, other, name in ((first, a, b, second.name), (second, b, a, first.name)):
        alone = sorted(
            {key[1] if one_cell else f"{key[1]} ({key[0]})" for key in mine.keys() - other.keys()}
        )
        if alone:
            left_out.append(f"only {side.name} has {', '.join(alone)}, which {name} lacks")
    found = []
    for key in [key for key in a if key in b]:
        pairs = _pairs(a[key], b[key])
        found.append((key, _Runs(pairs=pairs) if pairs else _Runs(a=a[key], b=b[key])))
    return found, left_out


def _pairs(a: list[Sample], b: list[Sample]) -> list[tuple[Sample, Sample]] | None:
    """Pair runs that were taken in turns: in time order each two neighbours are an A and a B."""
    if len(a) != len(b) or len(a) < 2:
        return None
    order = sorted([(s.started_ns, 0, s) for s in a] + [(s.started_ns, 1, s) for s in b],
                   key=lambda it: it[0])  # fmt: skip
    pairs = []
    for one, other in zip(order[0::2], order[1::2], strict=True):
        if one[1] == other[1]:
            return None
        pairs.append((one[2], other[2]) if one[1] == 0 else (other[2], one[2]))
    return pairs


def _judge(a: str, b: str, key: Key, runs: _Runs, allowance: float) -> Compared:
    held_a = [pair[0] for pair in runs.pairs] if runs.pairs else runs.a
    held_b = [pair[1] for pair in runs.pairs] if runs.pairs else runs.b
    names = _comparable(held_a + held_b)
    failed = _failed(held_a), _failed(held_b)
    many = len(held_a) > 1 and len(held_b) > 1
    design = _design(runs, len(held_a), len(held_b))
    one_sided = not many and len(held_a) + len(held_b) > 2
    if (one_sided or not names) and _fails_otherwise(failed):
        return _told(a, b, key, design, None, [], failed)
    if one_sided:
        reason = "one run cannot be compared with several: name as many runs of each side"
        step = "measure both in turns, or name one run of each side"
        return Compared(a, b, *key, design, None, (), *failed, "undecided", reason, step)
    if not names:
        reason = "too few answered requests for any quantile"
        return Compared(a, b, *key, design, None, (), *failed, "undecided", reason, "run longer")
    if not many:
        moved = [_moved_alone(name, held_a, held_b, len(names), allowance) for name in names]
        return _told(a, b, key, design, None, moved, failed)
    logs_a, logs_b = _logs(held_a, names), _logs(held_b, names)
    shift = (paired_shift if runs.pairs else grouped_shift)(logs_a, logs_b, LEVEL)
    moved = _moved_many(names, logs_a, logs_b, shift)
    return _told(a, b, key, design, shift.p_value, moved, failed)


def _logs(samples: list[Sample], names: list[str]) -> NDArray[np.float64]:
    values = [[max(sample.quantiles[name], 1.0) for name in names] for sample in samples]
    return np.log(np.array(values, dtype=np.float64))


def _design(runs: _Runs, a: int, b: int) -> str:
    if runs.pairs:
        return f"{len(runs.pairs)} pairs"
    return "one run each" if (a, b) == (1, 1) else f"{a} runs against {b}, not in turns"


def _comparable(samples: list[Sample]) -> list[str]:
    """Quantiles beyond which every sample has rows, none of them among the failed."""
    return [
        name
        for name, p in GRID.items()
        if all(s.n * (1 - p) >= BEYOND_LEAST and np.isfinite(s.quantiles[name]) for s in samples)
    ]


def _failed(samples: list[Sample]) -> Interval:
    """The share that failed: over blocks of one run, over runs where there are several."""
    if len(samples) == 1 and samples[0].counts.size:
        (sample,) = samples
        lost = sample.counts[sample.buckets >= FAILED_BUCKET].sum(axis=0)
        return share_interval(lost, sample.counts.sum(axis=0), LEVEL)
    if len(samples) > 1:
        return share_interval([s.failed for s in samples], [s.n for s in samples], LEVEL)
    n, failed = samples[0].n, samples[0].failed
    first = max(n // 2, failed)
    return share_interval([failed, 0], [first, n - first], LEVEL)


def _moved_many(
    names: list[str], a: NDArray[np.float64], b: NDArray[np.float64], shift: Shift
) -> list[Moved]:
    found = []
    few = min(len(a), len(b)) < (PAIRS_LEAST if "pairs" in shift.method else GROUP_LEAST)
    for place, name in enumerate(names):
        ratio = shift.ratios[place]
        outcome: Direction = "not shown"
        reason = ""
        if few:
            outcome, reason = "undecided", "so few runs can show nothing at the 5 % level"
        elif shift.p_value <= ALPHA and (place == shift.largest or _excludes_one(ratio)):
            outcome = "slower" if (ratio.estimate or 1) > 1 else "faster"
        means = float(np.exp(a[:, place].mean())), float(np.exp(b[:, place].mean()))
        found.append(
            Moved(name, means[0], means[1], ratio, outcome, shift.detectable[place], reason)
        )
    return found


def _excludes_one(ratio: Interval) -> bool:
    return (ratio.low is not None and ratio.low > 1) or (ratio.high is not None and ratio.high < 1)


def _moved_alone(
    name: str, held_a: list[Sample], held_b: list[Sample], several: int, allowance: float
) -> Moved:
    """One run on a side: each quantile by its own interval, all of them together at the level."""
    a, b = held_a[0], held_b[0]
    p, level = GRID[name], 1 - ALPHA / several
    values = a.quantiles[name], b.quantiles[name]
    blocks = [
        block_interval(s.buckets, s.counts, p, estimate=s.quantiles[name], level=level)
        if s.counts.size
        else None
        for s in (a, b)
    ]
    bounds = [
        (value, it.interval.low, it.interval.high)
        if it is not None and it.interval is not None
        else (value, None, None)
        for value, it in zip(values, blocks, strict=True)
    ]
    estimate, low, high = interval_of_ratio(bounds[0], bounds[1])
    method = "block intervals, variances recovered from the limits"
    ratio = Interval(estimate, low, high, level, a.n + b.n, None, method)
    line = 1 + allowance
    if low is not None and low > line:
        return Moved(name, *values, ratio, "slower")
    if high is not None and high < 1 / line:
        return Moved(name, *values, ratio, "faster")
    apart = _apart(a, b, p)
    if apart > line:
        return Moved(name, *values, ratio, "slower")
    if apart < 1 / line:
        return Moved(name, *values, ratio, "faster")
    if low is None or high is None:
        reasons = [it.reason for it in blocks if it is not None and it.reason]
        return Moved(name, *values, ratio, "undecided", None, (reasons or [NO_BLOCKS])[0])
    wide = max(estimate / low, high / estimate) * line
    return Moved(name, *values, ratio, "not shown", wide)


def _apart(a: Sample, b: Sample, p: float) -> float:
    """By how much every thirtieth of one run is beyond every thirtieth of the other; else 1.

    It needs no model of how thirtieths resemble each other, so that it holds where those do.
    """
    ranges = []
    for sample in (a, b):
        if not sample.counts.size or (
            sample.counts.sum(axis=0).min() * (1 - p) < BLOCK_BEYOND_LEAST
        ):
            return 1.0
        upto = np.cumsum(sample.counts, axis=0)
        places = (upto >= p * upto[-1]).argmax(axis=0)
        low, high = bucket_edges(sample.buckets[places])
        ranges.append((float(low.min()), float(high.max())))
    (a_low, a_high), (b_low, b_high) = ranges
    if b_low > a_high:
        return b_low / a_high
    return b_high / a_low if b_high < a_low else 1.0


def _told(
    a: str,
    b: str,
    key: Key,
    design: str,
    p_value: float | None,
    moved: list[Moved],
    failed: tuple[Interval, Interval],
) -> Compared:
    outcome: Outcome = "not shown"
    if any(it.outcome in ("slower", "faster") for it in moved) or _fails_otherwise(failed):
        outcome = "different"
    elif all(it.outcome == "undecided" for it in moved):
        outcome = "undecided"
    sentence, step = _words(a, b, moved, failed, outcome, design)
    return Compared(a, b, *key, design, p_value, tuple(moved), *failed, outcome, sentence, step)


def _fails_otherwise(failed: tuple[Interval, Interval]) -> bool:
    one, other = failed
    if one.high is None or other.high is None or one.low is None or other.low is None:
        return False
    return one.high < other.low or other.high < one.low


def _words(
    a: str,
    b: str,
    moved: list[Moved],
    failed: tuple[Interval, Interval],
    outcome: str,
    design: str,
) -> tuple[str, str]:
    said = [_one(b, a, it) for it in moved if it.outcome in ("slower", "faster")]
    if _fails_otherwise(failed):
        said.append(f"{b} fails {_share(failed[1])}, {a} {_share(failed[0])}")
    if outcome == "different":
        rest = [it for it in moved if it.outcome == "not shown" and it.detectable]
        if rest:
            bounds = ", ".join(f"{it.quantile} by more than {_off(it)}" for it in rest)
            said.append(f"not shown to differ: {bounds}")
        step = "look at what changed between them"
        if design == "one run each":
            step = "one run each cannot separate a change from a bad hour: take ten pairs in turns"
        return "; ".join(said), step
    if outcome == "undecided":
        reason = next((it.reason for it in moved if it.reason), "too few runs")
        return (
            f"cannot be decided: {reason}",
            "take ten pairs of runs in turns, the order by a coin",
        )
    known = [it for it in moved if it.detectable]
    bounds = ", ".join(f"{it.quantile} {_off(it)}" for it in known)
    missing = [it.quantile for it in moved if it.outcome == "undecided"]
    left = f"; nothing can be said of the {', '.join(missing)}" if missing else ""
    return (
        f"{b} is not shown to differ from {a}; a shift of this much would have been found: "
        f"{bounds}{left}",
        "more pairs find smaller shifts: four times as many for half of one",
    )


def _one(b: str, a: str, it: Moved) -> str:
    ratio = it.ratio
    bounds = ""
    if ratio.low is not None and ratio.high is not None:
        bounds = f" ({100 * ratio.level:.3g} % {ratio.low:.3g} to {ratio.high:.3g})"
    values = f"{duration(it.b)} against {duration(it.a)}"
    return f"{b}'s {it.quantile} is {ratio.estimate or 1:.3g} times {a}'s{bounds}, {values}"


def _off(it: Moved) -> str:
    return percent((it.detectable or 1) - 1)


def _share(found: Interval) -> str:
    return f"{percent(found.estimate)} [{percent(found.low)}, {percent(found.high)}]"


def _holm(found: list[Compared]) -> Iterator[Compared]:
    """Adjust p-values over all comparisons; what no longer stands is not shown."""
    known = sorted(
        (place for place, it in enumerate(found) if it.p_value is not None),
        key=lambda place: found[place].p_value or 0.0,
    )
    adjusted: dict[int, float] = {}
    worst = 0.0
    for rank, place in enumerate(known):
        worst = max(worst, min(1.0, (len(known) - rank) * (found[place].p_value or 0.0)))
        adjusted[place] = worst
    for place, it in enumerate(found):
        if place not in adjusted:
            yield it
            continue
        kept = replace(it, p_value=adjusted[place])
        if (
            it.outcome == "different"
            and adjusted[place] > ALPHA
            and not _fails_otherwise((it.failed_a, it.failed_b))
        ):
            moved = tuple(
                replace(m, outcome="not shown") if m.outcome in ("slower", "faster") else m
                for m in it.moved
            )
            words = _words(
                it.a, it.b, list(moved), (it.failed_a, it.failed_b), "not shown", it.design
            )
            kept = replace(
                kept, moved=moved, outcome="not shown", sentence=words[0], next_step=words[1]
            )
        yield kept


def alias_of(text: str) -> tuple[str, str]:
    """Split ``alias=path``; a path without an alias is called by its last part.

    Examples
    --------
    >>> alias_of("old=runs/a"), alias_of("runs/b/")
    (('old', 'runs/a'), ('b', 'runs/b/'))
    """
    found = re.fullmatch(r"([A-Za-z0-9_.-]+)=(.+)", text)
    if found:
        return found[1], found[2]
    return text.rstrip("/").rsplit("/", 1)[-1], text
