"""DuckDB and Spark say the same of a run, to the last number."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pyspark
import pytest

import unruly
from alike import differences, leaves
from streaming import CALM, COLLECTOR, Cell, write_streams
from synthetic import write_run
from unruly.__main__ import main
from unruly.base.context import Context
from unruly.errors import EngineError
from unruly.tables.requests import measured
from unruly.tables.selection import exact_quantiles
from unruly.topics.streams.statistics import streams

SPARK = "local[2]"
ENGINES = ("duckdb", SPARK)


# Spark takes seconds to start, and compiles each query.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with failures, late replies, a slow node, two cells and two repeats.

    Spark would read the name of its directory as a pattern unless we escape it.
    """
    return write_run(
        tmp_path_factory.mktemp("engines") / "run [1] {a,b}",
        agents=3,
        cells=("low", "high"),
        ops=("null", "disk"),
        repeats=2,
        duration_s=20.0,
        warmup_s=1.0,
        rate_hz=10.0,
        slow_agent=1,
        failed_share=0.01,
        late_share=0.5,
        stopped=((1, 5.0, 1.0), (2, 5.5, 0.5)),
    )


@pytest.fixture(scope="module")
def analyses(run):
    return [unruly.analyse(unruly.open_run(run, engine=it)) for it in ENGINES]


def _frames(analysis):
    """All that a picture is drawn from."""
    slow = analysis.slow_nodes
    return {
        **{f"by {name}": frame for name, frame in analysis.by.items()},
        **{f"scatter {name}": frame for name, frame in analysis.correlations.scatter.items()},
        "timeline": analysis.timeline,
        "outliers": analysis.outliers,
        "distribution": analysis.distribution,
        "groups": analysis.group_distribution,
        "decomposition": analysis.decomposition,
        "slow pairs": slow.pairs,
        "slow sets": slow.sets,
        "windows": analysis.over_time.windows,
        "causes": analysis.causes.points,
    }


def test_streams_are_the_same_on_both_engines(tmp_path):
    cells = (*CALM, *COLLECTOR, Cell("udp", "cpu", lost_share=0.1), Cell("sctp", failed="no"))
    path = write_streams(tmp_path / "run", cells, repeats=2, duration_s=6)
    duckdb, spark = (
        streams(Context.of(unruly.open_run(path, engine=it), lambda _: None), ()) for it in ENGINES
    )
    for name in ("rows", "legs", "hypotheses"):
        one, other = (json.loads(json.dumps([asdict(row) for row in getattr(it, name)]))
                      for it in (duckdb, spark))  # fmt: skip
        assert differences(one, other) == []
        assert len(one) > 1
    for name in ("seconds", "usage", "events"):
        one, other = (getattr(it, name) for it in (duckdb, spark))
        pd.testing.assert_frame_equal(one, other, check_dtype=False, rtol=1e-9)
        assert len(one)


def test_every_picture_is_drawn_from_the_same_rows_on_both_engines(analyses):
    duckdb, spark = (_frames(analysis) for analysis in analyses)
    assert duckdb.keys() == spark.keys()
    assert sum(map(len, duckdb.values())) > 1_000
    for name, frame in duckdb.items():
        pd.testing.assert_frame_equal(
            frame, spark[name], check_dtype=False, rtol=1e-9, atol=0, obj=name
        )


def test_advice_is_the_same_on_both_engines(run):
    advices = [unruly.advise(unruly.open_run(run, engine=it)) for it in ENGINES]
    duckdb, spark = (json.loads(json.dumps(unruly.advice_json(it))) for it in advices)
    assert len(list(leaves(duckdb))) > 500
    assert differences(duckdb, spark) == []


def test_rows_and_histograms_are_exported_alike(run, tmp_path):
    for form in ("csv", "hlog"):
        told = []
        for engine in ENGINES:
            place = tmp_path / f"{engine}.{form}"
            assert main(["export", str(run), "-o", str(place), "--engine", engine]) == 0
            told.append([line for line in place.read_text().splitlines() if line[:1] != "#"])
        assert len(told[0]) > 10
        assert told[0] == told[1]


