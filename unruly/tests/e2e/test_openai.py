"""Servers of language models: each token is a row, and counts as the server sent it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from house import Measured, call
from llm_house import Model, llm
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from pathlib import Path


STALL_S = 0.2


def spans(run: Measured, layer: str) -> list[int]:
    rows = run.rows(f"select ended_ns - started_ns from spans where layer = '{layer}' order by 1")
    return [took for (took,) in rows]


@pytest.mark.smoke
def test_the_gaps_between_tokens_are_those_of_the_server(tmp_path: Path) -> None:
    """Every fourth reply stalls before its sixth token."""

    def pause(request: int, place: int) -> float:
        if place == 5 and request % 4 == 0:
            return STALL_S
        return 0.03 if place == 0 else 0.005

    model = Model(tokens=10, pause=pause)
    with llm(model) as place:
        run = drive(tmp_path, f"openai://{place}/v1", "--prompt", "hi", "-n", "60", "-c", "2")
    assert statuses(run) == {("ok", 200): 60}
    assert run.rows("select distinct op from requests") == [("chat",)]
    truth = sorted(later - at for own in model.sent_ns for at, later in pairwise(own))
    gaps = spans(run, "token")
    assert len(gaps) == len(truth) == 60 * 9
    assert sum(gaps) == pytest.approx(sum(truth), rel=0.01)
    # Half of a stall is far from any other gap, also on a busy machine.
    stalled = [sum(took > STALL_S * 0.5e9 for took in found) for found in (gaps, truth)]
    assert stalled[0] == stalled[1] >= 15
    first = spans(run, "first token")
    assert len(first) == 60
    assert first[0] > 0.03e9
    verdict = run.verdict()
    layers = {it["layer"]: it["n"] for it in verdict["parts"]["layers"]}
    assert layers == {"connect": 2, "first token": 60, "token": 60 * 9}
    (tokens,) = (it for it in verdict["self_distrust"]["unread"] if it["what"] == "tokens")
    assert tokens["n"] == 60 * 10
    # The generator was there while the server stalled, but for what a busy machine does to it.
    assert sum(took > STALL_S * 0.5e9 for took in spans(run, "read delay")) < stalled[0] / 2


def test_tokens_that_a_stopped_generator_reads_late_are_its_own_and_not_the_servers(
    tmp_path: Path,
) -> None:
    plan = tmp_path / "plan.toml"
    model = Model(tokens=20, pause=lambda *_: 0.01)
    with llm(model) as place:
        plan.write_text(
            f'name = "late"\n[run]\nduration = "3s"\nwarmup = "0s"\n[drive]\n'
            f'url = "openai://{place}/v1"\nprompt = "hi"\nclients = 4\n'
            '[[fault]]\nkind = "stop"\nprocess = "drive-0"\nat = "1s"\nduration = "600ms"\n'
        )
        said = call("run", plan, "-q", "-o", tmp_path / "out")
    assert said.returncode in (0, 1), said.stderr
    run = Measured(tmp_path / "out")
    sent = [later - at for own in model.sent_ns for at, later in pairwise(own)]
    assert max(sent) < 0.5e9, "the server itself was stopped"
    assert max(spans(run, "token")) > 0.5e9
    verdict = run.verdict()
    unread = {it["what"]: it for it in verdict["self_distrust"]["unread"]}
    assert 1 <= unread["tokens"]["late"] < unread["tokens"]["n"] / 2
    assert 0.5e9 < unread["tokens"]["longest_ns"] <= max(spans(run, "token"))
    (found,) = (it for it in verdict["findings"] if it["code"] == "generator-reads-late")
    of_what = found["evidence"]["what"]
    assert found["evidence"]["late"] == unread[of_what]["late"] > 0


def test_goodput_counts_the_replies_that_met_each_limit(tmp_path: Path) -> None:
    """Every fourth reply has a gap of 0.2 s; half of that is far from any other gap."""

    def pause(request: int, place: int) -> float:
        return STALL_S if place == 5 and request % 4 == 0 else 0.005

    model = Model(tokens=10, pause=pause)
    limits = f"gap < {STALL_S / 2}s, e2e < 30s"
    with llm(model) as place:
        words = ["--prompt", "hi", "-n", "80", "-c", "2", "--goodput", limits]
        run = drive(tmp_path, f"openai://{place}/v1", *words)
    truth = [max(at - before for before, at in pairwise(own)) for own in model.sent_ns]
    late = sum(gap > STALL_S * 0.5e9 for gap in truth)
    (row,) = run.verdict()["goodput"]["rows"]
    assert late >= 20
    assert (row["n"], row["good"], row["failed"]) == (80, 80 - late, 0)
    assert {it["measure"]: it["missed"] for it in row["limits"]} == {"gap": late, "e2e": 0}
    assert row["share"]["low"] < row["share"]["estimate"] < row["share"]["high"]
    said = refused(tmp_path, "openai://h/v1", "--prompt", "hi", "--goodput", "ttft < 5")
    assert "--goodput: " in said
    assert "must be limits of ttft, tpot, gap or e2e" in said


def test_the_first_token_counts_from_the_scheduled_time(tmp_path: Path) -> None:
    """One connection, four requests at a time: the last of them waits for three replies."""
    model = Model(tokens=2, pause=lambda *_: 0.02)
    with llm(model) as place:
        words = ["--prompt", "hi", "-n", "40", "-c", "4", "--connections", "1"]
        run = drive(tmp_path, f"openai://{place}/v1", *words)
    waiting = spans(run, "first token")
    # Three replies of 40 ms each stand before it, and 20 ms of its own.
    assert waiting[len(waiting) // 2] > 0.12e9


def test_prompts_come_from_a_data_file_or_are_random_words(tmp_path: Path) -> None:
    (tmp_path / "prompts.csv").write_text('prompt\n"say ""hi"""\nsay ho\n')
    model = Model(tokens=1)
    with llm(model) as place:
        url = f"openai://{place}/v1?model=m&max_tokens=7"
        own = ["--data", str(tmp_path / "prompts.csv"), "--prompt", "{data.prompt}!"]
        drive(tmp_path, url, "-n", "4", *own)
        drive(tmp_path, url, "-n", "2", "--prompt", "{words:30}")
    asked = [body["messages"][0]["content"] for body in model.bodies]  # type: ignore[index]
    assert asked[:4] == ['say "hi"!', "say ho!"] * 2
    assert [len(text.split()) for text in asked[4:]] == [30, 30]
    assert asked[4] != asked[5]
    assert {(body["model"], body["max_tokens"], body["stream"]) for body in model.bodies} == {
        ("m", 7, True)
    }
    assert model.paths == {"/v1/chat/completions"}


