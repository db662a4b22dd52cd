"""A percentile over many runs."""

import json

import numpy as np
import pytest

from unruly.__main__ import main
from unruly.errors import ParameterError
from unruly.history import history_of
from unruly.html import write_history
from unruly.html.history import history_page
from unruly.output.history import history_json, history_text

DAY_NS = 86_400 * 10**9
BASE_NS = 20_000 * DAY_NS


def write_run(folder, day, p99, *, trustworthy=True, cores=2, plan="nightly", tag=""):
    folder.mkdir(parents=True)
    manifest = {
        "run": folder.name, "name": plan, "tag": tag, "status": "complete",
        "started_ns": BASE_NS + day * DAY_NS, "hosts": [{"cpu_model": "AMD EPYC", "cores": cores}],
    }  # fmt: skip
    step = {"name": "p99", "estimate": p99, "promise": None,
            "interval": {"low": 0.9 * p99, "high": 1.1 * p99}}  # fmt: skip
    cell = {"cell": "all", "op": "read", "latency": "response", "ladder": {"steps": [step]}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    summary = {"status": "complete", "trustworthy": trustworthy, "cells": [cell]}
    (folder / "summary.json").write_text(json.dumps(summary))


def write_runs(root, levels, **more):
    for day, level in enumerate(levels):
        write_run(root / f"run-{day:03}", day, float(level), **more)


def noisy(rng, size, level):
    return level * np.exp(rng.normal(0, 0.03, size))


def test_the_day_on_which_the_level_rose_is_named_with_its_factor(tmp_path):
    rng = np.random.default_rng(1)
    write_runs(tmp_path, np.concatenate([noisy(rng, 14, 4e6), noisy(rng, 14, 6e6)]))
    (series,) = history_of(tmp_path)
    (change,) = series.changes
    assert change.block == 14
    assert change.ratio.low < 1.5 < change.ratio.high
    # the step itself is no noise
    assert series.noise.high < 1.1
    text = history_text([series], width=100)
    assert "changed: since 2024-10-18 00:00 it is 1.48 [1.44, 1.52] times as long" in text
    assert text.count("\n> ") == 1
    assert max(map(len, text.splitlines())) <= 100


def test_runs_without_a_change_have_none_and_show_their_noise(tmp_path):
    write_runs(tmp_path, noisy(np.random.default_rng(2), 30, 4e6))
    (series,) = history_of(tmp_path)
    assert series.changes == ()
    assert "changes: none" in history_text([series])
    # the median of |x - y| of two normal values is 0.954 sd
    assert series.noise.low < np.exp(0.954 * 0.03) < series.noise.high


def test_too_few_runs_cannot_show_a_change(tmp_path):
    write_runs(tmp_path, [4e6, 4e6, 9e6])
    (series,) = history_of(tmp_path)
    assert series.absent == "3 trustworthy runs; 10 are needed to see a change"
    assert "changes: not known" in history_text([series])


def test_a_run_that_is_not_trustworthy_is_shown_and_decides_nothing(tmp_path):
    rng = np.random.default_rng(3)
    write_runs(tmp_path / "a", noisy(rng, 12, 4e6))
    for day in range(20, 32):
        write_run(tmp_path / "b" / str(day), day, 40e6, trustworthy=False)
    (series,) = history_of(tmp_path)
    assert (len(series.points), series.changes) == (24, ())
    assert history_text([series]).count("\n! ") == 13


def test_four_environments_are_four_series_on_one_page(tmp_path):
    rng = np.random.default_rng(4)
    levels = {"cluster": 1e6, "cloud": 4e6, "wide-area": 30e6, "testbed": 90e6}
    for tag, level in levels.items():
        write_runs(tmp_path / tag, noisy(rng, 12, level), tag=tag)
    found = history_of(tmp_path)
    assert {it.tag for it in found} == set(levels)
    assert all(len(it.points) == 12 and it.changes == () for it in found)
    assert "nightly [wide-area], p99 of read" in history_text(found)
    page = write_history(found, tmp_path / "history.html").read_text()
    for tag in levels:
        assert f"nightly, {tag}, AMD EPYC 2 cores" in page


def test_only_runs_of_one_plan_on_one_kind_of_machine_are_compared(tmp_path):
    write_runs(tmp_path / "a", [4e6] * 3)
    write_runs(tmp_path / "b", [9e6] * 3, cores=64)
    write_runs(tmp_path / "c", [1e6] * 3, plan="other")
    assert [len(it.points) for it in history_of(tmp_path)] == [3, 3, 3]


def test_a_wrong_percentile_or_directory_is_an_error(tmp_path):
    with pytest.raises(ParameterError, match="p99"):
        history_of(tmp_path, percentile="p98")
    with pytest.raises(ParameterError):
        history_of(tmp_path / "nowhere")
    assert history_of(tmp_path) == []
    assert history_text([]).startswith("no analysed run")


def test_the_page_says_first_what_changed_and_marks_the_day(tmp_path):
    rng = np.random.default_rng(1)
    write_runs(tmp_path, np.concatenate([noisy(rng, 14, 4e6), noisy(rng, 14, 6e6)]))
    write_run(tmp_path / "spoiled", 40, 40e6, trustworthy=False)
    page = history_page(history_of(tmp_path))
    assert page.headline.startswith("read changed: since 2024-10-18 00:00 it is 1.48 [")
    changed, noise, trusted = page.statements
    assert (changed.answer, changed.mood) == ("1 of 1", "bad")
    assert noise.answer.startswith("Up to 1.0")
    assert trusted.answer == "28 of 29"
    (figure,) = page.figures
    (panel,) = figure.panels
    data = panel.spec["datasets"]
    bars, good, spoiled, days = (data[it["data"]["name"]] for it in panel.spec["layer"])
    assert (len(bars), len(good), len(spoiled)) == (28, 28, 1)
    # the fourteenth day after the first, in ms
    assert days == [{"at": (BASE_NS + 14 * DAY_NS) // 10**6}]
    assert spoiled[0]["estimate"] == 40e6
    written = write_history(history_of(tmp_path), tmp_path / "history.html").read_text()
    assert "read changed: since 2024-10-18" in written


def test_a_page_of_a_few_runs_says_that_they_cannot_show_a_change(tmp_path):
    write_runs(tmp_path, [4e6, 4e6, 9e6])
    page = history_page(history_of(tmp_path))
    assert page.headline == "These runs cannot show a change yet"
    assert page.statements[0].text == "3 trustworthy runs; 10 are needed to see a change."
    with pytest.raises(ValueError, match="at least one series"):
        write_history([], tmp_path / "history.html")


def test_the_verb_writes_the_page_and_refuses_to_draw_nothing(tmp_path, capsys):
    write_runs(tmp_path / "runs", [4e6, 4e6, 9e6])
    page = tmp_path / "history.html"
    assert main(["history", str(tmp_path / "runs"), "-o", str(page)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(page)
    assert page.read_text().startswith("<!doctype html>")
    (tmp_path / "empty").mkdir()
    assert main(["history", str(tmp_path / "empty"), "-o", str(page)]) == 2
    assert "hold no analysed run" in capsys.readouterr().err


def test_the_history_is_json_that_every_reader_takes(tmp_path):
    write_runs(tmp_path, [4e6] * 3)
    (series,) = json.loads(json.dumps(history_json(history_of(tmp_path)), allow_nan=False))[
        "series"
    ]
    assert [it["estimate"] for it in series["points"]] == [4e6] * 3
    assert series["noise"]["estimate"] == 1.0
