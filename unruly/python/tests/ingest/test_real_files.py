"""Files that Envoy, Caddy, bombardier and aiperf wrote: `real/sources.txt` says how."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from unruly.ingest.formats import FORMATS
from unruly.ingest.source import Sample

REAL = Path(__file__).parent / "real"
MS, S = 1_000_000, 1_000_000_000
FILES = {
    "envoy-1.40.0.log": "envoy-log",
    "caddy-2.6.2.log": "caddy",
    "caddy-2.11.9.log": "caddy",
    "bombardier-1.2.6.json": "bombardier",
    "aiperf-0.13.0.jsonl": "aiperf",
}
ROW = "op, status, sent_ns, received_ns"


def text(name):
    return (REAL / name).read_text(encoding="utf-8")


def test_every_real_file_is_tried():
    assert {path.name for path in REAL.iterdir()} == {*FILES, "sources.txt"}


@pytest.mark.parametrize("name", FILES)
def test_a_real_file_is_recognised_by_one_format_and_no_line_is_refused(bring, name):
    sample = Sample(text(name).encode(), True)
    found = [it.name for it in FORMATS if it.recognises(sample) and not it.fallback]
    assert found == [FILES[name]]
    assert bring(text(name)).file["refused"] == 0


def test_each_line_of_envoy_is_a_request_with_the_reason_why_it_failed(bring):
    line = re.compile(r'\[(\S+)\] "(\w+) \S+ \S+" (\d+) (\S+) \d+ \d+ (\d+) ')
    kinds = {"UF": "refused", "UT": "timeout"}
    wanted = []
    for stamp, method, code, flags, took in (
        line.match(it).groups() for it in _lines("envoy-1.40.0")
    ):
        sent = _ns(datetime.fromisoformat(stamp))
        status = kinds.get(flags) or ("ok" if code == "200" else f"error:{code}")
        wanted.append((method, status, sent, sent + int(took) * MS))
    found = bring(text("envoy-1.40.0.log")).rows(ROW, where="true order by request")
    assert Counter(found) == Counter(wanted)
    assert {"refused", "timeout", "ok", "error:503"} == {row[1] for row in found}


def _lines(start):
    (path,) = REAL.glob(f"{start}.*")
    return path.read_text(encoding="utf-8").splitlines()


def _ns(at):
    return int(at.timestamp()) * S + at.microsecond * 1_000


@pytest.mark.parametrize("version", ["2.6.2", "2.11.9"])
def test_each_line_of_caddy_is_a_request_that_ended_at_its_time(bring, version):
    found = bring(text(f"caddy-{version}.log")).rows(ROW)
    told = [json.loads(it) for it in _lines(f"caddy-{version}")]
    wanted = Counter(
        (it["request"]["method"], "ok" if it["status"] == 200 else f"error:{it['status']}")
        for it in told
    )
    assert Counter(row[:2] for row in found) == wanted
    assert {"error:404", "error:503", "ok"} == {row[1] for row in found}
    taken = sorted(received - sent for *_, sent, received in found)
    assert taken == sorted(round(it["duration"] * S) for it in told)
    # a number of JSON has the time to a quarter of a microsecond
    ends = [row[3] / S for row in found]
    assert sorted(ends) == pytest.approx(sorted(it["ts"] for it in told), abs=1e-6)


def test_newer_caddy_says_how_much_it_read(bring):
    told = [json.loads(it)["bytes_read"] for it in _lines("caddy-2.11.9")]
    assert set(told) == {0, 37}
    found = bring(text("caddy-2.11.9.log")).rows("sent_bytes")
    assert Counter(row[0] for row in found) == Counter(told)


def test_percentiles_of_bombardier_are_those_of_its_file(bring):
    told = json.loads(text("bombardier-1.2.6.json"))["result"]
    made = bring(text("bombardier-1.2.6.json"))
    bins = made.rows("high_ns, count", "histograms", "true order by high_ns")
    assert sum(count for _, count in bins) == pytest.approx(told["req2xx"])
    ends = [high for high, _ in bins]
    assert ends[:-1] == [it * 1_000 for it in told["latency"]["percentiles"].values()]
    assert ends[-1] == told["latency"]["max"] * 1_000
    assert not any("failed" in it for it in made.missing)


def test_requests_of_bombardier_that_failed_are_among_its_latencies(bring):
    told = json.loads(text("bombardier-1.2.6.json"))
    told["result"] |= {"req2xx": 300, "req5xx": 100}
    made = bring(json.dumps(told))
    assert any("each bin loses the same share" in it for it in made.missing)
    bins = made.rows("high_ns, count", "histograms", "true order by high_ns")
    assert bins[0] == (told["result"]["latency"]["percentiles"]["50"] * 1_000, 150)
    assert bins[-1] == (float("inf"), 100)


def test_requests_of_aiperf_have_their_tokens_and_those_that_failed_no_duration(bring):
    told = [json.loads(it) for it in _lines("aiperf-0.13.0")]
    measured = [it for it in told if it["metadata"]["benchmark_phase"] == "profiling"]
    failed = [it for it in measured if it.get("error")]
    made = bring(text("aiperf-0.13.0.jsonl"))
    assert made.rows("count(*), count(received_ns)") == [
        (len(measured), len(measured) - len(failed))
    ]
    assert made.rows("status", where="status != 'ok'") == [("error:503",)] * len(failed)
    assert any("warm-up" in it for it in made.missing)
    taken = [row[0] for row in made.rows("received_ns - sent_ns", where="status = 'ok'")]
    assert sorted(taken) == sorted(
        round(it["metrics"]["request_latency"]["value"] * MS)
        for it in measured
        if not it.get("error")
    )
    gaps = sum(
        len(it["metrics"].get("inter_chunk_latency", {}).get("value", [])) for it in measured
    )
    layers = Counter(row[0] for row in made.rows("layer", "spans"))
    assert layers == {"first token": len(measured) - len(failed), "token": gaps}