def test_completions_and_whole_replies_are_measured_too(tmp_path: Path) -> None:
    model = Model(tokens=3)
    with llm(model) as place:
        words = ["--prompt", "hi", "-n", "10"]
        old = drive(tmp_path, f"openai://{place}/v1?api=completions", *words)
        whole = drive(tmp_path, f"openai://{place}/v1?stream=false", *words)
    assert statuses(old) == statuses(whole) == {("ok", 200): 10}
    assert len(spans(old, "token")) == 20
    assert old.rows("select distinct op from requests") == [("completions",)]
    assert spans(whole, "first token") == []
    assert model.paths == {"/v1/completions", "/v1/chat/completions"}


def test_a_token_of_an_account_is_sent_and_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(tokens=1)
    monkeypatch.setenv("UNRULY_PASSWORD", "s3cr3t")
    with llm(model) as place:
        run = drive(tmp_path, f"openai://{place}/v1", "--prompt", "hi", "-n", "5")
    assert model.authorizations == {"Bearer s3cr3t"}
    assert all(b"s3cr3t" not in it.read_bytes() for it in run.path.rglob("*") if it.is_file())


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        (Model(cut_after=3), ("error:reset", None), "the stream was cut off"),
        (Model(error_after=3), ("error:store", 200), "the stream reports an error"),
    ],
    ids=["cut", "error"],
)
def test_a_stream_that_does_not_reach_its_end_is_a_failure(
    tmp_path: Path, model: Model, status: tuple[str, int | None], words: str
) -> None:
    with llm(model) as place:
        run = drive(tmp_path, f"openai://{place}/v1", "--prompt", "hi", "-n", "20")
    found = statuses(run)
    assert sum(found.values()) == 20
    assert {name for name, _ in found} == {status[0]}
    assert len(spans(run, "first token")) == 20
    assert len(spans(run, "token")) == 40
    told = run.rows("select detail from events where kind = 'complaint'")
    assert any(words in detail for (detail,) in told), told


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        (Model(stream="[DONE]"), "error:protocol", "the stream has no token"),
        (
            Model(stream='{"object":"error","message":"no memory"}\n[DONE]'),
            "error:store",
            "the stream reports an error",
        ),
        (
            Model(streams=False, whole='{"error":{"message":"no such model"}}'),
            "error:store",
            "the reply reports an error",
        ),
    ],
    ids=["empty", "object", "whole"],
)
def test_a_reply_of_a_success_without_tokens_is_a_failure(
    tmp_path: Path, model: Model, status: str, words: str
) -> None:
    with llm(model) as place:
        run = drive(tmp_path, f"openai://{place}/v1", "--prompt", "hi", "-n", "20")
    assert statuses(run) == {(status, 200): 20}
    told = run.rows("select detail from events where kind = 'complaint'")
    assert any(words in detail for (detail,) in told), told


def test_what_a_model_thinks_is_tokens_however_it_is_named(tmp_path: Path) -> None:
    said = [{"reasoning": "hm"}, {"reasoning_content": "so"}, {"content": "yes"}]
    events = [json.dumps({"choices": [{"delta": it}]}) for it in said]
    model = Model(stream="\n".join([*events, "[DONE]"]))
    with llm(model) as place:
        run = drive(tmp_path, f"openai://{place}/v1", "--prompt", "hi", "-n", "10")
    assert statuses(run) == {("ok", 200): 10}
    assert len(spans(run, "first token")) == 10
    assert len(spans(run, "token")) == 20


@pytest.mark.parametrize(
    ("url", "flags", "said"),
    [
        ("openai://127.0.0.1:1/v1", [], "--prompt: "),
        ("openai://127.0.0.1:1/v1?modle=m", ["--prompt", "hi"], 'openai has no option "modle"'),
        ("openai://127.0.0.1:1/v1?api=chats", ["--prompt", "hi"], "chat or completions"),
        ("openai://127.0.0.1:1/v1?max_tokens=0", ["--prompt", "hi"], "a number above 0"),
        ("openai://127.0.0.1:1/v1", ["--prompt", "hi", "--http2"], "tokens are read over HTTP/1.1"),
        ("http://127.0.0.1:1/v1", ["--prompt", "hi"], "only an openai:// URL has it"),
    ],
)
def test_what_a_model_cannot_be_asked_is_an_error_before_the_run(
    tmp_path: Path, url: str, flags: list[str], said: str
) -> None:
    assert said in refused(tmp_path, url, *flags)


def test_an_option_of_the_url_beside_a_body_is_refused(tmp_path: Path) -> None:
    body = tmp_path / "request.json"
    body.write_text('{"model": "mine"}')
    said = refused(tmp_path, "openai://127.0.0.1:1/v1?model=m", "--body", body)
    assert "model=m; wanted it in the body" in said
