"""The evidence of a finding in words: names without underscores, numbers with their units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from unruly.base.clock import OLDEST_NS
from unruly.drawing import format
from unruly.stats import Interval

MOST_CHARACTERS: Final = 240
UNITS: Final = ("_ns", "_share", "_bytes", "_hz")
SHARES: Final = frozenset({"explained", "unknown", "share", "variation", "late_share"})
LONG_NS: Final = 120e9
CHANCE_LEAST: Final = 0.001
WORDS: Final = {
    "all_p99_ns": "p99 of all replies",
    "back_ns": "answered again after",
    "bound_ns": "promised",
    "breaks_hz": "rate at which the p99 breaks",
    "by_chance": "met by chance",
    "by_status": "by kind",
    "cell": "configuration",
    "cells": "configurations",
    "changed_ns": "changed at",
    "due": "scheduled meanwhile",
    "due_hz": "scheduled",
    "explained": "slow requests explained",
    "fault_free_max_ns": "slowest without a fault",
    "fault_ns": "faults at",
    "first_p99_ns": "p99 of the first reply",
    "gap_ns": "longest silence",
    "highest": "highest at",
    "holds_hz": "rate at which the p99 holds",
    "jaccard_mean": "overlap of what two observers see (1: the same)",
    "jvm_p99_ns": "p99 of JVMs",
    "largest_over_mean": "largest p99 over the mean",
    "levels_ns": "levels",
    "lift": "times as likely to be slow",
    "limit_ns": "limit",
    "lower_bound_ns": "at least",
    "max_over_mean": "maximum over the mean",
    "n_effective": "independent tail episodes",
    "native_p99_ns": "p99 of native agents",
    "needed": "requests needed",
    "needed_ns": "length of run needed",
    "of": "out of",
    "op": "workload",
    "ops": "workloads",
    "over_10x_mean": "beyond ten times the mean",
    "p_value": "probability by chance",
    "p_values": "probabilities by chance",
    "p99_9": "p99.9",
    "p99_999_over_mean": "p99.999 over the mean",
    "p99_ratio": "p99 over the fault-free p99",
    "pearson": "correlation (Pearson)",
    "q_value": "probability by chance, of all metrics tested",
    "scope": "measured of the",
    "sent_hz": "sent",
    "slow_met": "slow requests that met it",
    "others_met": "other requests that met it",
    "spearman": "rank correlation (Spearman)",
    "unknown": "slow requests unexplained",
    "windows_slow": "windows in which it was slow",
    "within": "correlation within one receiver",
}
"""Names that say more than their letters; others lose their underscores and their unit."""


def evidence_name(key: str) -> str:
    """Return what a piece of evidence is, without its unit: the value carries that.

    Examples
    --------
    >>> evidence_name("n_effective"), evidence_name("send_lag_ns"), evidence_name("p99_9_ns")
    ('independent tail episodes', 'send lag', 'p99.9')
    """
    if key in WORDS:
        return WORDS[key]
    bare = next((key.removesuffix(unit) for unit in ("_ns", "_bytes", "_hz") if key.endswith(unit)),
                key)  # fmt: skip
    return WORDS.get(bare, bare.replace("_", " "))


def evidence_text(key: str, value: Any) -> str:
    r"""Return one piece of evidence in words; the end of its key says its unit.

    Examples
    --------
    >>> evidence_text("p99_ns", 1_234_567), evidence_text("failed_share", 0.25)
    ('1.23\xa0ms', '25\xa0%')
    """
    shown = _text(key, value)
    return shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 1] + "…"


def _text(key: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: format.DASH, True: "yes", False: "no"}[value]
    if isinstance(value, int | float):
        return _number(key, value)
    if isinstance(value, Interval):
        low, high = _text(key, value.low), _text(key, value.high)
        return f"{_text(key, value.estimate)} ({low} to {high}, {format.level(value.level)})"
    if isinstance(value, Mapping):
        return str(value["words"]) if "words" in value else _pairs(key, value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(key, v) for v in value)
    return str(value)


def _pairs(key: str, value: Mapping[str, Any]) -> str:
    inner = [f"{key}_{k}" if not _unit(key) else key for k in value]
    return ", ".join(f"{k} {_text(name, value[k])}" for k, name in zip(value, inner, strict=True))


def _unit(key: str) -> str:
    if key in SHARES:
        return "_share"
    return next((u for u in UNITS if key.endswith(u)), "")


def _number(key: str, value: float) -> str:
    if key.startswith(("p_value", "q_value")) and 0 <= value < CHANCE_LEAST:
        return f"<{CHANCE_LEAST}"
    write: dict[str, Callable[[float], str]] = {
        "_ns": _time,
        "_share": format.share,
        "_bytes": format.size,
        "_hz": lambda rate: f"{format.significant(rate)} a second",
        "": format.count if isinstance(value, int) else format.significant,
    }
    return write[_unit(key)](value)


def _time(value_ns: float) -> str:
    """Return a moment for a time stamp, and else a length of time."""
    if value_ns >= OLDEST_NS:
        return format.moment(value_ns)
    return format.duration(value_ns) if abs(value_ns) < LONG_NS else format.span(value_ns)
