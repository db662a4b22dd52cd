"""The plan of a run is read with its units, and the factors of a cell replace its values."""

from __future__ import annotations

import pytest

from unruly.plan import CellPlan, Plan, of_file
from unruly.quantity import parse_bandwidth, parse_duration

NS = 1_000_000_000
PLAN = """
[run]
duration = "1.5h"
warmup = "250us"
slo = ["p99 < 20ms", "failed < 0.1%"]
[stream]
protocol = "tcp"
link = "100Mbit/s"
[compete]
kind = "none"
occupancy = 0.6
[pin]
"writer-0" = [0, 1]
[quota]
"reader-0" = 0.5
"""


def read(root, text, factors=None):
    (root / "plan.toml").write_text(text, encoding="utf-8")
    return Plan.read(root, factors or {})


def test_a_plan_is_read_with_its_units(tmp_path):
    plan = read(tmp_path, PLAN, {"a": {}})
    cell = plan.cell("a")
    assert plan.slo == ("p99 < 20ms", "failed < 0.1%")
    assert cell.measured_ns == (250_000, 250_000 + 5_400 * NS)
    assert (cell.protocol, cell.link_bps) == ("tcp", 100e6)
    assert (cell.competing, cell.occupancy) == ("none", 0.6)
    assert (cell.pinned("writer-0"), cell.pinned("reader-0")) == ({0, 1}, frozenset())
    assert (cell.quota("reader-0"), cell.quota("writer-0")) == (0.5, float("inf"))


def test_a_plan_that_a_person_wrote_is_read_without_cells(tmp_path):
    (tmp_path / "mine.toml").write_text(PLAN, encoding="utf-8")
    assert of_file(tmp_path / "mine.toml").base.duration_ns == 5_400 * NS
    assert of_file(tmp_path / "mine.toml").cells == {}
    assert of_file(tmp_path / "none.toml").base == CellPlan()


def test_the_factors_of_a_cell_replace_the_values_of_the_plan(tmp_path):
    factors = {
        "a": {"stream.link": "none", "run.duration": "2min", "quota.reader-0": "0.1"},
        "b": {"stream.protocol": "udp", "compete.kind": "gc", "quota.reader-1": "0.3"},
        "c": {"mesh.regroup": "10s", "mesh.timeout": "20ms", "drive.arrivals": "closed"},
        "d": {"drive.store": "redis", "quota.period": "0.01"},
    }
    plan = read(tmp_path, PLAN, factors)
    assert list(plan.cells) == ["a", "b", "c", "d"]
    assert plan.cell("a").measured_ns == (250_000, 250_000 + 120 * NS)
    assert plan.cell("a").link_bps is None
    assert plan.cell("a").quotas == {"reader-0": 0.1}
    assert plan.cell("d").quotas == {"reader-0": 0.5}, "a period is no process"
    assert (plan.cell("b").protocol, plan.cell("b").competing) == ("udp", "gc")
    assert plan.cell("b").quotas == {"reader-0": 0.5, "reader-1": 0.3}
    assert plan.cell("c").regroup_ns == 10 * NS
    assert plan.cell("c").reply_timeout_ns == 20_000_000
    assert plan.cell("c").arrivals == "closed"
    assert (plan.cell("d").store, plan.base.store) == ("redis", None)
    assert plan.cell("of another run") == plan.base


def test_a_value_that_is_not_understood_is_absent_and_not_that_of_the_plan(tmp_path):
    plan = read(tmp_path, PLAN, {"a": {"run.duration": "5m", "compete.occupancy": "most"}})
    assert plan.cell("a").duration_ns is None
    assert plan.cell("a").measured_ns is None
    assert plan.cell("a").occupancy is None


@pytest.mark.parametrize("text", ["", "not TOML", 'run = "fast"\npin = 3\n', "[run]\nslo = 7\n"])
def test_without_a_plan_that_can_be_read_all_settings_are_absent(tmp_path, text):
    assert read(tmp_path, text).base == CellPlan()
    assert read(tmp_path, text).slo == ()
    (tmp_path / "plan.toml").unlink()
    assert Plan.read(tmp_path, {}) == Plan()


def test_only_a_table_of_the_plan_is_a_setting_and_not_a_key_of_the_same_name(tmp_path):
    assert read(tmp_path, '[matrix]\nregroup = "30s"\n').base.regroup_ns is None


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("60s", 60 * NS), ("100ms", 100_000_000), ("250us", 250_000), ("7ns", 7),
        ("2h", 7_200 * NS), ("1d", 86_400 * NS), ("0.1s", 100_000_000), ("5 min", 300 * NS),
        ("60", 60 * NS), ("0.25", 250_000_000),
    ],
)  # fmt: skip
def test_durations_are_those_of_the_runner(text, ns):
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "", "s", "1m", "1e3s", "1.s", ".5s", "+1s", "1..2s", "--1s", "1-s", "1e3", "1.", "-5s",
        " 1s", "1_000s", "\u0661s", "0.5ns", "300000d",
    ],
)  # fmt: skip
def test_what_the_runner_refuses_as_a_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a"):
        parse_duration(text)


def test_bandwidths_need_their_unit():
    assert parse_bandwidth("1Gbit/s") == 10**9
    for text in ("none", "1Gb", "5", "0.5bit/s"):
        with pytest.raises(ValueError, match="is not a"):
            parse_bandwidth(text)
