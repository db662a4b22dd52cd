"""What a tap saw: planted turnarounds and the numbers that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import unruly
from quick import numbers
from tiers_world import TROUBLES, write_tapped
from unruly.ingest.tally import Tally
from unruly.ingest.writer import RunWriter
from unruly.stats import slow_percentile
from unruly.tables import fetch
from unruly.tables import turnarounds as turnaround_tables
from unruly.topics.tiers.model import tiers_of

if TYPE_CHECKING:
    from pathlib import Path

    from unruly.run import Run

MS = 1_000_000
RAISED_BY_TAPS = {
    "slow-tier",
    "tap-unmeasured", "transient-bottleneck", "tier-cuts", "tier-bottleneck", "tier-queue",
    "pool-waits", "tap-inconsistent",
}  # fmt: skip
START = 1_790_000_000 * 1_000_000_000


def planted(folder: Path, **columns: Any) -> Run:
    """A run with these turnarounds of the service ``web``; times in ms from the start."""
    started = np.asarray(columns.pop("started"), dtype=np.float64)
    ended = np.asarray(columns.pop("ended"), dtype=np.float64)
    rows = len(started)
    made: dict[str, Any] = {
        "tier": "web",
        "server": "10.0.0.2:80",
        "client": "10.0.0.1:4000",
        "asked_by": None,
        "connection": 1,
        "turn": np.arange(10, 10 + rows),
        "request_bytes": 10,
        "reply_bytes": 100,
        "status": "ok",
        **columns,
    }
    times = {
        "started_ns": (started * MS).astype(np.int64) + START,
        "request_ended_ns": (started * MS).astype(np.int64) + START,
        "first_reply_ns": (ended * MS).astype(np.int64) + START,
        "ended_ns": (ended * MS).astype(np.int64) + START,
    }
    with RunWriter(folder, run="tap", name="watch", tag="") as writer:
        cell = writer.cell({}, "a test")
        writer.add("turnarounds", {"cell": cell, "process": "tap-0", **made, **times}, rows)
        ends = {"started_ns": START, "ended_ns": int(times["ended_ns"].max())}
        writer.finish({**ends, "counts": Tally().counts(), "missing": [], "processes": []})
    return unruly.open_run(folder)


def test_requests_in_flight_are_the_share_of_each_window_that_they_took(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", started=[50, 100], ended=[250, 150])
    found = fetch(turnaround_tables.in_flight(run.turnarounds))
    windows = {(int(row.window_ns) - START) // MS: row.in_flight for row in found.itertuples()}
    assert windows == pytest.approx({0: 0.5, 100: 1.5, 200: 0.5})


def test_a_connection_whose_requests_overlapped_is_left_out_as_a_whole(tmp_path: Path) -> None:
    run = planted(
        tmp_path / "run",
        started=range(0, 60, 10),
        ended=range(5, 65, 10),
        connection=[1, 1, 1, 2, 2, 2],
        turn=[8, 9, 10, 1, 2, 3],
        status=["ok", "overlapped", "ok", "ok", "overlapped", "ok"],
    )
    found = unruly.analyse(run, causes=False, pictures=False)
    (tier,) = tiers_of(found).rows
    # of the second connection a handshake overlapped, and the rest counts
    assert (tier.n, tier.unmeasured, tier.overlapped) == (2, 4, 2)
    assert found.cell("web").n == 2
    codes = {it.code: it for it in found.findings}
    assert codes["tap-unmeasured"].title.startswith(
        "web: 66.7 % of the requests cannot be measured"
    )
    assert codes["tap-unmeasured"].severity == "warns"


def test_a_request_without_a_reply_has_failed(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", started=[0, 10], ended=[1, 11], status=["ok", "cut"])
    found = unruly.analyse(run, causes=False, pictures=False)
    assert (found.cell("web").n, found.cell("web").failed) == (2, 1)
    assert tiers_of(found).rows[0].cut == 1
    assert {it.code for it in found.findings} & RAISED_BY_TAPS == {"tier-cuts"}


def test_jams_are_found_beside_a_mean_that_looks_fine(tmp_path: Path) -> None:
    # 1,000 requests a second of 1 ms for 30 s; in ten windows a stop of 80 ms, evenly spread
    started = np.arange(0, 30_000, 1.0)
    ended = started + 1.0
    for stop in range(1_500, 30_000, 3_000):
        held = (started >= stop) & (started < stop + 80)
        ended[held] = stop + 80 + 0.5
    run = planted(tmp_path / "run", started=started, ended=ended, connection=np.arange(30_000))
    found = unruly.analyse(run, causes=False, pictures=False)
    (tier,) = tiers_of(found).rows
    # (10 stops) x (80 requests of 40 ms on average) on 30 s of one request in flight
    assert tier.in_flight.estimate == pytest.approx(1.0 + 10 * 80 * 0.0395 / 30, rel=0.02)
    assert tier.rate_hz == pytest.approx(1_000, rel=0.01)
    # a full window and the one before it, ten times
    assert tier.jam.windows == 20
    assert tier.jam.slow_share.estimate == pytest.approx(1.0)
    title = next(it.title for it in found.findings if it.code == "transient-bottleneck")
    assert title.startswith("web: 100 % [")
    assert "began in 20 windows of 100 ms that were jammed, in 6.64 % of the time" in title


def test_slow_requests_that_come_one_by_one_are_no_jam(tmp_path: Path) -> None:
    started = np.arange(0, 30_000, 1.0)
    ended = started + 1.0
    ended[::97] += 30.0
    run = planted(tmp_path / "run", started=started, ended=ended, connection=np.arange(30_000))
    found = unruly.analyse(run, causes=False, pictures=False)
    assert tiers_of(found).rows[0].jam is None
    assert "transient-bottleneck" not in {it.code for it in found.findings}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_tier_that_makes_requests_slow_is_named(trouble: str, tmp_path: Path) -> None:
    found = numbers(write_tapped(tmp_path / "run", trouble, 1))
    raised = [it for it in found.findings if it.code in RAISED_BY_TAPS]
    raised = [it for it in raised if it.code != "transient-bottleneck"]
    codes = {it.code: it.title for it in raised}
    # each is about one tier alone
    assert len(codes) == len(raised)
    wanted = {
        "none": set(),
        "app": {"tier-bottleneck", "tier-queue"},
        "db": {"tier-bottleneck", "tier-queue"},
        "pool": {"pool-waits"},
        "lock": {"slow-tier"},
        # most requests in flight are in db, and the slow ones are not: packets do not show that
        "rare": {"tier-bottleneck"},
    }[trouble]
    # more than half of the time, though not in every run surely; slow ones may come in one burst
    known = {"tier-bottleneck", "slow-tier"} if trouble in ("app", "db", "pool", "lock") else set()
    assert set(codes) | known == wanted | known
    assert wanted <= set(codes)
    where = {"pool": "app", "lock": "db"}.get(trouble, trouble)
    assert codes.get("slow-tier", f"{where}: ").startswith(f"{where}: ")
    if trouble in ("app", "db"):
        assert codes["tier-bottleneck"].startswith(f"{trouble}: requests spent ")
        assert codes["tier-queue"].startswith(f"{trouble}: ")
    if trouble == "pool":
        # they wait in app, though db is what takes long
        assert codes["pool-waits"].startswith(
            "app: requests waited for one of its 2 connections to db, or for a thread: "
        )


def test_the_time_of_the_tiers_adds_up_to_that_of_the_front(tmp_path: Path) -> None:
    found = numbers(write_tapped(tmp_path / "run", "app", 1))
    rows = {it.tier: it for it in tiers_of(found).rows}
    assert rows["web"].chain.front
    assert (rows["app"].chain.asked_by, rows["db"].chain.asked_by) == (("web",), ("app",))
    own = sum(it.chain.own_in_flight.estimate for it in rows.values())
    assert own == pytest.approx(rows["web"].in_flight.estimate, rel=0.01)
    assert sum(it.chain.own_share.estimate for it in rows.values()) == pytest.approx(1, abs=0.02)
    # 100 requests a second of 8.7 ms on one core, of which the load generator uses a little
    assert rows["app"].chain.cpu_cores == pytest.approx(0.87, rel=0.01)
    assert 0.87 <= rows["app"].chain.cpu_share < 0.95
    assert tiers_of(found).checks[0].agrees


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_slow_requests_spent_more_in_a_tier_than_is_claimed(tmp_path: Path, trouble: str) -> None:
    path = write_tapped(tmp_path / "run", trouble, 3)
    rows = pq.read_table(next((path / "turnarounds").glob("*.parquet"))).to_pandas()
    # the requests stand in the same order for each tier
    took = {
        tier: (own["ended_ns"] - own["started_ns"]).to_numpy()
        for tier, own in rows.groupby("tier")
    }  # fmt: skip
    slow = took["web"] > np.quantile(took["web"], 0.99)
    own = {"web": took["web"] - took["app"], "app": took["app"] - took["db"], "db": took["db"]}
    claimed = {it.tier: it.chain.slow_share for it in tiers_of(numbers(path)).rows}
    for tier, spent in own.items():
        truth = spent[slow].sum() / took["web"][slow].sum()
        assert claimed[tier].estimate <= truth + 0.02
    if trouble in ("lock", "app", "db"):
        assert claimed[{"lock": "db"}.get(trouble, trouble)].estimate > 0.5


@pytest.mark.slow
def test_requests_of_others_are_in_no_tier_of_the_chain(tmp_path: Path) -> None:
    shares = []
    for name, others in (("alone", 0), ("beside", 2_000)):
        path = write_tapped(tmp_path / name, "lock", 1)
        file = next((path / "turnarounds").glob("*.parquet"))
        rows = pq.read_table(file)
        mask = pc.equal(rows["tier"], "db")
        foreign = rows.filter(mask).slice(0, others)
        place = rows.column_names.index("asked_by")
        asked = pa.array(["psql"] * foreign.num_rows, rows["asked_by"].type)
        foreign = foreign.set_column(place, rows.schema.field("asked_by"), asked)
        place = rows.column_names.index("connection")
        own = pc.add(foreign["connection"], 10_000).cast(rows["connection"].type)
        foreign = foreign.set_column(place, rows.schema.field("connection"), own)
        whole = pa.concat_tables([rows, foreign])
        pq.write_table(whole.replace_schema_metadata(rows.schema.metadata), file)
        found = tiers_of(numbers(path))
        (db,) = [it for it in found.rows if it.tier == "db"]
        own, slow = db.chain.own_share, db.chain.slow_share
        shares += [own.estimate, own.low, own.high, slow.estimate, slow.low, slow.high]
        assert (db.in_flight.estimate > 1.3 * db.chain.own_in_flight.estimate) == bool(others)
    assert shares[:6] == pytest.approx(shares[6:])


def test_slow_requests_of_a_few_are_those_beyond_a_lower_percentile() -> None:
    found = [slow_percentile(n) for n in (59, 60, 119, 120, 599, 600)]
    assert found == [None, "p90", "p90", "p95", "p95", "p99"]


def test_a_request_has_the_asker_that_was_found_later_on_its_connection(tmp_path: Path) -> None:
    run = planted(
        tmp_path / "run",
        started=range(0, 40, 10),
        ended=range(5, 45, 10),
        connection=[1, 1, 2, 2],
        asked_by=[None, "web", None, None],
    )
    named = turnaround_tables.with_askers(run.turnarounds, run.turnarounds)
    found = fetch(named.order_by("started_ns"))["asked_by"]
    assert found.fillna("").tolist() == ["web", "web", "", ""]


@pytest.mark.slow
def test_times_are_not_divided_if_nobody_knows_who_asked(tmp_path: Path) -> None:
    path = write_tapped(tmp_path / "run", "app", 1)
    file = next((path / "turnarounds").glob("*.parquet"))
    rows = pq.read_table(file)
    # one tier is asked over connections that end before anybody looks
    mask = pc.equal(rows["tier"], "db")
    asked = pc.if_else(mask, pa.scalar(None, rows["asked_by"].type), rows["asked_by"])
    place = rows.column_names.index("asked_by")
    nameless = rows.set_column(place, rows.schema.field("asked_by"), asked)
    pq.write_table(nameless.replace_schema_metadata(rows.schema.metadata), file)
    found = numbers(path)
    assert all(it.chain.own_share is None for it in tiers_of(found).rows)
    assert "tier-bottleneck" not in {it.code for it in found.findings}


def test_a_tap_that_saw_other_requests_than_the_load_is_no_witness(tmp_path: Path) -> None:
    path = write_tapped(tmp_path / "run", "none", 1)
    file = next((path / "turnarounds").glob("*.parquet"))
    rows = pq.read_table(file)
    # a pipeline: two requests share a reply
    kept = rows.filter(pa.array(np.arange(rows.num_rows) % 2 == 0))
    pq.write_table(kept.replace_schema_metadata(rows.schema.metadata), file)
    found = numbers(path)
    (title,) = [it.title for it in found.findings if it.code == "tap-inconsistent"]
    assert title.startswith("the tap counted ")


def test_tiers_of_which_nothing_can_be_measured_have_no_times(tmp_path: Path) -> None:
    path = write_tapped(tmp_path / "run", "app", 1)
    file = next((path / "turnarounds").glob("*.parquet"))
    rows = pq.read_table(file)
    place, status = rows.column_names.index("status"), rows.schema.field("status")
    crossed = pa.array(["overlapped"] * rows.num_rows).cast(status.type)
    rows = rows.set_column(place, status, crossed).replace_schema_metadata(rows.schema.metadata)
    pq.write_table(rows, file)
    found = numbers(path)
    assert [(it.n, it.chain.own_share) for it in tiers_of(found).rows] == [(0, None)] * 3
    assert "tap-unmeasured" in {it.code for it in found.findings}
