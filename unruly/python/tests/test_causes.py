"""Planted faults are found out by what they do, and a clean run blames nobody."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unruly
from changed import analysis_of, with_topics
from planted import ERRORS, MS, ONCE, SIDES, WANTED, add_rows, looked_at, rewrite, write_planted
from synthetic import NS, STARTED_NS
from unruly.__main__ import main
from unruly.base.mechanisms import MECHANISMS
from unruly.base.suspects import merged
from unruly.drawing.view import views_of
from unruly.html import write_report
from unruly.output.summary import summary
from unruly.stats import coincidence
from unruly.tables import fetch
from unruly.topics.causes import parts as cause_parts
from unruly.topics.causes import subject as cause_subject
from unruly.topics.causes.figures import lead, over_time
from unruly.topics.causes.rules import SUGGESTIONS, slow_because

SEEDS = range(3)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Of each seed a run with a cell for each fault."""
    root = tmp_path_factory.mktemp("planted")
    return [looked_at(write_planted(root / str(seed), list(WANTED), seed)) for seed in SEEDS]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The analysis of a run with one fault."""
    path = write_planted(tmp_path_factory.mktemp("stopped") / "run", ["server stopped", None], 7)
    return unruly.analyse(unruly.open_run(path))


def test_the_planted_cause_comes_first(planted):
    places = {}
    for seed, found in zip(SEEDS, planted, strict=True):
        for row in found.rows:
            cause, side = WANTED[row.cell]
            named = [(it.cause, it.process.startswith(SIDES[side])) for it in row.causes]
            places[row.cell, seed] = named.index((cause, True)) if (cause, True) in named else 99
    missed = {key: place for key, place in places.items() if place}
    assert len(places) == len(WANTED) * len(SEEDS)
    assert len(missed) <= 0.1 * len(places), missed
    assert sum(place > 2 for place in places.values()) <= 0.02 * len(places), missed


def test_most_of_the_slow_requests_are_explained_by_it(planted):
    shares = [row.unknown.estimate for found in planted for row in found.rows]
    assert np.mean(shares) < 0.1


def test_a_process_that_was_stopped_a_single_time_is_named(tmp_path):
    (row,) = looked_at(write_planted(tmp_path / "run", [ONCE], 1)).rows
    assert (row.causes[0].cause, row.causes[0].times) == ("process stopped", 1)


def test_a_request_that_failed_at_once_hides_no_cause(tmp_path):
    """It took less than usual: no part of it took long."""
    (row,) = looked_at(write_planted(tmp_path / "run", [ERRORS], 2)).rows
    assert row.causes[0].cause == "cpu wait"
    assert row.causes[0].explained.estimate > 0.9


def test_what_a_process_and_its_host_both_show_is_of_the_process(tmp_path):
    path = write_planted(tmp_path / "run", ["memory taken from a server"], 3)
    (before,) = looked_at(path).rows
    own = int(before.causes[0].process.removeprefix("store-"))
    # of the only server of a host, both have the same lift
    rewrite(path, "requests", lambda rows: rows.filter(pc.equal(rows["server"], own)))
    (row,) = looked_at(path).rows
    assert [(it.cause, it.process) for it in row.causes] == [("page faults", f"store-{own}")]


@pytest.mark.slow
def test_the_wait_between_two_tries_is_no_late_send(tmp_path):
    """One request in fifty is refused, and answered when it is asked again."""
    path = write_planted(tmp_path / "run", [None], 2)

    def tried_again(requests):
        hit = pc.equal(pc.bit_wise_and(requests["request"], 63), 0)
        first, nulls = requests.filter(hit), pa.nulls(pc.sum(hit).as_py(), pa.int64())
        later = first
        for name in ("sent_ns", "received_ns", "kernel_received_ns", "server_kernel_received_ns",
                     "server_received_ns", "server_sent_ns"):  # fmt: skip
            later = _with(later, name, pc.add(later[name], 100 * MS))
            first = _with(first, name, first[name] if name == "sent_ns" else nulls)
        later = _with(later, "attempt", pa.array(np.ones(later.num_rows), pa.uint8()))
        first = _with(first, "status", pa.array(["refused"] * first.num_rows))
        return pa.concat_tables([requests.filter(pc.invert(hit)), first, later])

    rewrite(path, "requests", tried_again)
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"cut off"'))
    found = unruly.analyse(unruly.open_run(path), slow_beyond_ns=50 * MS, pictures=False)
    (row,) = found.causes.rows
    assert row.slow > 150
    assert (row.parts["rest"], row.parts["send_lag"]) == (1, 0)
    assert found.self_distrust.send_lag_ns["max"] < 50 * MS
    assert found.self_distrust.tail_rows > 100
    assert found.self_distrust.tail_explained_share < 0.1


def _with(table, name, values):
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), values.cast(table[name].type))


def test_of_many_slow_requests_those_that_are_read_stand_for_all(tmp_path, monkeypatch):
    """The slowest alone were all stopped, though the stop made but two thirds of them slow."""
    path = write_planted(tmp_path / "run", ["server stopped"], 7)
    (whole,) = looked_at(path, 400_000).rows
    monkeypatch.setattr(cause_subject, "SLOW_MOST", 150)
    found = looked_at(path, 400_000)
    (part,) = found.rows
    assert (whole.looked_at, part.looked_at, part.slow) == (whole.slow, 150, whole.slow)
    all_of_it, some = whole.causes[0], part.causes[0]
    assert some.cause == all_of_it.cause == "process stopped"
    assert some.explained.estimate == pytest.approx(all_of_it.explained.estimate, abs=0.1)
    assert some.lift == pytest.approx(all_of_it.lift, rel=0.5)
    (finding,) = slow_because(analysis_of(causes=found))
    assert f"{whole.slow} requests, of which a random sample of 150 was examined" in finding.text


def test_the_requests_are_read_twice_whatever_is_looked_for(tmp_path, monkeypatch):
    """At a hundred million rows each pass takes seconds."""
    read = []
    for module in (cause_subject, cause_parts):
        monkeypatch.setattr(module, "fetch", lambda it: read.append(it) or fetch(it))
    looked_at(write_planted(tmp_path / "run", ["slow handler"], 2))
    assert len(read) == 2


def test_of_a_bin_with_many_requests_some_are_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(cause_parts, "BIN_SAMPLE", 7)
    (row,) = looked_at(write_planted(tmp_path / "run", ["delay on the way"], 2)).rows
    assert row.causes[0].cause == "network and queue"
    assert row.causes[0].explained.estimate > 0.8


def test_one_cause_among_many_clean_cells_is_named(tmp_path):
    """A sweep tries a thousand suspects, and none of them is about another cell's requests."""
    found = looked_at(write_planted(tmp_path / "run", ["loss on the way", *[None] * 20], 2))
    named = {row.cell: [it.cause for it in row.causes] for row in found.rows if row.causes}
    assert named == {"loss on the way": ["lost packets"]}


