"""The verbs: their output, the files they write, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import unruly
from synthetic import write_run
from unruly.__main__ import main
from unruly.base.words import METRIC_WORDS
from unruly.quantity import duration
from unruly.tables.resources import METRICS

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("which", ["clean", "slow"])
def test_the_summary_is_valid_against_its_schema(which, request, schema):
    document = unruly.summary(request.getfixturevalue(which))
    schema.validate(document)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_schema_refuses_what_a_summary_is_not(clean, schema):
    document = unruly.summary(clean)
    for change in ({"schema": 2}, {"cells": [{}]}, {"trustworthy": "yes"}, {"doubts": None}):
        assert not schema.is_valid(document | change)
    cell = dict(document["cells"][0])
    cell["p99_interval"] = 5
    assert not schema.is_valid(document | {"cells": [cell]})


def test_what_is_null_in_a_cell_has_its_reason(slow):
    nulls = 0
    for cell in unruly.summary(slow)["cells"]:
        for name, value in cell.items():
            if value is None and name not in ("needed_ns", "abstained", "p99_lower_bound"):
                assert cell["absent"].get(name), f"{cell['op']} {name}"
                nulls += 1
    assert nulls > 0


@pytest.mark.slow
def test_a_report_may_say_the_verdict_first_and_the_same(clean_run, tmp_path, capsys):
    assert main(["verdict", str(clean_run)]) == 0
    verdict = capsys.readouterr().out
    page = tmp_path / "report.html"
    assert main(["report", "--verdict", str(clean_run), "-o", str(page)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(verdict)
    assert str(page) in said.removeprefix(verdict)
    assert "<html" in page.read_text()


def test_an_empty_run_has_a_valid_summary(tmp_path, schema):
    path = write_run(tmp_path / "run", agents=2, ops=("null",), warmup_s=5, duration_s=0)
    schema.validate(unruly.summary(unruly.analyse(unruly.open_run(path))))


@pytest.mark.parametrize("which", ["clean", "slow"])
@pytest.mark.parametrize("width", [100, 72])
def test_the_verdict_is_one_screen_without_colour(which, width, request):
    text = unruly.verdict(request.getfixturevalue(which), width=width)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= width
    assert "\x1b" not in text
    assert lines[0].startswith("unruly verdict: synthetic [synthetic], complete, 60 s measured")
    assert lines[-1].strip()


def test_the_verdict_says_what_is_promised_and_what_is_not_known(clean):
    text = " ".join(unruly.verdict(clean).split())
    best = clean.cell("null").ladder.highest
    share, bound = f"{100 * best.p:.10g} %", duration(best.promise.high)
    assert f"promise: {share} of null within {bound} (95 % confidence or better);" in text
    assert "not seen: anything that happens less often than every 20 s" in text
    assert "trust: yes, nothing spoils this run; every request is accounted for" in text


def test_the_verdict_names_the_slow_node(slow):
    text = " ".join(unruly.verdict(slow).split())
    assert "slow node: agent-3 is slow for" in text


def test_a_spoiled_run_says_so_first(analysed):
    text = unruly.verdict(analysed(agents=3, ops=("null",), duration_s=20, dropped=5))
    assert "trust: DO NOT TRUST THIS RUN: 5 rows were dropped" in text.splitlines()[3]


@pytest.mark.slow
def test_many_cells_still_fit_one_screen(analysed):
    found = analysed(
        agents=2, cells=tuple(f"cell-{number}" for number in range(12)), duration_s=10, rate_hz=15
    )
    lines = unruly.verdict(found).splitlines()
    assert len(lines) <= 40
    assert any("worst of 36 by p99" in line for line in lines)


def test_verdict_prints_and_writes_the_summary(clean_run, capsys):
    (clean_run / "summary.json").unlink(missing_ok=True)
    assert main(["verdict", str(clean_run)]) == 0
    assert "(95 % confidence or better)" in capsys.readouterr().out
    assert json.loads((clean_run / "summary.json").read_text())["schema"] == 1
    assert not list(clean_run.glob("*.tmp"))


def test_verdict_json_is_the_summary(clean_run, capsys):
    assert main(["verdict", "--json", str(clean_run)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(
        (clean_run / "summary.json").read_text()
    )


def test_an_error_ends_with_2_and_its_message_on_stderr(tmp_path, capsys):
    assert main(["verdict", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"unruly: {tmp_path}: not a run")
    assert "hint:" in err


def test_the_module_runs_as_a_program(clean_run):
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-m", "unruly", "verdict", str(clean_run)],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY / "unruly" / "python",
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 41
    assert "Warning" not in done.stderr


def test_a_directory_that_cannot_be_written_still_gets_its_verdict(clean_run, monkeypatch, capsys):
    def refuse(*_args, **_kwargs):
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    assert main(["verdict", str(clean_run)]) == 0
    assert "promise" in capsys.readouterr().out


def test_every_metric_has_words():
    assert set(METRICS) == set(METRIC_WORDS)
