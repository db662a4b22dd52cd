"""What a percentile in a file of another tool is worth."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unruly
from stalls import CALM_S, RATE_HZ, STALL_S, audit, closed_loop, one_stall, stalled, write
from unruly.auditing import SLOW_MOST, STRETCHES, USUAL_MOST
from unruly.errors import IngestError, ParameterError
from unruly.output.audit import audit_json, audit_text, conclusion, no_upper
from unruly.stats import quantile_ranks_iid
from unruly.stats.claims import (
    can_show_omission,
    claims,
    early_stopping_over,
    omission,
    resampled,
)


def truth(p=0.99):
    """The percentile of the law: a wait in a stall is exponential, whenever the request came."""
    base_s = 1e-3 * np.exp(0.3 * np.random.default_rng(99).standard_normal(1_000_000))
    share = STALL_S / (CALM_S + STALL_S)
    return 1e9 * STALL_S * np.log(share * np.exp(base_s / STALL_S).mean() / (1 - p))


def test_early_stopping_claims_99_percent_and_holds_in_58_under_renewal_stalls():
    rng, limit, runs = np.random.default_rng(7), truth(), 400
    over = early_stopping_over(60 * RATE_HZ, 0.99)
    held = sum((stalled(rng, 60) >= limit).sum() >= over for _ in range(runs)) / runs
    # three standard errors of 400 runs
    assert held == pytest.approx(0.58, abs=0.075)


def test_early_stopping_holds_where_requests_are_independent():
    rng, n = np.random.default_rng(8), 60 * RATE_HZ
    over = early_stopping_over(n, 0.99)
    held = (rng.binomial(n, 0.01, 20_000) >= over).mean()
    assert held == pytest.approx(0.99, abs=0.003)


def test_the_figure_of_one_file_is_near_the_truth_that_the_file_does_not_know():
    rng = np.random.default_rng(9)
    found = [claims(stalled(rng, 300), 0.99) for _ in range(12)]
    known = [it for it in found if it.interval_held]
    assert len(known) >= 8
    # measured over 600 runs of this length: 18 % and 61 %
    assert np.mean([it.interval_held.share for it in known]) == pytest.approx(0.18, abs=0.03)
    assert np.mean([it.bound_held.share for it in known]) == pytest.approx(0.60, abs=0.03)
    assert sum(it.bound_held.low <= 0.61 <= it.bound_held.high for it in known) > len(known) / 2


def test_of_independent_requests_both_claims_are_worth_what_they_say():
    rng = np.random.default_rng(10)
    found = [claims(rng.lognormal(14, 0.5, 60_000), 0.99) for _ in range(10)]
    known = [it for it in found if it.interval_held]
    assert len(known) >= 8
    assert np.mean([it.interval_held.share for it in known]) == pytest.approx(0.95, abs=0.02)
    assert np.mean([it.bound_held.share for it in known]) == pytest.approx(0.99, abs=0.01)
    assert all(it.interval_held.low < 0.95 < it.interval_held.high for it in known)


def test_the_bounds_are_those_of_the_ranks():
    values = np.random.default_rng(11).permutation(np.arange(1.0, 10_001.0))
    found = claims(values, 0.99)
    assert (found.low, found.high) == quantile_ranks_iid(10_000, 0.99, 0.95)
    assert found.bound == 10_001 - early_stopping_over(10_000, 0.99)
    assert found.beyond == 100


def test_values_that_are_alike_do_not_break_a_claim():
    values = np.repeat([1e6, 2e6, 3e6], 4_000)
    np.random.default_rng(12).shuffle(values)
    held = claims(values, 0.5).interval_held
    assert held.share == 1.0


def test_a_resample_has_as_many_beyond_as_the_file_on_average():
    beyond = np.zeros((1, 30_000), bool)
    beyond[0, 5_000:5_300] = True
    drawn = resampled(beyond, 0.99)
    assert drawn.mean() == pytest.approx(0, abs=4 * drawn.std() / np.sqrt(drawn.size))
    # all in one block: there, or there twice, or not at all
    assert drawn.std() == pytest.approx(300, rel=0.1)


def test_a_file_with_few_episodes_gets_no_figure(tmp_path):
    (found,) = audit(write(tmp_path / "one-stall.csv", one_stall()))
    assert found.claims.interval_held is None
    assert "cannot show what the p99" in conclusion(found)
    assert "one independent episode, and 7 are needed" in conclusion(found)
    assert found.needed_ns > 6 * found.duration_ns


def test_a_closed_loop_lacks_the_requests_that_it_did_not_send(tmp_path):
    (found,) = audit(write(tmp_path / "closed.csv", *closed_loop()))
    assert found.omission.share < 0.02
    # 100 stalls of 500 ms at 1,000 a second
    assert found.omission.expected - found.omission.sent == pytest.approx(50_000, rel=0.02)
    assert found.omission.estimate > 0.4e9
    assert "coordinated omission" in " ".join(audit_text([found]).split())


def test_a_steady_schedule_lacks_none():
    rng = np.random.default_rng(13)
    for starts in (np.arange(60_000) * 1e6, np.cumsum(rng.exponential(1e6, 60_000))):
        assert omission(starts, stalled(rng, 60), 0.99) is None


@pytest.mark.parametrize("lag_us", [0, 700])
def test_only_a_file_that_shows_late_sends_is_known_to_have_a_schedule(tmp_path, lag_us):
    # pgbench --rate: client, transaction, time, script, seconds, microseconds, schedule lag
    rows = [
        f"0 {it} {1_000 + it % 3 + lag_us} 0 17{it // 100:08} {it % 100 * 10_000} {lag_us}"
        for it in range(1_000)
    ]
    (tmp_path / "pgbench.log").write_text("\n".join(rows) + "\n")
    (found,) = unruly.audit(tmp_path / "pgbench.log")
    assert found.scheduled is (lag_us > 0)
    assert ("scheduled times" in audit_text([found])) is (lag_us > 0)


def test_operations_and_requests_that_are_left_out_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr("unruly.auditing.OPS_MOST", 2)
    monkeypatch.setattr("unruly.auditing.ROWS_MOST", 600)
    rows = [f"{it},{5 + it % 3},op-{it % 3}" for it in range(900)]
    path = tmp_path / "ops.csv"
    path.write_text("\n".join(["time_ms,latency_ms,name", *rows]) + "\n")
    found = audit(path, op="name")
    assert (len(found), found[0].left_out, found[0].ops_left_out) == (2, 300, 1)
    text = audit_text(found)
    assert "1 more operations, with fewer requests, were left out" in text
    assert "The last 300 requests of the file were left out" in text


def test_counts_without_order_are_worth_nothing_that_can_be_said(tmp_path):
    path = tmp_path / "wrk2.txt"
    path.write_text(
        "       Value     Percentile TotalCount 1/(1-Percentile)\n\n"
        "       1.000 0.000000000000          5           1.00\n"
        "       2.000 0.500000000000         60           2.00\n"
        "       4.000 0.900000000000         90          10.00\n"
        "       8.000 0.990000000000         99         100.00\n"
        "      16.000 1.000000000000        100\n"
        "#[Mean    =        2.100, StdDeviation   =        1.500]\n"
        "#[Max     =       16.000, Total count    =          100]\n"
        "#[Buckets =           20, SubBuckets     =         2048]\n"
    )
    (found,) = unruly.audit(path, unit="ms")
    assert found.claims is None
    assert "keeps counts of latencies and not their order" in conclusion(found)


def test_a_percentile_that_the_tool_printed_is_told_as_it_printed_it(tmp_path):
    text = (
        "Running 10s test @ http://h/\n  2 threads and 4 connections\n"
        "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
        "    Latency     2.00ms    1.00ms  20.00ms   90.00%\n    Req/Sec     1.00k    10.0\n"
        "  Latency Distribution\n     50%    1.50ms\n     75%    2.00ms\n     90%    2.77ms\n"
        "     99%   14.73ms\n  20000 requests in 10.00s, 1.2MB read\n"
    )
    (tmp_path / "wrk.txt").write_text(text)
    (found,) = unruly.audit(tmp_path / "wrk.txt")
    assert found.estimate == pytest.approx(14.73e6)


def test_options_for_files_are_refused_beside_a_run(clean_run):
    with pytest.raises(ParameterError, match="which is a run"):
        unruly.audit(clean_run, value="took_ms")


def test_where_more_failed_than_the_percentile_allows_there_is_none(tmp_path):
    path = tmp_path / "failed.csv"
    rows = [f"{it},{5 + it % 3},{500 if it % 20 == 0 else 200}" for it in range(1_000)]
    path.write_text("\n".join(["time_ms,latency_ms,code", *rows]) + "\n")
    (found,) = audit(path, status="code")
    assert found.estimate is None
    assert conclusion(found).startswith("there is no p99: 50 of 1,000 requests failed, and")


def test_rows_that_are_sorted_by_latency_get_no_figure(tmp_path):
    latencies = np.sort(np.random.default_rng(2).lognormal(16, 0.5, 3_000))
    (found,) = audit(write(tmp_path / "sorted.csv", latencies))
    assert "rows are sorted by latency" in conclusion(found)
    rows = "".join(
        f"Sun Nov 29 01:46:{40 + it % 3}\t{1796000000 + it % 3}\t0\t{it // 9}\t{it // 9 + 1}\t0\n"
        for it in range(900)
    )
    (tmp_path / "ab.tsv").write_text("starttime\tseconds\tctime\tdtime\tttime\twait\n" + rows)
    (found,) = unruly.audit(tmp_path / "ab.tsv")
    assert found.format == "ab"
    assert "rows are sorted by latency" in conclusion(found)


@pytest.mark.parametrize(
    "latencies", [[1e6] * 3, [5e6] * 400, [0.0] * 400, list(np.arange(1, 401) * 1e6)]
)
def test_every_small_file_gets_a_sentence(tmp_path, latencies):
    found = audit(write(tmp_path / "small.csv", latencies))
    text = audit_text(found, width=80)
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(json.dumps(audit_json(found), allow_nan=False))
    assert document["audits"][0]["n"] == len(latencies)
    assert document["audits"][0]["conclusion"] == conclusion(found[0])


def test_operations_with_few_requests_share_one_sentence(tmp_path):
    names = ["read"] * 300 + [f"rare-{it % 9}" for it in range(90)]
    rows = [f"{it},{5 + it % 3},{name}" for it, name in enumerate(names)]
    path = tmp_path / "ops.csv"
    path.write_text("\n".join(["time_ms,latency_ms,name", *rows]) + "\n")
    found = audit(path, op="name")
    text = " ".join(audit_text(found).split())
    assert text.count("ops.csv (csv), ") == 1
    assert "fewer than 100 requests: rare-0, rare-1, rare-2, rare-3, rare-4, rare-5 and 3" in text
    assert len(audit_json(found)["audits"]) == 10


def test_files_of_one_name_are_told_apart(tmp_path):
    paths = [tmp_path / name / "took.csv" for name in ("monday", "tuesday")]
    for place, path in enumerate(paths):
        path.parent.mkdir()
        write(path, np.random.default_rng(place).lognormal(14, 0.5, 200))
    assert [it.file for it in audit(paths)] == list(map(str, paths))
    assert [it.file for it in audit(paths[:1])] == ["took.csv"]


def test_the_legend_explains_the_percentile_that_was_asked_for(tmp_path):
    path = write(tmp_path / "took.csv", np.random.default_rng(3).lognormal(14, 0.5, 3_000))
    for asked, words in (
        (99, "the p99 is the time that 1 request in 100 exceeds"),
        (99.9, "the p99.9 is the time that 1 request in 1,000 exceeds"),
        (97, "the p97 is the time that 3 % of the requests exceed"),
    ):
        text = " ".join(audit_text(audit(path, percentile=asked)).split())
        assert f"How to read this: {words}." in text


def test_a_picture_has_the_slowest_request_of_each_stretch_and_no_more_than_it_can_show(tmp_path):
    latencies = np.random.default_rng(4).lognormal(14, 0.5, 120_000)
    latencies[60_000] = 9e9
    (found,) = audit(write(tmp_path / "took.csv", latencies))
    points = found.points
    assert SLOW_MOST - STRETCHES <= sum(points.slow) <= SLOW_MOST
    assert len(points.at) == USUAL_MOST + sum(points.slow)
    assert points.left_out == found.claims.beyond - sum(points.slow)
    assert max(points.latency_ns) == pytest.approx(9e9)
    assert points.at[int(np.argmax(points.latency_ns))] == pytest.approx(60e9)
    assert (points.timed, points.end) == (True, pytest.approx(119.999e9))
    assert list(points.at) == sorted(points.at)
    assert all(
        slow == (took > found.estimate)
        for took, slow in zip(points.latency_ns, points.slow, strict=True)
    )


def test_a_picture_without_times_counts_the_requests(tmp_path):
    path = write(tmp_path / "took.csv", np.random.default_rng(5).lognormal(14, 0.5, 300))
    (found,) = unruly.audit(path, value="latency_ms", time="none")
    assert found.points.timed is False
    assert found.points.at == tuple(map(float, range(300)))


def test_a_run_of_our_own_is_judged_too(tmp_path):
    write(tmp_path / "took.csv", stalled(np.random.default_rng(3), 30))
    run = unruly.import_file(
        tmp_path / "took.csv", tmp_path / "run", value="latency_ms", time="time_ms", time_unit="ms"
    )
    (found,) = unruly.audit(run.directory)
    assert (found.format, found.n) == ("unruly", 30_000)


def test_bad_input_is_refused_with_a_next_step(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(IngestError, match="is empty"):
        audit(tmp_path / "empty.csv")
    with pytest.raises(IngestError):
        audit(tmp_path / "nowhere.csv")
    with pytest.raises(ParameterError, match="100 requests or more"):
        claims([1.0] * 99, 0.99)
    path = write(tmp_path / "small.csv", [1e6] * 200)
    for wrong in (0, 100, 101, -1):
        with pytest.raises(ParameterError, match="--percentile"):
            audit(path, percentile=wrong)


@pytest.mark.parametrize("seed", range(5))
def test_a_schedule_under_long_requests_is_not_taken_for_clients_that_wait(seed):
    random = np.random.default_rng(seed)
    started = np.cumsum(random.exponential(1e6, 60_000))
    took = random.lognormal(np.log(1e8), 1.0, 60_000)
    # slow requests are open nearly all the time, and the rest shows no usual rate
    assert omission(started, took, 0.99) is None
    assert not can_show_omission(started, took, 0.99)


def test_an_upper_bound_among_the_failed_is_not_blamed_on_the_length_of_the_file():
    latencies = np.random.default_rng(1).lognormal(14, 0.5, 10_000)
    assert not claims(latencies, 0.99).high_failed
    latencies[::111] = np.inf
    found = claims(latencies, 0.99)
    assert found.estimate is not None
    assert found.high is None
    assert found.high_failed
    assert "falls among the failed" in no_upper(found.high_failed)