@pytest.mark.slow
def test_clean_runs_blame_nobody(tmp_path):
    blamed, slow = 0, 0
    for seed in range(3):
        found = looked_at(write_planted(tmp_path / str(seed), [None] * 8, seed))
        blamed += sum(it.requests for row in found.rows for it in row.causes)
        slow += sum(row.looked_at for row in found.rows)
        assert all(row.unknown is not None for row in found.rows)
    assert slow > 200
    assert blamed <= 0.02 * slow


def test_a_label_of_a_fault_is_no_evidence(tmp_path, planted):
    """Without the labels every result stays the same."""
    path = write_planted(tmp_path / "run", list(WANTED), SEEDS[0])
    labels = []

    def without_labels(events):
        label = pc.starts_with(events["kind"], "fault ")
        labels.append(pc.sum(label).as_py())
        return events.filter(pc.invert(label))

    rewrite(path, "events", without_labels)
    assert labels[0] > 30
    assert looked_at(path).rows == planted[0].rows


@pytest.mark.slow
def test_what_is_said_is_the_same_every_time(tmp_path, planted):
    again = looked_at(write_planted(tmp_path / "run", list(WANTED), SEEDS[1]))
    assert again.rows == planted[1].rows


def test_a_slow_request_belongs_to_one_cause_or_to_none(planted):
    for found in planted:
        for row in found.rows:
            owned = sum(it.requests for it in row.causes)
            unknown = round(row.unknown.estimate * row.looked_at)
            assert owned + unknown == row.looked_at
            mine = found.points[found.points["cell"] == row.cell]
            assert (mine["cause"] == "unknown").sum() == unknown


