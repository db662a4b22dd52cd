"""Goodput: planted tokens, held to the limits of a plan."""

from __future__ import annotations

import duckdb
import pytest

import unruly
from synthetic import Segments, write_run
from unruly.html import write_report
from unruly.output.verdict import verdict
from unruly.topics.goodput.model import goodput_of
from unruly.topics.goodput.statistics import limits_of

MS = 1_000_000
SECONDS = 60
LIMITS = "ttft < 100ms, tpot < 15ms, gap < 40ms, e2e < 5s"


def planted(root, limits, layers=("first token", "token"), **changes):
    """Replies of four tokens. The first of each tenth is late; those of each fifth are far apart.

    A hundredth has one gap of 50 ms among gaps that are short.
    """
    shape = {"kind": "drive", "agents": 1, "ops": ("chat",), "rate_hz": 50, "stalls_hz": 0}
    path = write_run(root, **shape, duration_s=SECONDS, warmup_s=2, **changes)
    requests = duckdb.sql(
        "select cell, repeat, 'host-0' as host, 'drive-0' as process, client, server, request,"
        " attempt, intended_ns,"
        f" intended_ns + if(request % 10 = 0, {300 * MS}, {50 * MS}) as first,"
        f" if(request % 5 = 0, {20 * MS}, {1 * MS}) as gap,"
        f" if(request % 100 = 1, {49 * MS}, 0) as stall"
        f" from read_parquet('{path}/requests/*.parquet')"
    )
    parts = [f"select *, '{layers[0]}' as layer, intended_ns as started_ns, first as ended_ns"]
    parts += [
        f"select *, '{layers[1]}' as layer, first + {place} * gap + {int(place > 1)} * stall"
        f" as started_ns, first + {place + 1} * gap + {int(place > 0)} * stall as ended_ns"
        for place in range(3)
    ]
    union = " union all ".join(f"{part} from requests" for part in parts)
    named = "select * exclude (intended_ns, first, gap, stall)"
    spans = requests.query("requests", f"{named} from ({union})")
    segments = Segments(path, unruly.open_run(path).id, "synthetic")
    segments.count = 1000
    segments.write("spans", spans.to_arrow_table())
    lines = f'goodput = "{limits}"\n' if limits else ""
    (path / "plan.toml").write_text(f'[run]\nduration = "{SECONDS}s"\n{lines}')
    return path


def analyse(path):
    return unruly.analyse(unruly.open_run(path), causes=False, pictures=False)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return planted(tmp_path_factory.mktemp("goodput") / "run", LIMITS)


@pytest.fixture(scope="module")
def analysis(path):
    return analyse(path)


def test_a_request_is_good_within_all_limits(path, analysis):
    (row,) = goodput_of(analysis).rows
    (counts,) = duckdb.sql(
        "select count(*), count(*) filter (request % 10 = 0), count(*) filter (request % 5 = 0),"
        " count(*) filter (request % 100 = 1),"
        " count(*) filter (request % 5 <> 0 and request % 100 <> 1)"
        f" from read_parquet('{path}/requests/*.parquet') where phase <> 'warmup'"
    ).fetchall()
    n, late, apart, stalled, good = counts
    assert (row.n, row.good, row.failed) == (n, good, 0)
    # the mean of 1, 50 and 1 ms is beyond 15 ms as well
    missed = {it.measure: it.missed for it in row.limits}
    assert missed == {"ttft": late, "tpot": apart + stalled, "gap": stalled, "e2e": 0}
    assert row.share.estimate == pytest.approx(good / n)
    assert row.share.low < 0.79 < row.share.high
    assert row.rate_hz.estimate == pytest.approx(good / SECONDS, rel=1e-6)
    assert row.rate_hz.low < good / SECONDS < row.rate_hz.high


def test_the_verdict_and_the_report_show_it(path, tmp_path):
    analysis = unruly.analyse(unruly.open_run(path), causes=False)
    shown = " ".join(verdict(analysis).split())
    assert "goodput: " in shown
    assert "300 missed ttft < 100 ms, " in shown
    write_report([analysis], tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Goodput" in html
    assert "time to the first token over 100" in html


def test_failed_requests_are_not_good(tmp_path):
    path = planted(tmp_path / "run", "e2e < 5s", failed_share=0.25)
    (row,) = goodput_of(analyse(path)).rows
    assert row.failed > 0
    assert row.good + row.failed == row.n
    assert [it.missed for it in row.limits] == [0]


def test_a_limit_of_tokens_is_not_known_where_replies_came_whole(tmp_path):
    shape = {"kind": "drive", "agents": 1, "ops": ("get",), "rate_hz": 50, "stalls_hz": 0}
    path = write_run(tmp_path / "run", **shape, duration_s=20)
    (path / "plan.toml").write_text('[run]\nduration = "20s"\ngoodput = "ttft < 1s"\n')
    analysis = analyse(path)
    (row,) = goodput_of(analysis).rows
    assert (row.share, row.rate_hz, row.limits) == (None, None, ())
    assert row.absent["share"] == "no reply of the run came in parts"
    assert "goodput: unknown: no reply of the run came in parts" in verdict(analysis)
    (path / "plan.toml").write_text('[run]\nduration = "20s"\ngoodput = "e2e < 1us"\n')
    (row,) = goodput_of(analyse(path)).rows
    assert row.good == 0
    assert row.limits[0].missed == row.n


def test_spans_of_connections_are_no_parts_of_replies(tmp_path):
    path = planted(tmp_path / "run", "ttft < 500ms", layers=("connect", "tls"))
    (row,) = goodput_of(analyse(path)).rows
    assert row.share is None
    assert row.absent["share"] == "no reply of the run came in parts"


def test_without_limits_there_is_no_goodput(tmp_path):
    assert goodput_of(analyse(planted(tmp_path / "run", ""))) is None


def test_limits_are_read_as_the_plan_has_them():
    assert limits_of("ttft < 0.5s, tpot < 50ms, gap < 1s, e2e < 5min") == {
        "ttft": 5e8, "tpot": 5e7, "gap": 1e9, "e2e": 3e11,
    }  # fmt: skip
    assert limits_of("ttft < 5 parsecs, p99 < 5ms, nonsense") == {}
