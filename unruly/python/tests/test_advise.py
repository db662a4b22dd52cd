"""Advice on synthetic runs with planted truth, and the verb that prints it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unruly
from synthetic import NS, STARTED_NS, write_run
from unruly import stats
from unruly.__main__ import main
from unruly.base.sla import SlaError, read_sla
from unruly.errors import ParameterError
from unruly.output.advice import LINES_MAX, advice_json, advise_text
from unruly.topics.advice.ground import TIMEOUTS_MAX, timeout_grid
from unruly.topics.advice.statistics import best_hedge, load_of

REPOSITORY = Path(__file__).resolve().parents[3]
MS = 1e6


def advised(path, **options):
    return unruly.advise(unruly.open_run(path), **options)


def row_of(part, op="null"):
    return next(row for row in part.rows if row.op == op)


def point_of(row, timeout_ns):
    return next(point for point in row.points if point.timeout_ns == timeout_ns)


@pytest.fixture(scope="module")
def one_slow(tmp_path_factory):
    """Seven agents of which the third serves everything 400 times slower: about 20-100 ms."""
    return write_run(
        tmp_path_factory.mktemp("one-slow") / "run", agents=7, ops=("null",), duration_s=240.0,
        rate_hz=4.0, slow_agent=3, slow_factor=400.0, stalls_hz=0.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def slow_advice(one_slow):
    return advised(one_slow, faults=2, timeouts_ns=[4 * MS, 400 * MS], confidence=0.95)


@pytest.fixture(scope="module")
def schema():
    document = json.loads(
        (REPOSITORY / "unruly" / "schema" / "advice.schema.json").read_text("utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


# --- planted truth


def test_one_slow_agent_is_one_slow_peer_and_saves_one_replica(slow_advice):
    row = row_of(slow_advice.replicas)
    point = point_of(row, 4 * MS)
    assert point.replicas.s.high == 1.0
    assert point.replicas.n.high == 4.0
    assert "at most 1 of 4 peers was slower in 95 % of the windows" in row.sentence
    assert "2f+1 = 5 falls to f+s+1 = 4" in row.sentence
    assert row.window_ns == NS
    assert row.windows >= 235


def test_beyond_the_slow_agent_s_time_nobody_is_slow(slow_advice):
    point = point_of(row_of(slow_advice.replicas), 400 * MS)
    assert point.replicas.s.high == 0.0
    assert point.replicas.n.high == point.replicas.synchronous == 3
    assert point.mean_slow.estimate == 0.0


def test_a_slow_agent_is_suspected_by_each_of_its_peers_and_nobody_else_is(one_slow, slow_advice):
    row = row_of(slow_advice.detection)
    assert row.pairs == 42
    assert row.period_ns == pytest.approx(NS / 4, rel=0.05)
    point = point_of(row, 4 * MS)
    # all of its pings are late, on 6 of 42 pairs
    late = point.false_per_hour.estimate / (3600e9 / row.period_ns)
    assert late == pytest.approx(6 / 42, rel=0.1)
    assert point.missed.estimate == 1.0
    assert point_of(row, 400 * MS).missed.high == 0.0
    assert point_of(row, 400 * MS).false_per_hour.estimate == 0.0
    assert point.detection_max_ns == row.period_ns + 4 * MS


def test_a_slow_agent_is_partitioned_one_in_seven(slow_advice):
    row = row_of(slow_advice.xft)
    assert point_of(row, 4 * MS).partitioned.estimate == pytest.approx(1 / 7, abs=0.01)
    assert point_of(row, 400 * MS).partitioned.estimate == 0.0
    assert (
        point_of(row, 4 * MS).nines.xft_consistency < point_of(row, 400 * MS).nines.xft_consistency
    )


def test_the_first_of_six_avoids_the_slow_agent_and_a_hedge_nearly_does(slow_advice):
    row = row_of(slow_advice.hedge)
    assert (row.peers, row.requests) == (6, 7 * 960)
    # each client has its own peers: there is no one server to fix
    assert (row.servers, row.ways.fixed) == (None, ())
    first, single, every = (
        way.quantiles[0.99] for way in (row.ways.first, row.ways.single, row.ways.all)
    )
    assert first < 1 * MS < 5 * MS < single <= every
    # one in six or seven copies goes to the slow one: more than a tenth would be sent twice
    hedged = min(way.quantiles[0.99] for way in row.ways.hedges)
    assert hedged < single / 4
    extra = [way.extra.estimate for way in row.ways.hedges if way.delay_ns < 3 * MS]
    assert min(extra) == pytest.approx(36 / 42 / 6, abs=0.03)


def test_a_reply_s_own_process_is_no_peer(tmp_path):
    """The slow agent is slow to itself too: with two agents only the other one sees that."""
    path = write_run(
        tmp_path / "run", agents=2, ops=("null",), duration_s=120.0, slow_agent=1,
        slow_factor=60.0, stalls_hz=0.0,
    )  # fmt: skip
    advice = advised(path, timeouts_ns=[MS])
    row = row_of(advice.detection)
    assert row.pings == 2 * 1200
    point = point_of(row, MS)
    assert point.false_per_hour.estimate / (3600e9 / row.period_ns) == pytest.approx(0.5, abs=0.02)
    assert point.missed.estimate == 1.0
    assert [it.reason for it in advice.hedge.absent if it.op == "null"]


def test_calm_agents_need_no_time_and_say_so(clean_run):
    advice = advised(clean_run, confidence=0.9, timeouts_ns=[60 * MS])
    row = row_of(advice.replicas)
    assert point_of(row, 60 * MS).replicas.n.high == 2
    assert "none of 2 peers was slower in 90 % of the windows" in row.sentence
    assert "2f+1 = 3 falls to f+s+1 = 2" in row.sentence


def test_what_the_windows_do_not_prove_is_not_advised(clean_run):
    advice = advised(clean_run, confidence=0.999, timeouts_ns=[60 * MS])
    row = row_of(advice.replicas)
    point = point_of(row, 60 * MS)
    assert (point.replicas.n.estimate, point.replicas.n.high) == (2.0, 3.0)
    assert "stay with 2f+1 = 3, or measure about 30.8 min" in row.sentence
    assert (row.windows, row.window_ns) == (120, NS // 2)


def test_advice_says_what_it_knows_nothing_of(slow_advice):
    for part in (slow_advice.detection, slow_advice.replicas):
        told = "Nothing is known of what happens less often than every 80 s."
        assert part.assumption.endswith(told)


def test_counts_of_the_engine_are_those_of_the_pure_function(one_slow, slow_advice):
    """Oracle: read the rows with pyarrow and count in numpy."""
    rows = pa.concat_tables(
        pq.read_table(path) for path in sorted((one_slow / "requests").glob("*.parquet"))
    ).to_pandas()
    pings = rows[rows["client"] != rows["server"]].reset_index(drop=True)
    took = (pings["received_ns"] - pings["intended_ns"]).to_numpy(float)
    first, last = rows["intended_ns"].min(), rows["intended_ns"].max()
    block = ((pings["intended_ns"] - first) * 30 // (last - first + 1)).to_numpy()
    row = row_of(slow_advice.detection)
    found = stats.failure_detection(
        took, slow_advice.timeouts_ns, period_ns=row.period_ns, blocks=block,
        sent_ns=pings["intended_ns"].to_numpy(),
        pairs=(pings["client"] * 100 + pings["server"]).to_numpy(),
    )  # fmt: skip
    for point, other in zip(row.points, found, strict=True):
        assert point.false_per_hour.estimate == pytest.approx(other.false_per_hour.estimate)
        assert point.false_per_hour.high == pytest.approx(other.false_per_hour.high, rel=1e-6)


def test_profit_charges_failed_requests_and_counts_each_request_once(tmp_path):
    path = write_run(tmp_path / "run", agents=3, ops=("null", "disk"), failed_share=0.01)
    advice = advised(path)
    [row] = advice.profit.rows
    assert row.requests == 3 * 2 * 600
    # a request fails when one of its three copies does
    assert row.failed / row.requests == pytest.approx(1 - 0.99**3, abs=0.006)
    assert row.profit.counts[-1] == row.failed
    earned = (row.requests - row.failed) * 0.0020 - row.failed * 0.0047
    assert row.profit.per_hour.estimate == pytest.approx(earned * 60, rel=0.01)


def test_profit_over_rising_load_finds_the_peak(tmp_path):
    """Three cells of rising rate; the last one's requests are too slow to pay."""
    cells = [
        {"name": name, "factors": {"drive.rate": rate, "mesh.agents": "3"}}
        for name, rate in (("low", "10/s"), ("middle", "20/s"), ("high", "40/s"))
    ]
    paths = [
        write_run(tmp_path / name, agents=3, ops=("null",), cells=(name,), rate_hz=rate,
                  slow_agent=slow, slow_factor=30_000.0, stalls_hz=0.0, duration_s=60.0)
        for name, rate, slow in (("low", 10, None), ("middle", 20, None), ("high", 40, 1))
    ]  # fmt: skip
    merged = _merge(tmp_path / "run", paths, cells)
    [peak] = advised(merged).peaks
    assert peak.factor == "drive.rate"
    assert peak.others == {"mesh.agents": "3"}
    assert peak.loads == (10.0, 20.0, 40.0)
    assert (peak.peak.load, peak.peak.falls, peak.peak.falls_at) == (20.0, True, 40.0)
    assert "largest at drive.rate = 20" in peak.sentence


