"""Load generators of language models, and summaries of bombardier and k6.

guidellm 0.8.1 wrote its request. The others have the form that the tools' documentation and sources
give; aiperf and bombardier wrote files in `real` too.
"""

from __future__ import annotations

import json

import pytest

from unruly import IngestError
from unruly.ingest.formats import FORMATS
from unruly.ingest.source import Sample

MS, S = 1_000_000, 1_000_000_000
ROW = "op, status, intended_ns, sent_ns, received_ns - sent_ns"
SPAN = "request, layer, started_ns, ended_ns"
START = 1_795_457_372 * S


def guidellm_request(at, taken, first=0.0625, error=None):
    return {
        "type_": "generative_request_stats", "request_args": "secret_words", "output": "secret",
        "info": {
            "status": "completed", "error": error, "timings": {
                "targeted_start": at - 0.25, "request_start": at, "request_end": at + taken,
                "first_token_iteration": None if first is None else at + first,
                "last_token_iteration": at + taken, "token_iterations": 32,
            },
        },
        "request_start_time": at, "request_end_time": at + taken,
    }  # fmt: skip


def guidellm(*strategies):
    return json.dumps({
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "benchmarks": [
            {
                "type_": "generative_benchmark", "config": {"strategy": {"type_": strategy}},
                "requests": {
                    "successful": [
                        guidellm_request(1_795_457_372.5, 0.5),
                        guidellm_request(1_795_457_373.0, 0.75),
                    ],
                    "errored": [
                        guidellm_request(1_795_457_374.0, 0.5, None, "Connection refused")
                    ],
                    "incomplete": [guidellm_request(1_795_457_375.0, 9.0)],
                    "total": None,
                },
            }
            for strategy in strategies
        ],
    })  # fmt: skip


VLLM = {
    "date": "20261129-041035", "backend": "openai-chat", "model_id": "m", "num_prompts": 3,
    "request_rate": 10.0, "burstiness": 1.0, "duration": 2.0, "completed": 2, "failed": 1,
    "total_input_tokens": 20, "request_throughput": 1.0, "input_lens": [5, 5, 10],
    "output_lens": [3, 1, 0], "ttfts": [0.25, 0.5, 0.0], "itls": [[0.125, 0.0625], [], []],
    "latencies": [0.5, 0.5, 0.0], "start_times": [100.0, 100.5, 101.0],
    "queue_times": [0.0, 0.25, 0.0], "generated_texts": ["secret_words", "", ""],
    "errors": ["", "", "Traceback: TimeoutError"],
}  # fmt: skip


def aiperf(number, phase="profiling", error=None, **metrics):
    return json.dumps({
        "metadata": {
            "session_num": number, "request_start_ns": START + number * S,
            "request_end_ns": START + number * S + 5 * MS, "benchmark_phase": phase,
            "was_cancelled": error is not None,
        },
        "metrics": {name: {"value": value, "unit": "ms"} for name, value in metrics.items()},
        "error": error,
    }) + "\n"  # fmt: skip