def test_exact_quantiles_by_bins_are_the_same_on_spark(run):
    found = []
    for engine in ENGINES:
        rows = measured(unruly.open_run(run, engine=engine).requests)
        found.append(exact_quantiles(rows, ["cell", "op"], "response", [0.5, 0.99], rows_most=50))
    pd.testing.assert_frame_equal(*found, check_dtype=False)


def test_the_verdict_is_the_same_text(run, capsys):
    texts = []
    for engine in ENGINES:
        assert main(["verdict", str(run), "--engine", engine]) == 0
        texts.append(capsys.readouterr().out)
    assert "promise" in texts[0]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("oracle", "--engine: is 'oracle'; duckdb, spark://HOST:PORT or local[N]"),
        ("spark://nowhere", "--engine: is 'spark://nowhere'"),
        ("spark://127.0.0.1:1", "spark://127.0.0.1:1: "),
    ],
)
def test_an_engine_that_is_none_or_out_of_reach_is_named(run, engine, said, capsys):
    assert main(["verdict", str(run), "--engine", engine]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("size", ["much", "3", "0GB", "-1GB"])
def test_a_memory_that_is_no_size_is_refused(run, size, capsys):
    assert main(["verdict", str(run), f"--memory={size}"]) == 2
    assert f"--memory: is '{size}'; a size with its unit" in capsys.readouterr().err


def test_without_pyspark_the_engine_says_what_to_install(run, monkeypatch):
    monkeypatch.setattr("unruly.tables.opening.find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r"PySpark is not installed; .*pip install"):
        unruly.open_run(run, engine=SPARK)


def test_without_java_the_engine_says_what_to_install(run, tmp_path):
    """In a process of its own: one process has one Spark."""
    script = f"import unruly; unruly.open_run({str(run)!r}, engine={SPARK!r})"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert "no Java on PATH; Java 17 or newer" in done.stderr


def test_every_number_of_the_summary_is_the_same_on_both_engines(analyses):
    duckdb, spark = (unruly.summary(analysis) for analysis in analyses)
    assert len(list(leaves(duckdb))) > 1_000
    assert any(row["failed"] for row in duckdb["cells"])
    assert duckdb["groups"]
    assert duckdb["correlations"]["metrics"]
    assert len(duckdb["over_time"]["recoveries"]) == 2
    assert all(it["recoveries"] for it in duckdb["over_time"]["recoveries"])
    assert differences(duckdb, spark) == []


@pytest.fixture
def cluster(tmp_path):
    """A master and a worker of Spark on loopback, each a process of its own."""
    home = Path(pyspark.__file__).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    deploy = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    roles = (
        (f"{deploy}.master.Master", *here, "--port", str(port)),
        (f"{deploy}.worker.Worker", *here, "--cores", "2", "--memory", "1g",
         "--work-dir", str(tmp_path / "work"), address),
    )  # fmt: skip
    started = []
    try:
        for words in roles:
            log = (tmp_path / f"{words[0].rsplit('.', 1)[1]}.log").open("wb")
            command = [str(home / "bin" / "spark-class"), *words]
            started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            )
            log.close()
        _await_listener(port, started[0])
        yield address
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=60)


def _await_listener(port, process):
    """Try until the master listens; a connection is refused at once, so that tries are bounded."""
    ended = time.monotonic() + 120
    while time.monotonic() < ended:
        assert process.poll() is None, "the master ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            select.select([], [], [], 0.1)
        else:
            return
    pytest.fail("the master does not listen")


def test_a_cluster_gives_the_same_verdict(run, cluster):
    """In processes of their own: this one has its Spark already."""
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    texts = []
    for engine in ("duckdb", cluster):
        done = subprocess.run(
            [sys.executable, "-m", "unruly", "verdict", str(run), "--engine", engine],
            env=environment,
            capture_output=True, text=True, timeout=600, check=True,
        )  # fmt: skip
        texts.append(done.stdout)
    assert "promise" in texts[0]
    assert texts[0] == texts[1]