def _merge(root, paths, cells):
    """One run of several cells: the segments of all under one id."""
    manifests = [json.loads((path / "manifest.json").read_text()) for path in paths]
    first = manifests[0]
    for table in ("requests", "resources"):
        (root / table).mkdir(parents=True)
        for number, path in enumerate(paths):
            for segment in (path / table).glob("*.parquet"):
                (root / table / f"{number}-{segment.name}").write_bytes(segment.read_bytes())
    for kind in ("copies", "requests"):
        for other in manifests[1:]:
            for name, value in other["counts"][kind].items():
                first["counts"][kind][name] += value
    first["processes"] = [p for manifest in manifests for p in manifest["processes"]]
    first["cells"] = cells
    (root / "manifest.json").write_text(json.dumps(first))
    return root


def test_pings_of_a_killed_process_are_no_false_suspicions(tmp_path):
    path = write_run(tmp_path / "run", agents=4, ops=("null",), duration_s=120.0, stalls_hz=0.0)
    _kill(path, node=2, after_s=60.0)
    dead = advised(path, timeouts_ns=[100 * MS])
    _events(path, [("fault kill", "agent-2", STARTED_NS + 60 * NS)])
    known = advised(path, timeouts_ns=[100 * MS], confidence=0.95)
    assert point_of(row_of(dead.detection), 100 * MS).false_per_hour.estimate > 1
    point = point_of(row_of(known.detection), 100 * MS)
    assert point.false_per_hour.estimate == 0.0
    assert point.missed.high == 0.0
    # the survivors are a group of three
    assert known.replicas.rows[0].sizes == (3, 4)
    assert known.replicas.rows[0].windows >= 235
    # money was lost all the same
    assert known.profit.rows[0].failed == dead.profit.rows[0].failed > 0