@pytest.mark.slow
def test_everybody_reads_the_same_sentence(stopped, schema, capsys, tmp_path):
    schema.validate(json.loads(json.dumps(summary(stopped))))
    clean, hit = stopped.causes.rows
    (top,) = hit.causes
    assert top.cause == "process stopped"
    assert clean.causes == ()
    (finding,) = [it for it in stopped.findings if it.code == "slow-because"]
    assert top.words in finding.title
    assert finding.evidence["process"] == top.process
    assert main(["verdict", str(stopped.run.path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"slow because: 100 % of the slow requests of read (server stopped) {top.words}" in text
    page = write_report([stopped], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What made the slow ones slow?" in page
    assert top.words in page
    assert "No pause, fault or wait that was recorded explains" in page


def test_what_was_not_looked_at_is_said(stopped, schema):
    told = "Of 9 events only 5 were looked at"
    cut = with_topics(stopped, causes=replace(stopped.causes, left_out=(told,)))
    document = json.loads(json.dumps(summary(cut)))
    schema.validate(document)
    assert document["causes"]["left_out"] == [told]
    (view,) = views_of([cut])
    assert f"{told}." in lead(view)


def test_a_picture_of_some_slow_requests_counts_them_all(stopped):
    """Both cells of it have 12."""
    (view,) = views_of([stopped])
    assert over_time(view).title == "24 slow requests and what made them slow"
    (whole,) = over_time(view).panels
    few = over_time(replace(view, points=6))
    assert few.title == "6 of 24 slow requests and what made them slow"
    assert few.panels[0].alt == whole.alt
    assert "process stopped, store-" in whole.alt


@pytest.mark.slow
def test_a_limit_may_be_given_instead_of_the_p99_9(stopped):
    found = unruly.analyse(stopped.run, slow_beyond_ns=50_000_000).causes.rows[1]
    assert found.limit_ns == 50_000_000
    assert found.slow > 5 * stopped.causes.rows[1].slow
    assert found.causes[0].times > stopped.causes.rows[1].causes[0].times


@pytest.mark.slow
def test_where_every_request_failed_it_is_said_who_had_died(tmp_path, schema):
    """There is no good request to compare with, so no cause can be named beyond chance."""
    path = write_planted(tmp_path / "run", [None], 2)

    def all_refused(requests):
        nulls = pa.nulls(requests.num_rows, pa.int64())
        for name in ("received_ns", "kernel_received_ns", "server_kernel_received_ns",
                     "server_received_ns", "server_sent_ns"):  # fmt: skip
            requests = _with(requests, name, nulls)
        return _with(requests, "status", pa.array(["refused"] * requests.num_rows))

    rewrite(path, "requests", all_refused)
    deaths = [
        {"process": f"store-{number}", "kind": "process died", "started_ns": STARTED_NS - NS,
         "ended_ns": None}
        for number in range(2)
    ]  # fmt: skip
    add_rows(path, "events", deaths)
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"cut off"'))
    analysis = unruly.analyse(unruly.open_run(path))
    (row,) = analysis.causes.rows
    assert (row.slow, row.limit_ns, row.unknown, row.causes) == (12_000, None, None, ())
    reason = row.absent["unknown"]
    assert reason.startswith("all 12,000 requests were slow or failed: there are no others to ")
    assert "went to store-0, which had died" in reason
    assert "went to store-1, which had died" in reason
    assert "store-2" not in reason
    schema.validate(json.loads(json.dumps(summary(analysis))))
    (view,) = views_of([analysis])
    assert any(reason in told for told in lead(view))


def test_a_limit_of_nothing_is_refused(stopped):
    with pytest.raises(unruly.UnrulyError, match="slow_beyond_ns: is 0"):
        unruly.analyse(stopped.run, slow_beyond_ns=0)


def test_a_run_of_few_requests_says_so(analysed):
    (row,) = analysed(causes=True, agents=1, kind="drive", ops=("read",), duration_s=30).causes.rows
    assert row.causes == ()
    assert row.unknown is None
    assert row.absent["unknown"] == "0 slow requests; 5 are needed"


def test_a_run_without_times_has_no_causes(analysed):
    found = analysed(causes=True, agents=2, ops=("null",), manifest={"timeless": ["base"]}).causes
    assert found.rows == ()
    assert found.note == "its source kept no times, or no single requests"


def test_every_mechanism_has_its_advice():
    assert {it.name for it in MECHANISMS} == set(SUGGESTIONS)


def test_spans_that_overlap_are_one():
    starts, ends = merged([(5, 9), (0, 2), (1, 4), (6, 7)])
    assert starts.tolist() == [0, 5]
    assert ends.tolist() == [4, 9]


def test_bursts_that_have_nothing_to_do_with_each_other_seldom_meet():
    """Under the null the p value is uniform, though both come in bursts."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(300):
        bursts = np.repeat(rng.uniform(0, 950, 4), 50) + rng.uniform(0, 20, 200)
        spans = np.sort(rng.uniform(0, 900, 5))
        ends = np.minimum(spans + rng.uniform(5, 60, 5), np.append(spans[1:], 1_000.0))
        found.append(coincidence((bursts, bursts + 2), (spans, ends), 1_000.0).p_value)
    assert np.mean(np.asarray(found) <= 0.05) < 0.08
    assert np.mean(np.asarray(found) <= 0.01) < 0.025


def test_coincidence_without_anything_is_refused():
    with pytest.raises(unruly.UnrulyError, match="requests, episodes: are 0 and 1"):
        coincidence(([], []), ([1.0], [2.0]), 10.0)
