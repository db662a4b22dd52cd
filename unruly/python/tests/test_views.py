"""Views and kept tables of an engine, under names that come again."""

from __future__ import annotations

import altair as alt
import ibis
import pandas as pd
import pytest

from unruly.drawing.chart import records
from unruly.tables import fetch, open_engine, resources


@pytest.fixture
def engine():
    engine = open_engine()
    engine.view("events", {})
    return engine


def _of(value, name="value"):
    return ibis.memtable({name: [value]}).mutate(twice=ibis._[name] * 2)


def _rows(table):
    return fetch(table).to_dict("records")


def test_a_fork_reads_a_view_that_was_defined_before_it(engine):
    empty = engine.table("events").agg(n=ibis._.count())
    defined = engine.define("counted", empty)
    assert _rows(defined) == _rows(engine.fork().table("counted")) == [{"n": 0}]


def test_what_is_built_on_a_view_is_translated_without_its_definition(engine):
    events = engine.table("events")
    defined = engine.define("named", events.mutate(marked=events.process + " of a view"))
    sql = ibis.to_sql(defined.filter(defined.marked == "x"), dialect="duckdb")
    assert "named" in sql
    assert "of a view" not in sql


def test_a_name_that_is_given_again_means_the_later_rows(engine):
    events = engine.table("events")
    engine.define("again", events.agg(n=events.count()))
    later = engine.define("again", events.agg(most=events.started_ns.max(), n=events.count()))
    assert [*later.columns] == ["most", "n"]
    engine.materialise("kept", _of(1))
    assert _rows(engine.materialise("kept", _of(2, "other"))) == [{"other": 2, "twice": 4}]
    engine.forget("kept")
    with pytest.raises(ibis.common.exceptions.TableNotFound):
        engine.table("kept")


def test_the_layers_of_a_chart_share_their_rows():
    drawn = [records(pd.DataFrame({"x": range(n), "y": range(n)}), ["x", "y"]) for n in (2, 3)]
    lines = [alt.Chart(data).mark_line().encode(x="x:Q", y="y:Q") for data in drawn]
    layered = alt.layer(*lines).properties(height=10)
    assert all(it.data.values is data.values for it, data in zip(layered.layer, drawn, strict=True))
    found = layered.to_dict(validate=False)["datasets"].values()
    assert sorted(found, key=len) == [[{"x": at, "y": at} for at in range(n)] for n in (2, 3)]


def test_a_busy_host_is_not_hidden_by_idle_ones():
    samples = pd.DataFrame(
        {
            "host": ["busy", "busy", "idle", "idle"],
            "watched": pd.Series([None] * 4, dtype="str"),
            "started_ns": [0, 10, 0, 10],
            "ended_ns": [10, 20, 10, 20],
            "cpu_steal_share": [0.0, 0.2, 0.0, 0.0],
            "psi_cpu_some_ns": [8, 4, 0, 0],
            "psi_io_some_ns": [0, 0, 1, 1],
            "psi_memory_some_ns": [0, 0, 0, 0],
        }
    )
    [found] = _rows(resources.hosts(ibis.memtable(samples)))
    expected = {"steal_mean": 0.1, "steal_max": 0.2}
    expected |= {"psi_cpu": 0.6, "psi_io": 0.1, "psi_memory": 0.0}
    assert found == pytest.approx(expected)