def _kill(path, node, after_s):
    """From then on nothing answers there, nor asks from there."""
    for segment in (path / "requests").glob("*.parquet"):
        table = pq.read_table(segment)
        frame = table.to_pandas()
        late = frame["intended_ns"] >= STARTED_NS + after_s * NS
        gone = late & (frame["server"] == node)
        frame.loc[gone, "status"] = "timeout"
        for column in ("received_ns", "server_received_ns", "server_sent_ns"):
            frame[column] = frame[column].astype("Int64").mask(gone)
        whole = frame.groupby(["client", "request"])["status"].transform(
            lambda s: (s == "ok").all()
        )
        frame["answered"] = frame["answered"] & whole
        frame = frame[~(late & (frame["client"] == node))]
        written = pa.Table.from_pandas(frame, schema=table.schema, preserve_index=False)
        pq.write_table(written, segment)
        rows = len(frame)
    manifest = json.loads((path / "manifest.json").read_text())
    ok = int((frame["status"] == "ok").sum())
    requests = frame.groupby(["client", "request"])["answered"].any()
    copies = dict.fromkeys(manifest["counts"]["copies"], 0)
    copies |= {"ok": ok, "timeout": rows - ok, "scheduled": rows, "recorded": rows}
    answered = int(requests.sum())
    manifest["counts"] = {
        "copies": copies,
        "requests": {
            "scheduled": len(requests), "answered": answered, "unanswered": len(requests) - answered
        },
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest))


