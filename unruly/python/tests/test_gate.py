"""A gate breaks and holds only what the interval decides, and says what it cannot decide."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import unruly
from synthetic import write_run
from unruly.__main__ import main
from unruly.base.judging import judge
from unruly.base.limits import LimitError, read_limits
from unruly.stats import request_mean_interval, share_interval


def limits_of(tmp_path, *rows):
    path = tmp_path / "limits.toml"
    path.write_text("\n".join(f"[[limit]]\n{row}" for row in rows), encoding="utf-8")
    return path


def outcomes(analysis, tmp_path, *rows):
    """What became of these limits; the built-in ones have tests of their own."""
    found = judge(analysis, read_limits(limits_of(tmp_path, *rows)))
    return [it for it in found if not it.limit.built_in]


def p99(bound):
    return f'statistic = "p99"\nop = "null"\nat_most = "{bound:.0f}ns"'


def test_a_limit_is_broken_or_held_only_outside_the_interval(clean, tmp_path):
    cell = clean.cell("null")
    low, high = clean.cell("null").p99_interval.low, cell.promise_p99.high
    found = outcomes(clean, tmp_path, p99(low * 0.98), p99(cell.p99), p99(high + 1))
    assert [it.outcome for it in found] == ["broken", "undecided", "held"]
    assert "This run cannot decide it: the limit lies in the interval from" in found[1].sentence
    assert "Run longer." in found[1].sentence


def test_a_limit_without_an_op_is_about_every_op_by_itself(clean, tmp_path):
    found = outcomes(clean, tmp_path, 'statistic = "p99"\nat_most = "1min"')
    assert [it.op for it in found] == sorted({row.op for row in clean.cells} - {"*"})
    assert {it.outcome for it in found} == {"held"}


def test_a_run_too_short_decides_nothing_but_a_lower_bound(tmp_path):
    run = write_run(tmp_path / "run", duration_s=2.0, rate_hz=20.0, ops=("null",))
    analysis = unruly.analyse(unruly.open_run(run))
    assert analysis.cell("null").promise_p99 is None
    held, broken = outcomes(analysis, tmp_path, p99(60e9), p99(1e3))
    assert held.outcome == "undecided"
    assert held.needed_ns > analysis.cell("null").duration_ns
    assert "This run cannot decide it: not enough data. Run about" in held.sentence
    assert broken.outcome == "broken"


def test_failures_are_held_to_their_share_and_fail_a_maximum(slow, tmp_path):
    share = 'statistic = "failed_share"\nop = "null"\nat_most = '
    rows = [share + "0.0001", share + "0.05", 'statistic = "max"\nop = "null"\nat_most = "1min"']
    found = outcomes(slow, tmp_path, *rows)
    assert [it.outcome for it in found] == ["broken", "held", "broken"]
    assert "a request failed" in found[2].sentence


def test_means_and_counts_are_held_to_their_intervals(clean, tmp_path):
    cell = clean.cell("null")
    rows = [f'statistic = "mean"\nop = "null"\nat_most = "{b:.0f}ns"' for b in (
        cell.mean * 0.5, cell.mean, cell.mean * 2)]  # fmt: skip
    found = outcomes(clean, tmp_path, *rows)
    assert [it.outcome for it in found] == ["broken", "undecided", "held"]
    assert found[1].low < cell.mean < found[1].high
    beyond = cell.over_3_sigma
    assert beyond > 10
    rows = [f'statistic = "over_3_sigma"\nop = "null"\nat_most = {b}' for b in (
        beyond / 5, beyond, beyond * 5)]  # fmt: skip
    found = outcomes(clean, tmp_path, *rows)
    assert [it.outcome for it in found] == ["broken", "undecided", "held"]
    assert found[1].estimate == beyond


def test_failed_requests_leave_a_mean_undecided_and_are_counted(slow, tmp_path):
    failed = slow.cell("null").failed
    rows = ['statistic = "mean"\nop = "null"\nat_most = "1min"']
    rows += [f'statistic = "failed"\nop = "null"\nat_most = {b}' for b in (0, 10 * failed)]
    found = outcomes(slow, tmp_path, *rows)
    assert [it.outcome for it in found] == ["undecided", "broken", "held"]
    assert "failed" in found[0].sentence


def test_a_spread_is_a_fact_of_this_run(clean, tmp_path):
    rows = ['statistic = "sd"\nop = "null"\nat_most = "1min"',
            'statistic = "max_over_mean"\nop = "null"\nat_most = 1.5']  # fmt: skip
    found = outcomes(clean, tmp_path, *rows)
    assert [it.outcome for it in found] == ["held", "broken"]
    assert "this run saw" in found[1].sentence


def test_p99_9_may_be_written_as_in_the_summary(tmp_path):
    limits = read_limits(limits_of(tmp_path, 'statistic = "p99_9"\nat_most = "1 s"'))
    assert (limits[0].statistic, limits[0].at_most) == ("p99.9", 1e9)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('statistic = "p98"\nat_most = "1ms"', "statistic is 'p98'; one of p50"),
        ('statistic = "p99"\nat_most = 2', "at_most is 2; a latency above 0 with its unit"),
        ('statistic = "p99"\nat_most = "0ms"', "at_most is '0ms'"),
        ('statistic = "p99"', "at_most is None"),
        ('statistic = "over_10x_mean"\nat_most = "5"', "at_most is '5'; a number, 0 or more"),
        ('statistic = "p99_over_mean"\nat_most = inf', "at_most is inf; a number, 0 or more"),
        ('statistic = "mean"\nat_most = 3', "a latency above 0 with its unit"),
        ('statistic = "failed_share"\nat_most = "1ms"', "a share from 0 to 1"),
        ('statistic = "failed_share"\nat_most = true', "a share from 0 to 1"),
        ('statistic = "p99"\nat_most = "1ms"\nlatency = "wall"', "latency is 'wall'"),
        ('statistic = "p99"\nat_most = "1ms"\nopp = "null"', "has the key 'opp'"),
        ('statistic = "p99"\nat_most = "1ms"\nop = 3', "op is 3; text"),
    ],
)
def test_a_limit_that_is_none_is_refused_with_its_number(row, words, tmp_path):
    with pytest.raises(LimitError) as refused:
        read_limits(limits_of(tmp_path, 'statistic = "p50"\nat_most = "1s"', row))
    assert "limit 2" in str(refused.value)
    assert words in str(refused.value)
    assert "hint: " in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "limit = 3", "[[limit", "[[limits]]\nx = 1", "[[limit]]\n[a]"]
)
def test_a_file_that_holds_no_limits_is_refused(text, tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LimitError):
        read_limits(path)
    with pytest.raises(LimitError, match="cannot be read"):
        read_limits(tmp_path / "absent.toml")


def test_an_op_that_was_not_measured_is_named_with_those_that_were(clean, tmp_path):
    with pytest.raises(LimitError, match=r"op is .nul.; one of .*null"):
        outcomes(clean, tmp_path, 'statistic = "p99"\nop = "nul"\nat_most = "1s"')


def test_an_op_that_one_cell_lacks_is_no_limit_of_that_cell(tmp_path):
    run = write_run(
        tmp_path / "run", kind="drive", agents=1, ops=("read",), rate_hz=20, duration_s=5,
        cells=("a", "b"),
    )  # fmt: skip
    analysis = unruly.analyse(unruly.open_run(run))
    first = analysis.cells[0]
    rows = [it for it in analysis.cells if (it.cell, it.op) != ("b", "read")]
    rows.append(replace(first, cell="b", op="write"))
    with pytest.raises(LimitError, match="cell 'b' has no op 'read'"):
        outcomes(
            replace(analysis, cells=tuple(rows)), tmp_path,
            'statistic = "p99"\nop = "read"\ncell = "b"\nat_most = "1s"',
        )  # fmt: skip


def test_a_run_without_rows_passes_no_gate(tmp_path, capsys):
    run = write_run(tmp_path / "run", warmup_s=3.0, duration_s=0.0)
    assert main(["gate", str(run), str(limits_of(tmp_path, p99(60e9)))]) == 2
    assert "nothing was measured" in capsys.readouterr().err


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_worst_limit(clean_run, clean, tmp_path, capsys):
    middle = clean.cell("null").p99
    for bound, code, strict in ((60e9, 0, 0), (1e3, 1, 1), (middle, 3, 1)):
        path = str(limits_of(tmp_path, p99(bound)))
        assert main(["gate", str(clean_run), path]) == code
        assert main(["gate", str(clean_run), path, "--strict"]) == strict
    assert "1 undecided" in capsys.readouterr().out


def test_a_spoiled_run_judges_no_latency_and_ends_with_1(tmp_path, capsys):
    run = write_run(tmp_path / "run", dropped=500)
    path = str(limits_of(tmp_path, p99(60e9), p99(1e3)))
    xml = tmp_path / "gate.xml"
    assert main(["gate", str(run), path, "--junit", str(xml)]) == 1
    said = capsys.readouterr().out
    assert "SPOILED" in said
    assert said.count("not judged, the run is spoiled") == 2
    suite = ElementTree.parse(xml).getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")


def test_a_run_that_is_not_whole_says_so_beside_its_limits(tmp_path, capsys):
    run, xml = write_run(tmp_path / "run"), tmp_path / "gate.xml"
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"status": "cut off"}))
    path = str(limits_of(tmp_path, p99(60e9)))
    assert main(["gate", str(run), path, "--junit", str(xml)]) == 2
    said = capsys.readouterr().out
    assert said.startswith("unruly gate: THIS RUN IS NOT WHOLE, which is an error")
    assert "its status is cut off" in said
    suite = ElementTree.parse(xml).getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")


def test_a_limit_on_failures_is_judged_in_a_spoiled_run(tmp_path, capsys):
    run = write_run(tmp_path / "run", dropped=500)
    path = limits_of(tmp_path, 'statistic = "failed_share"\nat_most = 0.2', p99(60e9))
    assert main(["gate", str(run), str(path)]) == 1
    said = capsys.readouterr().out
    assert "SPOILED" in said
    assert "0 broken, 1 undecided" in said


def failing(place, share, **rest):
    return write_run(place, agents=2, ops=("read",), duration_s=20, failed_share=share, **rest)


@pytest.mark.parametrize("share", [1.0, 0.94, 0.53])
def test_an_outage_breaks_every_limit_on_a_percentile(tmp_path, capsys, share):
    run, xml = failing(tmp_path / "run", share), tmp_path / "gate.xml"
    path = str(limits_of(tmp_path, 'statistic = "p99"\nat_most = "1min"'))
    assert main(["gate", str(run), path, "--junit", str(xml)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "2 broken, 0 undecided" in said
    assert "requests failed, and a failed request is slower than every limit" in said
    suite = ElementTree.parse(xml).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["2", "2", "0"]


def test_an_outage_in_a_spoiled_run_is_still_red(tmp_path, capsys):
    run, xml = failing(tmp_path / "run", 0.53, dropped=500), tmp_path / "gate.xml"
    path = str(limits_of(tmp_path, 'statistic = "p99"\nat_most = "1min"'))
    assert main(["gate", str(run), path, "--junit", str(xml)]) == 1
    said = capsys.readouterr().out
    assert "SPOILED" in said
    assert "2 broken" in said
    suite = ElementTree.parse(xml).getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "2")


@pytest.mark.slow
def test_failures_have_a_built_in_limit_that_the_file_replaces(tmp_path, capsys):
    run = failing(tmp_path / "run", 0.03)
    held = limits_of(tmp_path, 'statistic = "p50"\nat_most = "1min"')
    assert main(["gate", str(run), str(held)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "at most 1 % failed [read, response, built in]" in said
    assert "the built-in limit is 1 %" in said
    own = limits_of(tmp_path, 'statistic = "failed_share"\nat_most = 0.2')
    assert main(["gate", str(run), str(own)]) == 0
    assert "built in" not in capsys.readouterr().out


def test_failures_of_another_operation_keep_the_built_in_limit(slow, tmp_path):
    path = limits_of(tmp_path, 'statistic = "failed_share"\nop = "null"\nat_most = 0.2')
    found = judge(slow, read_limits(path))
    assert {it.op for it in found if it.limit.built_in} == {
        row.op for row in slow.cells if row.op not in ("*", "null")
    }


@pytest.mark.slow
def test_junit_tells_held_broken_and_undecided_apart(clean_run, clean, tmp_path):
    rows = [p99(1e3), p99(clean.cell("null").p99), p99(60e9)]
    rows += ['statistic = "failed_share"\nat_most = 0.5']
    path, xml = str(limits_of(tmp_path, *rows)), tmp_path / "gate.xml"
    assert main(["gate", str(clean_run), path, "--junit", str(xml)]) == 1
    cases = ElementTree.parse(xml).getroot().findall("testcase")
    broken, undecided, held = (next(iter(case)) for case in cases[:3])
    assert (broken.tag, broken.get("type")) == ("failure", "broken")
    assert undecided.tag == "skipped"
    assert undecided.get("message").startswith("undecided: ")
    assert held.tag == "system-out"
    assert held.text.startswith("held: ")
    assert main(["gate", str(clean_run), path, "--strict", "--junit", str(xml)]) == 1
    strict = ElementTree.parse(xml).getroot()
    assert strict.get("skipped") == "0"
    kinds = [it.get("type") for it in strict.findall("testcase/failure")]
    assert kinds == ["broken", "undecided"]


@pytest.mark.slow
def test_json_holds_every_outcome_with_its_bounds(clean_run, tmp_path, capsys):
    path = str(limits_of(tmp_path, p99(60e9)))
    assert main(["gate", str(clean_run), path, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (limit,) = (it for it in said["limits"] if not it["built_in"])
    assert limit["outcome"] == "held"
    assert limit["low"] < limit["estimate"] <= limit["high"] <= limit["at_most"]


def test_the_limits_in_the_documentation_are_limits(tmp_path):
    page = (unruly_root() / "unruly" / "docs" / "gate.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    path = tmp_path / "limits.toml"
    path.write_text(example, encoding="utf-8")
    assert len(read_limits(path)) == len(tomllib.loads(example)["limit"])


def unruly_root():
    from pathlib import Path

    return Path(__file__).resolve().parents[3]


def test_the_share_interval_covers_the_truth_under_bursts_where_the_naive_one_does_not():
    rng = np.random.default_rng(4)
    truth, covered, naive = 0.01, 0, 0
    for _ in range(200):
        # Failures come in bursts: in one block of ten a tenth of the requests fail.
        rate = np.where(rng.uniform(size=30) < 0.1, 0.1, 0.0)
        hits = rng.binomial(1000, rate)
        found = share_interval(hits, np.full(30, 1000))
        covered += found.low <= truth <= found.high
        estimate = hits.sum() / 30_000
        reach = 1.96 * np.sqrt(estimate * (1 - estimate) / 30_000)
        naive += abs(estimate - truth) <= reach
    assert covered >= 0.9 * 200
    assert naive <= 0.3 * 200


def test_the_interval_of_a_mean_covers_the_truth_under_bursts():
    rng = np.random.default_rng(8)
    truth, covered, naive = 1.0 + 0.1 * 3, 0, 0
    for _ in range(300):
        level = 1.0 + np.where(rng.uniform(size=30) < 0.1, 3.0, 0.0)
        sums = rng.gamma(200.0, level / 200.0, 30) * 1000
        found = request_mean_interval(sums, np.full(30, 1000))
        covered += found.low <= truth <= found.high
        naive += abs(found.estimate - truth) <= 1.96 * 0.9 / np.sqrt(30_000)
    assert covered >= 0.9 * 300
    assert naive <= 0.4 * 300


def test_no_failure_in_n_is_bounded_by_the_rule_of_three():
    found = share_interval([0] * 30, [100] * 30)
    assert (found.estimate, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 3000), rel=1e-6)
