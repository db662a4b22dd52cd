"""Loads of a store: the knee, and what the generator could not send."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import unruly
from quick import numbers
from stores_world import DRIVE, rising_load
from synthetic import write_run
from unruly import stats
from unruly.__main__ import main
from unruly.html import write_report
from unruly.topics.stores.loads import rate_hz
from unruly.topics.stores.words import knee_sentence


def test_the_knee_is_below_the_first_load_that_breaks(rising):
    (ramp,) = rising.stores.ramps
    assert ramp.knee.holds == 800
    assert ramp.knee.surely == 800
    assert ramp.knee.breaks == 1600
    assert ramp.knee.steps[-1].ratio.low > 3
    finding = next(it for it in rising.findings if it.code == "knee")
    assert finding.title.startswith("the p99 holds up to 800/s; at 1,600/s it is 13.6 × that at")


def test_a_load_without_a_knee_holds_to_the_highest(analysed):
    analysis = analysed(**rising_load())
    (ramp,) = analysis.stores.ramps
    assert ramp.knee.holds == 1600
    assert ramp.knee.breaks is None
    finding = next(it for it in analysis.findings if it.code == "knee")
    assert finding.title == "the p99 holds up to 1,600/s, the highest load that was tried"


@pytest.mark.slow
def test_what_the_generator_could_not_send_is_not_held_against_the_store(tmp_path, capsys):
    # of 1,600 a second that were asked for 1,400 were sent: the rest never was
    shape = rising_load()
    shape["cell_rate_hz"] = {**shape["cell_rate_hz"], "rate=1600/s": 1_400}
    run = write_run(tmp_path / "run", **shape)
    analysis = numbers(run)
    (ramp,) = analysis.stores.ramps
    assert [load.own for load in ramp.loads] == [False, False, False, True]
    assert ramp.knee.holds == ramp.knee.surely == 800
    assert ramp.knee.breaks is None
    assert [step.state for step in ramp.knee.steps] == ["holds", "holds", "holds", "open"]
    assert ramp.knee.steps[-1].ratio.estimate < 2
    finding = next(it for it in analysis.findings if it.code == "generator-limit")
    assert finding.evidence["cells"] == ["rate=1600/s"]
    assert main(["verdict", str(run)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "88 % of the load is answered (there the generator was late itself)" in text
    assert "with 95 % confidence the knee lies at 800/s or above" in text


def test_fewer_good_replies_than_asked_for_are_a_break_even_where_they_are_fast():
    p99, all_of_it = _about(1e6, 0.01), _about(1.0, 0.001)
    found = stats.knee([1.0, 2.0, 4.0], [p99] * 3, [all_of_it, all_of_it, _about(0.87, 0.01)])
    assert (found.holds, found.surely, found.breaks) == (2.0, 2.0, 4.0)
    assert found.steps[-1].ratio.estimate == 1
    # unless the load generator itself was late
    found = stats.knee(
        [1.0, 2.0, 4.0], [p99] * 3, [all_of_it, all_of_it, _about(0.87, 0.01)],
        own=[False, False, True],
    )  # fmt: skip
    assert (found.holds, found.surely, found.breaks) == (2.0, 2.0, None)


def _about(value, share):
    return stats.Interval(value, value * (1 - share), value * (1 + share), 0.95, 3, 3.0, "")


def test_a_break_within_the_uncertainty_is_not_told_as_certain():
    sure = [_about(1.0, 0.001)] * 3
    p99s = [_about(1e6, 0.5), _about(4e6, 0.5), _about(40e6, 0.5)]
    found = stats.knee([1.0, 2.0, 4.0], p99s, sure)
    assert [step.state for step in found.steps] == ["holds", "open", "breaks"]
    assert (found.holds, found.surely, found.breaks) == (1.0, 1.0, 4.0)


def test_a_load_at_which_the_p99_fails_has_broken():
    good, failed = stats.repeats_interval([1e6, 1e6]), stats.repeats_interval([np.inf, np.inf])
    shares = [stats.repeats_interval([1.0, 1.0]), stats.repeats_interval([0.98, 0.98])]
    found = stats.knee([1.0, 2.0], [good, failed], shares)
    assert (found.holds, found.breaks) == (1.0, 2.0)
    # also the lowest, with which nothing can be compared any more
    found = stats.knee([1.0, 2.0], [failed, good], shares)
    assert [step.state for step in found.steps] == ["breaks", "open"]
    mixed = stats.repeats_interval([1e6, np.inf], log=True)
    assert stats.knee([1.0, 2.0], [mixed, good], shares).steps[0].state == "open"
    # in some of the repeats, or in the only one, it may be chance
    for p99s in ([1e6, np.inf], [np.inf]):
        found = stats.knee([1.0, 2.0], [good, stats.repeats_interval(p99s, log=True)], shares)
        assert (found.holds, found.breaks) == (1.0, None)


@pytest.mark.slow
def test_a_load_at_which_everything_fails_is_drawn_and_told(tmp_path, schema):
    run = write_run(
        tmp_path / "run", **rising_load(), faults=(("rate=1600/s", "kill", "store-0", 0.0, 6.0),)
    )
    analysis = numbers(run)
    (ramp,) = analysis.stores.ramps
    assert (ramp.knee.holds, ramp.knee.breaks) == (800, 1600)
    document = json.loads(json.dumps(unruly.summary(analysis)))
    schema.validate(document)
    assert document["stores"]["ramps"][0]["steps"][-1]["ratio"]["estimate"] is None
    page = write_report([analysis], tmp_path / "report.html").read_text()
    assert "at 1,600/s more than 1 % fail, and 0 % of the load is answered" in page


def test_one_repeat_is_not_told_with_confidence(analysed):
    analysis = analysed(**rising_load(slow_from=1600, factor=3.5, repeats=1))
    (ramp,) = analysis.stores.ramps
    assert (ramp.knee.surely, ramp.knee.breaks) == (None, None)
    sentence = knee_sentence(ramp)
    assert sentence.startswith("the p99 holds up to 800/s; at 1,600/s it is ")
    assert sentence.endswith(" that at the lowest load; one repeat says no more")


def test_the_knee_says_how_sure_it_is_at_either_end(rising):
    (ramp,) = rising.stores.ramps

    def said(**changes):
        return knee_sentence(replace(ramp, knee=replace(ramp.knee, **changes)))

    highest = "the p99 holds up to 1,600/s, the highest load that was tried"
    assert said(holds=1600.0, surely=1600.0, breaks=None) == highest
    assert said(holds=1600.0, surely=400.0, breaks=None) == (
        f"{highest}; with 95 % confidence the knee lies at 400/s or above"
    )
    assert said(holds=1600.0, surely=None, breaks=None) == f"{highest}; the repeats leave it open"
    assert said(surely=None).endswith("; with 95 % confidence the knee lies below 1,600/s")
    lowest = "the p99 does not hold even at 200/s, the lowest load that was tried"
    assert said(holds=None, surely=None, breaks=200.0) == lowest
    assert said(holds=None, surely=None, breaks=None) == f"{lowest}; the repeats leave it open"


def test_a_rate_is_read_as_plans_write_it():
    said = {"0.5/s": 0.5, "2k/s": 2e3, "2.5 k/s": 2.5e3, "1M/s": 1e6, "90/min": 1.5, "90 /min": 1.5}
    assert {text: rate_hz(text) for text in said} == said
    assert {rate_hz(text) for text in ("max", "2k/min", "90/h", "-1/s", "1e3/s", "")} == {None}


def test_a_load_by_the_minute_has_a_knee(analysed):
    cells = {f"rate={rate}/min": rate / 60 for rate in (6_000, 12_000, 24_000)}
    factors = [{"name": it, "factors": {"drive.rate": it[5:]}} for it in cells]
    analysis = analysed(
        **{**DRIVE, "duration_s": 5}, repeats=2, cells=tuple(cells), manifest={"cells": factors},
        cell_rate_hz=cells,
    )  # fmt: skip
    (ramp,) = analysis.stores.ramps
    assert [load.asked_hz for load in ramp.loads] == [100, 200, 400]
    assert ramp.knee.holds == 400


@pytest.mark.parametrize("requests", [1, 2, 5, 12])
def test_a_leg_of_few_requests_is_not_blamed_on_the_generator(analysed, requests):
    cells = ("store=a", "store=b")
    factors = [{"name": it, "factors": {"drive.store": it[-1]}} for it in cells]
    analysis = analysed(
        **{**DRIVE, "duration_s": 1, "rate_hz": requests}, repeats=3, cells=cells,
        manifest={"cells": factors},
    )  # fmt: skip
    # one request has no rate
    assert len(analysis.stores.loads) == (0 if requests == 1 else 2)
    for load in analysis.stores.loads:
        assert not load.own
        assert load.asked_hz < 100 * requests
        assert load.achieved_hz.estimate == pytest.approx(load.asked_hz, rel=1e-6)
    assert "generator-limit" not in {it.code for it in analysis.findings}


def test_any_other_factor_has_its_throughput_and_p99_by_level(analysed):
    cells = {f"clients={clients}": clients for clients in (1, 2, 4)}
    factors = [{"name": it, "factors": {"drive.clients": str(n)}} for it, n in cells.items()]
    analysis = analysed(
        **{**DRIVE, "duration_s": 5}, repeats=2, cells=tuple(cells), manifest={"cells": factors},
        cell_rate_hz={it: 100.0 * n for it, n in cells.items()},
        cell_scale={it: float(n) for it, n in cells.items()},
    )  # fmt: skip
    (scaling,) = analysis.stores.scalings
    assert scaling.levels == ("1", "2", "4")
    rates = [load.achieved_hz.estimate for load in scaling.loads]
    assert rates == pytest.approx([100, 200, 400], rel=0.02)
    p99s = [load.p99.estimate for load in scaling.loads]
    assert p99s[2] / p99s[0] == pytest.approx(4, rel=0.3)
    assert analysis.stores.ramps == ()