def _events(path, rows):
    segment = next((path / "events").glob("*.parquet"))
    table = pq.read_table(segment)
    held = table.to_pylist()
    for kind, process, started_ns in rows:
        held.append(held[0] | {"kind": kind, "process": process, "started_ns": started_ns})
    pq.write_table(pa.Table.from_pylist(held, schema=table.schema), segment)


# --- what a run cannot support


def test_a_drive_has_no_groups_but_the_rest_is_still_advised(tmp_path):
    path = write_run(tmp_path / "run", agents=3, ops=("null",), kind="drive", rate_hz=20.0)
    advice = advised(path)
    for part in (advice.replicas, advice.xft):
        assert part.rows == ()
        assert "clients and servers are different" in part.absent[0].reason
    assert "two peers or more" in advice.hedge.absent[0].reason
    row = row_of(advice.detection)
    assert row.members is None
    assert all(point.missed is None for point in row.points)
    assert len(advice.profit.rows) == 1


def test_groups_smaller_than_asked_for_are_absent_with_their_size(clean_run):
    advice = advised(clean_run, faults=5)
    assert advice.replicas.rows == ()
    reasons = {it.reason for it in advice.replicas.absent}
    assert reasons == {"its groups have 5 members at most; f = 5 asks for groups of 6 or more"}
    assert advice.xft.rows
    assert advice.detection.rows


def test_a_timeout_below_the_clock_s_resolution_is_left_out_with_its_reason(tmp_path):
    path = write_run(tmp_path / "run", agents=3, ops=("null",))
    for segment in (path / "requests").glob("*.parquet"):
        table = pq.read_table(segment)
        for name in ("intended_ns", "sent_ns", "received_ns"):
            whole = pa.array(table[name].to_numpy() // 1_000_000 * 1_000_000)
            place = table.schema.get_field_index(name)
            table = table.set_column(place, table.schema.field(name), whole)
        pq.write_table(table, segment)
    advice = advised(path, timeouts_ns=[0.4 * MS, 5 * MS])
    assert advice.resolution_ns == 1 * MS
    assert advice.left_out == {"400 µs": "it is below the resolution of this run's clocks, 1 ms"}
    assert 5 * MS in advice.timeouts_ns
    assert min(advice.timeouts_ns) >= MS
    assert advised(path.parent / "run").detection.rows
    assert "T = 400 µs is left out" in advise_text(advice)


def test_a_run_in_which_nothing_was_answered_has_no_timeout_to_try(tmp_path):
    path = write_run(tmp_path / "run", agents=3, ops=("null",), failed_share=1.0)
    advice = advised(path)
    assert advice.timeouts_ns == ()
    for part in (advice.detection, advice.replicas, advice.xft):
        assert part.rows == ()
        assert part.absent[0].reason.startswith("nothing was answered")
    [row] = advice.profit.rows
    assert row.failed == row.requests
    assert row.profit.per_hour.estimate < 0


def test_an_empty_run_is_absent_in_every_part(tmp_path, schema):
    path = write_run(tmp_path / "run", agents=2, ops=("null",), warmup_s=5, duration_s=0)
    advice = advised(path)
    for part in (advice.detection, advice.replicas, advice.xft, advice.profit, advice.hedge):
        assert part.rows == ()
        assert part.absent[0].reason == "nothing was measured"
    schema.validate(advice_json(advice))
    assert "nothing for anything: nothing was measured" in advise_text(advice)


def test_too_few_windows_are_no_advice(tmp_path):
    path = write_run(tmp_path / "run", agents=3, ops=("null",), duration_s=4.0, rate_hz=4.0)
    advice = advised(path)
    assert advice.replicas.rows == ()
    assert "windows of 1 s" in advice.replicas.absent[0].reason
    assert "6 are needed" in advice.replicas.absent[0].reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"faults": 0},
        {"confidence": 1.0},
        {"timeouts_ns": [0.0]},
        {"window": 0},
        {"level": 0.0},
        {"crashed": -0.1},
        {"crashed": 0.6, "byzantine": 0.6},
    ],
)
def test_options_out_of_range_are_errors(clean_run, wrong):
    with pytest.raises(ParameterError):
        advised(clean_run, **wrong)