AIPERF = (
    aiperf(0, phase="warmup", request_latency=9.0, time_to_first_token=1.0)
    + aiperf(1, request_latency=12.5, time_to_first_token=4.5, inter_chunk_latency=[3.0, 5.0])
    + aiperf(2, error={"code": 499, "type": "RequestCancellationError", "message": "cancelled"})
    + aiperf(3, error={"code": None, "type": "TimeoutError", "message": "timed out"})
)
BOMBARDIER = {
    "spec": {"numberOfConnections": 8, "method": "GET", "url": "http://h/"},
    "result": {
        "bytesRead": 1, "timeTakenSeconds": 3.0, "req1xx": 0, "req2xx": 98, "req3xx": 0,
        "req4xx": 0, "req5xx": 1, "others": 1,
        "latency": {
            "mean": 300.0, "stddev": 5.0, "max": 9_000,
            "percentiles": {"50": 200, "75": 300, "90": 400, "95": 500, "99": 1_000},
        },
    },
}  # fmt: skip
SAMPLES = {
    "guidellm": guidellm("constant"), "vllm": json.dumps(VLLM), "aiperf": AIPERF,
    "bombardier": json.dumps(BOMBARDIER),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_a_tool_is_recognised_by_its_content_and_by_no_other(bring, name):
    sample = Sample(SAMPLES[name].encode(), True)
    assert [it.name for it in FORMATS if it.recognises(sample) and not it.fallback] == [name]
    made = bring(SAMPLES[name])
    assert "secret" not in json.dumps(made.manifest)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_that_is_cut_off_or_changed_is_no_traceback(bring, name):
    text = SAMPLES[name]
    cuts = [text[:cut] for cut in range(1, len(text), max(len(text) // 12, 1))]
    for damaged in (
        *cuts, text.replace(":", "", 3), text.replace("1", '"x"', 4), text.replace("0.5", "null"),
        text.replace("0.25", "1e999"), text.replace("[", "{", 2), text.replace("{", "[", 2),
    ):  # fmt: skip
        try:
            bring(damaged)
        except IngestError:
            continue


def test_guidellm_has_a_schedule_and_the_first_token(bring):
    made = bring(guidellm("constant"))
    half = START + 500 * MS
    assert made.rows(ROW) == [
        ("request", "ok", half - 250 * MS, half, 500 * MS),
        ("request", "ok", half + 250 * MS, half + 500 * MS, 750 * MS),
        ("request", "refused", half + 1_250 * MS, half + 1_500 * MS, 500 * MS),
        ("request", "unfinished", half + 2_250 * MS, half + 2_500 * MS, None),
    ]
    # from the scheduled time, as `unruly drive` counts it
    assert made.rows(SPAN, "spans") == [
        (0, "first token", half - 250 * MS, half + 62_500_000),
        (1, "first token", half + 250 * MS, half + 562_500_000),
    ]
    assert any("are unfinished" in it for it in made.missing)


def test_guidellm_without_a_schedule_has_none_and_benchmarks_are_cells(bring):
    made = bring(guidellm("concurrent"))
    assert made.rows("count(*)", where="intended_ns = sent_ns") == [(4,)]
    assert made.rows("started_ns", "spans")[0] == (START + 500 * MS,)
    both = bring(guidellm("synchronous", "throughput"))
    assert {cell["factors"]["benchmark"] for cell in both.manifest["cells"]} == {
        "1 synchronous", "2 throughput",
    }  # fmt: skip
    assert {row[0] for row in both.rows("cell", "spans")} == {
        "benchmark=1 synchronous", "benchmark=2 throughput",
    }  # fmt: skip
    empty = json.dumps({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": []})
    with pytest.raises(IngestError, match="has no requests"):
        bring(empty)


def test_vllm_has_every_token_and_the_wait_in_the_client(bring):
    made = bring(json.dumps(VLLM))
    assert made.rows(ROW) == [
        ("request", "ok", 100 * S, 100 * S, 500 * MS),
        ("request", "ok", 100 * S + 250 * MS, 100 * S + 500 * MS, 500 * MS),
        ("request", "timeout", 101 * S, 101 * S, None),
    ]
    assert made.rows(SPAN, "spans") == [
        (0, "first token", 100 * S, 100 * S + 250 * MS),
        (0, "token", 100 * S + 250 * MS, 100 * S + 375 * MS),
        (0, "token", 100 * S + 375 * MS, 100 * S + 437_500_000),
        (1, "first token", 100 * S + 250 * MS, 101 * S),
    ]
    # without a rate all arrive at once, and that is no schedule
    unlimited = bring(json.dumps(VLLM | {"request_rate": "inf"}))
    assert unlimited.rows("intended_ns")[1] == (100 * S + 500 * MS,)


def test_an_older_vllm_has_neither_start_times_nor_latencies(bring):
    older = {
        name: value for name, value in VLLM.items()
        if name not in ("latencies", "start_times", "queue_times")
    }  # fmt: skip
    made = bring(json.dumps(older))
    assert made.rows("status, received_ns - sent_ns") == [
        ("ok", 437_500_000), ("ok", 500 * MS), ("timeout", None),
    ]  # fmt: skip
    assert made.manifest["timeless"] == ["all"]
    assert any("no start times" in it for it in made.missing)
    summary = {name: value for name, value in older.items() if name not in ("ttfts", "itls")}
    with pytest.raises(IngestError) as raised:
        bring(json.dumps(summary))
    assert "--save-detailed" in raised.value.hint


def test_aiperf_has_a_row_a_request_and_no_warm_up(bring):
    made = bring(AIPERF)
    assert made.rows("status, sent_ns, received_ns - sent_ns") == [
        ("ok", START + S, 12_500_000),
        ("error:499", START + 2 * S, 5 * MS),
        ("timeout", START + 3 * S, 5 * MS),
    ]
    at = START + S
    assert made.rows(SPAN, "spans") == [
        (0, "first token", at, at + 4_500_000),
        (0, "token", at + 4_500_000, at + 7_500_000),
        (0, "token", at + 7_500_000, at + 12_500_000),
    ]
    assert made.file["lines"] == 3
    assert "requests of the warm-up were left out" in made.missing


def test_percentiles_of_bombardier_bound_the_bins_and_failures_are_beyond_them(bring):
    made = bring(json.dumps(BOMBARDIER))
    found = made.rows("low_ns, high_ns, count", "histograms", "true order by low_ns")
    assert found[0] == (0, 200_000, 49)
    assert found[-2][1] == 9 * MS
    assert found[-1][2] == 2
    assert sum(row[2] for row in found) == pytest.approx(100)
    bare = json.loads(json.dumps(BOMBARDIER))
    del bare["result"]["latency"]["percentiles"]
    with pytest.raises(IngestError) as raised:
        bring(json.dumps(bare))
    assert "bombardier -l" in raised.value.hint


@pytest.mark.parametrize("indent", [None, 4])
def test_a_summary_of_k6_is_refused_with_the_flag_that_writes_more(bring, indent):
    metrics = {
        "checks": {"passes": 1}, "http_req_duration": {"avg": 1.0, "p(95)": 2.0},
        "iteration_duration": {"avg": 1.0},
    }  # fmt: skip
    for told in (
        {"metrics": metrics, "root_group": {"name": ""}},
        {"root_group": {"name": ""}, "options": {}, "state": {}, "metrics": metrics},
    ):
        with pytest.raises(IngestError) as raised:
            bring(json.dumps(told, indent=indent))
        assert "k6 run --out csv=FILE" in raised.value.hint
