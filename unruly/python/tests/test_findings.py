"""Every finding is raised once and silent once, and its rule explains it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unruly
from changed import with_topics
from explained import assert_like_its_example, is_in_summary, paths
from quick import numbers
from synthetic import NS, write_run
from test_layers import RAISED_BY_SPANS
from test_parts import RAISED_BY_PARTS
from test_runtimes import RAISED_BY_RUNTIMES
from test_streams import RAISED_BY_STREAMS
from test_tiers import RAISED_BY_TAPS
from unruly.__main__ import main
from unruly.base.distrust import fell_behind
from unruly.base.model import SECTIONS, SEVERITIES, Finding
from unruly.base.rule import PARTS, Rule
from unruly.base.rules_run import ahead
from unruly.base.target import parse_target
from unruly.stats import blocks
from unruly.topics.rules import CODES, RULES, find

REPOSITORY = Path(__file__).resolve().parents[3]

SMALL = {"agents": 3, "ops": ("null",), "rate_hz": 20, "duration_s": 30}
MATRIX = {
    **SMALL,
    "agents": 2,
    "kind": "drive",
    "duration_s": 20,
    "repeats": 2,
    "stalls_hz": 0,
    "cells": ("size=small load=low", "size=small load=high", "size=large load=low",
              "size=large load=high"),
    "manifest": {
        "cells": [
            {"name": f"size={size} load={load}",
             "factors": {"drive.payload": size, "drive.clients": load}}
            for size in ("small", "large")
            for load in ("low", "high")
        ]
    },
}  # fmt: skip
STORE = {"kind": "drive", "agents": 1, "ops": ("read",), "rate_hz": 100, "duration_s": 20}
LOADS = {f"rate={rate}/s": rate for rate in (50, 100, 200)}
RAMP = {
    **STORE, "duration_s": 5, "repeats": 2, "stalls_hz": 0, "cells": tuple(LOADS),
    "cell_rate_hz": LOADS,
    "manifest": {
        "cells": [
            {"name": name, "factors": {"drive.rate": f"{rate}/s"}} for name, rate in LOADS.items()
        ]
    },
}  # fmt: skip
ODD = "size=large load=high"
IN_PARTS = [
    {"started_ns": 10, "ended_ns": 20, "boot": "a"},
    {"started_ns": 5_000_000_020, "ended_ns": None, "boot": "b", "changed": []},
    {"started_ns": 9_000_000_000, "ended_ns": 9_000_000_010, "boot": "b",
     "changed": ["the kernel was 1 and is 2"]},
]  # fmt: skip
HOSTS = [
    {"name": "local"},
    {"name": "node-1", "clock": {"low_ns": -100, "high_ns": 300, "widest_ns": 90, "steps": 0}},
]
RAISED = {
    "rate-not-reached": {**SMALL, "unsent": 900},
    "nothing-measured": {**SMALL, "warmup_s": 40, "duration_s": 0},
    "rows-dropped": {**SMALL, "dropped": 7},
    "generator-stalled": {**SMALL, "generator_stalls_hz": 0.5},
    "run-incomplete": {
        **SMALL,
        "status": "incomplete",
        "manifest": {"broken": ["drive-0 was killed by signal 9 (SIGKILL) before its time"]},
    },
    "run-cut-off": {**SMALL, "status": "cut off"},
    "run-stopped": {**SMALL, "status": "stopped"},
    "cells-left-out": {**SMALL, "manifest": {"left_out": ["system ejb: mvn not found"]}},
    "run-resumed": {**SMALL, "manifest": {"parts": IN_PARTS}},
    "rows-merged": {**SMALL, "manifest": {"merged": {"at_ns": 1_796_056_825_062_651_453}}},
    "load-in-stages": {
        **SMALL,
        "manifest": {"cells": [{"name": "base", "factors": {"drive.ramp": "10s:50, 20s:50"}}]},
    },
    "failures": {**SMALL, "failed_share": 0.01},
    "steal-high": {**SMALL, "steal_share": 0.05},
    "samples-late": {**SMALL, "sampler_lag_ns": 400e6},
    "kernel-stamps-missing": {**SMALL, "kernel_stamps": False},
    "clocks-compared": {**SMALL, "manifest": {"hosts": HOSTS}},
    "times-made-up": {**SMALL, "manifest": {"timeless": ["base"]}},
    "promise-made": {**SMALL, "stalls_hz": 0},
    "few-rows": {**SMALL, "rate_hz": 3},
    "drift": {**SMALL, "drift": 2.0, "rate_hz": 50},
    "abstained": {**SMALL, "rate_hz": 20, "stalls_hz": 0.15, "stall_mean_ns": 300e6},
    "run-tail-heavy": {**SMALL, "tail_factor": 60.0},
    "cells-unruly": {**MATRIX, "cell_tails": {ODD: (0.004, 200.0)}},
    "p99-beyond-bound": {**MATRIX, "cell_tails": {ODD: (0.012, 3000.0)}},
    "more-than-one-mode": {**MATRIX, "cell_tails": {ODD: (0.4, 12.0)}},
    "factor-effect": {
        **MATRIX,
        "cell_scale": {"size=large load=low": 3.0, "size=large load=high": 3.0},
    },
    "slow-node": {**SMALL, "slow_agent": 1},
    "slow-seen-alike": {**SMALL, "slow_agent": 1},
    "warmup-short": {**SMALL, "rate_hz": 50, "cold": (3.0, 2.0)},
    "p99-moved": {**SMALL, "rate_hz": 50, "shift_factor": 1.5},
    "outage": {**STORE, "faults": (("base", "kill", "store-0", 8.0, 1.0),)},
    "recovery": {**SMALL, "stopped": ((1, 10.0, 2.0),)},
    "throughput-unsteady": {**SMALL, "clusters_hz": 1.0},
    "arrivals-bursty": {**SMALL, "clusters_hz": 1.0, "status": "imported"},
    "slow-because": {
        **SMALL,
        "rate_hz": 80,
        "stopped": ((1, 5.0, 0.8), (1, 13.0, 0.6), (1, 22.0, 0.7)),
    },
    "target": {**STORE, "target": parse_target("99%:20ms")},
    "extreme-tail": {
        **STORE,
        "rate_hz": 6_000,
        "stalls_hz": 0,
        "cell_tails": {"base": (2e-4, 300.0)},
    },
    "fault-hurts": {**STORE, "faults": (("base", "stop", "store-0", 8.0, 1.0),)},
    "knee": RAMP,
    "generator-limit": {**RAMP, "cell_rate_hz": {**LOADS, "rate=200/s": 150}},
    "correlate": {**SMALL, "slow_agent": 1},
    "disk-dominates": {**SMALL, "ops": ("null", "crypto", "disk")},
    "first-reply": {**SMALL, "slow_agent": 1},
}
SILENT = {code: {**SMALL, "stalls_hz": 0} for code in CODES}
SILENT["promise-made"] = RAISED["drift"]
SILENT |= dict.fromkeys(
    ("cells-unruly", "p99-beyond-bound", "more-than-one-mode", "factor-effect"), MATRIX
)
SILENT["nothing-measured"] = SMALL
SILENT |= {"extreme-tail": STORE, "fault-hurts": STORE, "knee": STORE, "generator-limit": RAMP}


@pytest.fixture
def matrix_of_singles(tmp_path):
    """A run of one value a pair, in which one node is slow to everybody."""

    def of(slow):
        rows = "\n".join(
            "\t".join("0" if a == b else slow if b == 3 else "10" for b in range(6))
            for a in range(6)
        )
        (tmp_path / "matrix.tsv").write_text(rows + "\n")
        place = tmp_path / "run"
        assert main(["import", str(tmp_path / "matrix.tsv"), "--unit", "ms", "-o", str(place)]) == 0
        return unruly.analyse(unruly.open_run(place))

    return of


def test_a_slow_column_is_raised_for_single_values_alone(matrix_of_singles):
    found = matrix_of_singles("30")
    finding = next(it for it in found.findings if it.code == "slow-columns")
    assert_like_its_example(finding)
    assert len(finding.evidence["slow"]) == 1
    assert finding.evidence["levels_ns"] == [30e6]
    assert finding.evidence["smallest_ns"] == 10e6


def test_a_slow_column_is_silent_where_columns_are_alike(matrix_of_singles):
    assert "slow-columns" not in _codes(matrix_of_singles("19"))


def _codes(analysis):
    return [finding.code for finding in analysis.findings]


@pytest.mark.parametrize("code", RAISED)
def test_a_finding_is_raised(code, analysed):
    analysis = analysed(causes=code == "slow-because", **RAISED[code])
    assert code in _codes(analysis)
    finding = next(f for f in analysis.findings if f.code == code)
    assert finding.evidence
    assert finding.title
    assert finding.text.endswith(".")
    assert finding.suggestion.endswith(".")
    assert_like_its_example(finding)
    assert "nan" not in finding.text.lower().split()
    assert "None" not in finding.text + finding.title + finding.suggestion


@pytest.mark.parametrize("code", [code for code in CODES if code not in RAISED_BY_STREAMS])
def test_a_finding_is_silent(code, analysed):
    assert code not in _codes(analysed(causes=code == "slow-because", **SILENT[code]))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_explains_its_finding(rule):
    explained = rule.explanation
    assert explained.meaning[0].isupper()
    assert [label for label in PARTS if label in explained.parts] == list(explained.parts)
    for label, (*_, last) in explained.parts.items():
        assert label == "Example" or last.endswith(".")
    assert rule.section in SECTIONS
    assert [it for it in SEVERITIES if it in rule.severities] == list(rule.severities)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_numbers_of_a_finding_are_where_its_text_says(rule):
    named = list(paths(" ".join(rule.explanation.parts["Numbers"])))
    assert [path for path in named if not is_in_summary(path)] == []


def test_every_code_has_an_example_of_its_title():
    assert [rule.code for rule in RULES if "Example" not in rule.explanation.parts] == []


def _explained(docstring):
    def find(analysis):
        yield from ()

    find.__doc__ = docstring
    return Rule("toy", "where", ("warns",), find, (blocks,)).explanation


TEXT = """A toy.

    Raised: Fewer than {blocks.EPISODES_MIN:count} episodes.

    Means: A toy.

    Next: Play.

    Numbers: Nowhere.
    """


def test_a_text_has_the_constants_of_the_code():
    assert _explained(TEXT).parts["Raised"] == ["Fewer than 7 episodes."]
    assert _explained(TEXT).meaning == "A toy"


@pytest.mark.parametrize("part", ["Raised", "Means", "Next", "Numbers"])
def test_a_text_without_a_part_is_refused(part):
    with pytest.raises(ValueError, match=f"toy: the docstring of its rule lacks {part}"):
        _explained(re.sub(rf"{part}: .*\n", "", TEXT))


def test_a_rule_without_a_text_is_refused():
    with pytest.raises(ValueError, match="lacks Raised, Means, Next, Numbers"):
        _explained(None)


def test_a_text_that_names_no_constant_of_the_code_is_refused():
    with pytest.raises(KeyError, match="GONE"):
        _explained(TEXT.replace("blocks.EPISODES_MIN", "GONE"))


def test_a_finding_that_its_rule_does_not_declare_is_refused(clean):
    def find(analysis):
        yield Finding("toy", "why", "warns", 0, "a toy", "A toy.", {}, "Play.")

    with pytest.raises(AssertionError, match="toy: the rule does not declare toy in why"):
        list(Rule("toy", "where", ("warns",), find).apply(clean))
    with pytest.raises(AssertionError, match="toy: warns is not declared"):
        list(Rule("toy", "why", ("informs",), find).apply(clean))


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "told"),
    [
        (2_100_000, 2_600_000, "2.1 ms to 2.6 ms ahead"),
        (-2_600_000, -2_100_000, "2.1 ms to 2.6 ms behind"),
        (-200_000, 300_000, "200 µs behind to 300 µs ahead"),
    ],
)
def test_the_bounds_of_a_clock_are_told_with_their_direction(low_ns, high_ns, told):
    assert ahead({"low_ns": low_ns, "high_ns": high_ns}) == told


def test_a_clock_that_was_set_is_a_warning(analysed):
    clock = {"low_ns": 0, "high_ns": 5_000_000_000, "widest_ns": 90, "steps": 1}
    analysis = analysed(**SMALL, manifest={"hosts": [{"name": "node-1", "clock": clock}]})
    (finding,) = [it for it in analysis.findings if it.code == "clocks-compared"]
    assert finding.severity == "warns"
    assert "The clock of node-1, or this host's, was set." in finding.text


def test_every_code_is_raised_by_a_run():
    elsewhere = set(RAISED_BY_STREAMS) | RAISED_BY_RUNTIMES | RAISED_BY_PARTS
    elsewhere |= RAISED_BY_TAPS | RAISED_BY_SPANS
    assert set(CODES) - set(RAISED) - elsewhere == {"slow-columns"}


def test_every_code_in_the_rules_is_listed():
    package = REPOSITORY / "unruly/python/unruly"
    places = [*package.glob("base/rules*.py"), *package.glob("topics/*/rules*.py")]
    source = "".join(place.read_text(encoding="utf-8") for place in places)
    raised = re.findall(r'Finding\(\s*"([a-z0-9-]+)"', source)
    assert sorted(raised) == sorted(CODES)
    assert len(RULES) == len(CODES)


def test_findings_follow_a_readers_questions(analysed):
    findings = analysed(**SMALL, dropped=3, failed_share=0.01, slow_agent=1).findings
    order = [(SECTIONS.index(f.section), SEVERITIES.index(f.severity), f.rank) for f in findings]
    assert order == sorted(order)
    assert findings[0].code == "rows-dropped"


def test_only_what_spoils_makes_a_run_untrustworthy(analysed):
    spoiled = analysed(**SMALL, dropped=3)
    assert not spoiled.trustworthy
    assert spoiled.doubts == ["3 rows were dropped"]


def test_a_rate_that_was_not_reached_is_told_before_all_else(analysed):
    spoiled = analysed(**SMALL, unsent=900, dropped=3)
    assert spoiled.doubts == ["900 requests were never sent", "3 rows were dropped"]
    assert spoiled.findings[0].evidence["unsent"] == 900


def test_a_generator_that_sheds_late_requests_is_told_before_all_else(analysed):
    spoiled = analysed(**SMALL, late=900)
    assert spoiled.doubts == [
        "the load generator was late with 900 requests that it did not send at once"
    ]
    assert "up to 2 s" in spoiled.findings[0].text


def test_a_few_late_requests_leave_a_run_trustworthy(analysed):
    assert analysed(**SMALL, late=1).trustworthy


def test_warnings_leave_a_run_trustworthy(analysed):
    warned = analysed(**SMALL, failed_share=0.01)
    assert "failures" in _codes(warned)
    assert warned.trustworthy
    assert warned.doubts == []


@pytest.mark.parametrize("failed_share", [0.53, 0.94, 1.0])
def test_a_late_generator_spoils_a_run_also_when_its_late_requests_failed(failed_share, analysed):
    found = analysed(**SMALL, failed_share=failed_share, generator_stalls_hz=1.0)
    finding = next(f for f in found.findings if f.code == "generator-stalled")
    assert finding.severity == "spoils"
    assert found.self_distrust.late_share > 0.05
    assert not found.self_distrust.tail_explained_share
    assert not found.trustworthy


def test_a_generator_that_stalled_spoils_only_when_the_delay_is_large(analysed):
    spoiled = analysed(**SMALL, generator_stalls_hz=0.5)
    finding = next(f for f in spoiled.findings if f.code == "generator-stalled")
    assert finding.severity == "spoils"
    assert finding.evidence["tail_explained_share"] > 0.1
    behind = {"due_hz": 1_000.0, "sent_hz": 800.0}
    small = replace(spoiled.self_distrust, tail_explained_share=0.01, late_share=0.01)
    assert _stalled(spoiled, small).severity == "warns"
    assert _stalled(spoiled, replace(small, late_share=0.02)).severity == "spoils"
    slow = _stalled(spoiled, replace(small, fell_behind=behind))
    assert slow.severity == "spoils"
    assert slow.title.endswith(" late: it sent 800/s of the 1,000/s scheduled")
    assert "more clients" in slow.suggestion
    busy = _stalled(spoiled, replace(small, psi_cpu_share=0.4))
    assert busy.suggestion.startswith("The CPUs of this host were short 40 % of the time")


def test_one_long_stall_is_no_schedule_that_was_too_fast(tmp_path):
    stalled = write_run(tmp_path / "stalled", **STORE)
    behind = write_run(tmp_path / "behind", **STORE)
    _delay(stalled, lambda place: np.where((place > 0.4) & (place < 0.7), 0.7 - place, 0.0))
    _delay(behind, lambda place: 0.3 * place)
    doubt = numbers(stalled).self_distrust
    assert doubt.send_lag_ns["max"] > 0.25 * STORE["duration_s"] * NS
    assert doubt.fell_behind is None
    doubt = numbers(behind).self_distrust
    assert doubt.fell_behind["sent_hz"] == pytest.approx(
        doubt.fell_behind["due_hz"] / 1.2925, rel=0.02
    )


def _delay(run, share):
    """Send each request late, and have its reply come as much later; ``share`` of the length."""
    (path,) = (run / "requests").glob("*.parquet")
    table = pq.read_table(path)
    due = table["intended_ns"].to_numpy()
    place = (due - due.min()) / (due.max() - due.min())
    late = (share(place) * (due.max() - due.min())).astype(np.int64)
    for name in table.column_names:
        if name.endswith("_ns") and name not in {"intended_ns"}:
            moved = pa.array(table[name].to_numpy() + late, table[name].type)
            table = table.set_column(table.column_names.index(name), name, moved)
    pq.write_table(table, path)


def _stalled(analysis, doubt):
    evidence = replace(analysis, self_distrust=doubt)
    return next(f for f in find(evidence) if f.code == "generator-stalled")


def test_a_generator_that_cannot_keep_its_schedule_is_told_with_the_rate_it_reached():
    length_ns, lag_ns = 10e9, 2.5e9
    extents = pd.DataFrame(
        {"cell": "all", "repeat": 0, "op": "read", "n": 10_000, "first_ns": 0, "last_ns": 10e9},
        index=[0],
    )
    context = SimpleNamespace(
        empty=False, extents=extents, size=10_000, lengths_ns=pd.Series({"all": length_ns})
    )
    assert fell_behind(context, lag_ns) == {"due_hz": 1_000.0, "sent_hz": 800.0}
    assert fell_behind(context, 0.05 * length_ns) is None


def test_a_difference_between_nodes_alone_is_no_correlate_unless_one_is_slow(slow):
    """Memory that differs from node to node says nothing of time (findings/why.md)."""
    row = slow.correlations.rows[0]
    standing = replace(slow.correlations, rows=(replace(row, within=0.0, highest="agent-1"),))
    evidence = replace(with_topics(slow, causes=None), correlations=standing)
    assert "correlate" not in [f.code for f in find(evidence)]
    named = replace(standing, rows=(replace(row, within=0.0, highest="agent-3"),))
    assert "correlate" in [f.code for f in find(replace(evidence, correlations=named))]


def test_what_there_is_too_little_of_is_told_before_what_only_goes_along(slow):
    """The memory of a backlog follows a starved agent more closely than its waiting for a CPU."""
    row = slow.correlations.rows[0]
    rows = tuple(replace(row, metric=it) for it in ("rss_bytes", "run_queue_wait_ns"))
    evidence = replace(
        with_topics(slow, causes=None), correlations=replace(slow.correlations, rows=rows)
    )
    told = [it.evidence["metric"] for it in find(evidence) if it.code == "correlate"]
    assert told == ["run_queue_wait_ns", "rss_bytes"]


def test_a_resumed_run_names_its_gaps_and_what_changed_between_its_parts() -> None:
    def found(parts: list[dict[str, object]]) -> list[Finding]:
        run = SimpleNamespace(manifest={"parts": parts})
        (rule,) = [it for it in RULES if it.code == "run-resumed"]
        return list(rule.find(SimpleNamespace(run=run)))

    (told,) = found(IN_PARTS)
    assert told.severity == "warns"
    assert told.evidence["gaps_ns"] == [5_000_000_000, None]
    assert told.evidence["restarts"] == 1
    assert "the kernel was 1 and is 2" in told.text
    (same,) = found(IN_PARTS[:2])
    assert same.severity == "informs"
    assert found(IN_PARTS[:1]) == []