def test_the_nines_of_xft_are_those_of_the_machines_that_a_person_has(clean_run):
    """Oracle: the function, with the shares that were asked for."""
    advice = advised(clean_run, crashed=0.01, byzantine=0.001)
    point = advice.xft.rows[0].points[-1]
    wanted = stats.xft(1, point.partitioned.estimate, crashed=0.01, byzantine=0.001)
    assert point.nines == wanted
    assert "0.1 % are Byzantine and 1 % crashed" in advice.xft.assumption
    assert "Nothing is known of what happens less often" in advice.xft.assumption


# --- grid, loads, hedges, agreements


def test_the_grid_covers_the_data_with_round_values_and_few_of_them():
    for low, high in ((1e5, 1e6), (9e3, 4e10), (1.0, 1e12), (5e6, 5e6)):
        grid = timeout_grid(low, high)
        assert len(grid) <= TIMEOUTS_MAX
        assert list(grid) == sorted(grid)
        assert grid[0] <= low or len(grid) == TIMEOUTS_MAX
        assert grid[-1] >= high
        assert all(f"{t:.1e}".rstrip("0") for t in grid)


def test_loads_are_read_as_a_plan_writes_them():
    assert [load_of(x) for x in ("100", "2.5k/s", "3 M", "fast", "10ms")] == [
        100.0, 2500.0, 3e6, None, None
    ]  # fmt: skip


def test_a_hedge_is_advised_only_when_it_is_cheap_and_surely_helps():
    rng = np.random.default_rng(51)
    stalled = rng.exponential(MS, (30_000, 3))
    slow = rng.uniform(size=stalled.shape) < 0.03
    stalled[slow] += 200 * MS
    ways = stats.replies_of(stalled, [0.1 * MS, 5 * MS, 10 * MS, 500 * MS])
    best = best_hedge(ways)
    assert best.delay_ns == 5 * MS
    assert best.quantiles[0.99] < 15 * MS
    together = np.repeat(stalled[:, :1], 3, axis=1)
    assert best_hedge(stats.replies_of(together, [5 * MS, 10 * MS])) is None


def test_an_agreement_is_read_from_toml(tmp_path):
    path = tmp_path / "sla.toml"
    path.write_text(
        'beyond = -1\n[[step]]\nat_most = "200ms"\npays = 0.5\n'
        '[[step]]\nat_most = "1s"\npays = 0.25\n'
    )
    assert read_sla(path) == stats.SlaTable((200 * MS, 1000 * MS), (0.5, 0.25, -1.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no [[step]]"),
        ('[[step]]\nat_most = "1s"\npays = 1', "has no beyond"),
        ("beyond = 0\n[[step]]\nat_most = true\npays = 1", "step 1: at_most is True"),
        ('beyond = 0\n[[step]]\nat_most = "1s"', "step 1: is"),
        ('beyond = 0\nother = 1\n[[step]]\nat_most = "1s"\npays = 1', "has the key 'other'"),
        ('beyond = "x"\n[[step]]\nat_most = "1s"\npays = 1', "beyond is 'x'"),
        (
            'beyond = 0\n[[step]]\nat_most = "2s"\npays = 2\n[[step]]\nat_most = "1s"\npays = 1',
            "bounds that rise",
        ),
        ("step", "is not TOML"),
    ],
)
def test_an_agreement_that_is_none_says_what_is_wrong(tmp_path, text, words):
    path = tmp_path / "sla.toml"
    path.write_text(text)
    with pytest.raises(SlaError, match=re.escape(words)) as caught:
        read_sla(path)
    assert "hint: " in str(caught.value)


# --- the verb


def test_json_is_valid_against_its_schema_and_the_schema_refuses_what_it_is_not(
    one_slow, slow_advice, clean_run, schema
):
    for advice in (slow_advice, advised(clean_run)):
        document = advice_json(advice)
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        schema.validate(document)
    for change in (
        {"schema": 2}, {"faults": 0}, {"detection": {}}, {"timeouts_ns": [0]}, {"peaks": [{}]},
        {"sentences": [1]},
    ):  # fmt: skip
        assert not schema.is_valid(document | change)


@pytest.mark.slow
def test_the_verb_prints_one_screen_and_writes_a_page(one_slow, tmp_path, capsys):
    page = tmp_path / "pages" / "advice.html"
    sla = tmp_path / "sla.toml"
    sla.write_text('beyond = -5\n[[step]]\nat_most = "1ms"\npays = 1\n')
    arguments = [
        "advise", str(one_slow), "-o", str(page), "--sla", str(sla), "--faults", "2",
        "--confidence", "0.95", "--timeout", "4ms", "400ms",
    ]  # fmt: skip
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert len(told.splitlines()) <= LINES_MAX
    assert all(len(line) <= 100 for line in told.splitlines())
    assert told.startswith("unruly advise: synthetic [synthetic], f = 2, in 95 % of the windows")
    assert "2f+1 = 5 falls to f+s+1 = 4" in " ".join(told.split())
    assert "pay the penalty" in told
    html = page.read_text(encoding="utf-8")
    for part in ("detection", "replicas", "xft", "profit", "hedge"):
        assert f'id="figure-advice-{part}-0"' in html
    assert "What would help?" in html
    assert "When and where?" not in html


@pytest.mark.slow
def test_a_report_has_the_advice_of_small_runs_and_of_large_ones_when_asked(
    tmp_path, monkeypatch, capsys
):
    small = write_run(
        tmp_path / "run", agents=4, ops=("null",), duration_s=60.0, rate_hz=4.0, stalls_hz=0.0
    )
    for limit, options, wanted in (
        (2_000_000, [], True),
        (10, [], False),
        (10, ["--advice"], True),
    ):
        monkeypatch.setattr("unruly.api.ADVICE_ROWS_MAX", limit)
        page = tmp_path / "report.html"
        assert main(["report", str(small), "-o", str(page), *options]) == 0
        held = 'id="figure-advice-detection-0"' in page.read_text(encoding="utf-8")
        assert held is wanted
    assert capsys.readouterr().out.count("report.html") == 3


@pytest.mark.slow
def test_the_verb_prints_json(one_slow, capsys, schema):
    assert main(["advise", str(one_slow), "--json"]) == 0
    schema.validate(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "wrong", [["--timeout", "fast"], ["--faults", "0"], ["--sla", "nowhere.toml"]]
)
def test_a_wrong_option_ends_with_2_and_a_hint(one_slow, wrong, capsys):
    assert main(["advise", str(one_slow), *wrong]) == 2
    error = capsys.readouterr().err
    assert error.startswith("unruly: ")
    assert "hint: " in error


def test_a_spoiled_run_s_advice_begins_with_the_doubt(slow_advice):
    told = advise_text(slow_advice, ["rows were dropped"])
    assert "DO NOT TRUST THIS RUN, nor what follows: rows were dropped" in told.splitlines()[1]


def test_a_screen_that_is_full_tells_less_of_each_part(clean_run):
    advice = advised(clean_run)
    few = advise_text(advice, width=100)
    assert "(and 1 more: --json, or -o advice.html)" in few
    part = advice.detection
    longer = replace(
        advice, left_out={f"{n} us": "a reason that is as long as a line " * 3 for n in range(20)},
        detection=replace(part, rows=part.rows * 3),
    )  # fmt: skip
    lines = advise_text(longer).splitlines()
    assert len(lines) == LINES_MAX
    assert "more lines" in lines[-1]


def test_the_same_run_gives_the_same_advice(one_slow, slow_advice):
    again = advised(one_slow, faults=2, timeouts_ns=[4 * MS, 400 * MS], confidence=0.95)
    assert advice_json(again) == advice_json(slow_advice)


def test_a_client_of_replicas_is_told_of_each_server(tmp_path):
    """A mesh told as a drive: clients that are none of the servers they ask."""
    path = write_run(
        tmp_path / "run", agents=3, ops=("null",), slow_agent=2, slow_factor=60.0, stalls_hz=0.0
    )
    manifest = json.loads((path / "manifest.json").read_text())
    for process in manifest["processes"]:
        process["kind"] = "drive"
    (path / "manifest.json").write_text(json.dumps(manifest))
    row = row_of(advised(path).hedge)
    assert (row.peers, row.servers) == (3, (0, 1, 2))
    assert [way.name for way in row.ways.fixed] == ["server 0", "server 1", "server 2"]
    quick, _, slow = (way.mean_ok for way in row.ways.fixed)
    assert slow > 10 * quick
