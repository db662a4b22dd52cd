"""The page of a run that goes on, in a browser, as its reader sees it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from unruly.live.server import page
from unruly.live.state import State
from unruly.stats.histogram import bucket_index

PHONE = {"width": 390, "height": 844}
LAPTOP = {"width": 1280, "height": 900}
URL = "http://live.test/"
OP = "<img src=x onerror=alert(1)>"


def seconds(count):
    rng = np.random.default_rng(3)
    for number in range(count):
        values = rng.lognormal(14, 0.3, 400)
        # a stall in every seventh second
        values[: 40 * (number % 7 == 0)] += 8e8
        buckets, counts = np.unique(bucket_index(values), return_counts=True)
        bins = [[OP, int(b), int(n)] for b, n in zip(buckets, counts, strict=True)]
        yield {
            "process": 0, "place": number, "sent": 400, "failed": {}, "open": 2, "lag_ns": 1e5,
            "dropped": 0, "bins": bins,
        }  # fmt: skip


def state_of(count):
    state = State(clock=lambda: float(count))
    state.hear({"run": {"name": "stalls", "id": "1", "directory": "runs/stalls"}})
    state.hear({
        "trial": {
            "number": 1, "of": 1, "cell": "all", "warmup_ns": 0, "duration_ns": 900_000_000_000,
            "rate": 400.0, "processes": 1,
        }
    })  # fmt: skip
    state.begun_s = 0.0
    for it in seconds(count):
        state.hear({"second": it})
    return state


@pytest.fixture
def opened(chromium):
    contexts = []

    def at(size, *states):
        context = chromium.new_context(viewport=size)
        contexts.append(context)
        seen = context.new_page()
        seen.errors, seen.asked = [], []
        seen.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.on("dialog", lambda it: seen.errors.append(it.message))
        html, policy = page()
        left = list(states)

        def answer(route):
            seen.asked.append(route.request.url)
            if route.request.url == URL:
                headers = {"Content-Security-Policy": policy}
                route.fulfill(body=html, content_type="text/html", headers=headers)
            elif left:
                route.fulfill(body=json.dumps(left.pop(0)), content_type="application/json")
            else:
                route.abort()

        seen.route("**", answer)
        seen.goto(URL)
        seen.wait_for_selector("#ops tr", timeout=10_000)
        return seen

    yield at
    for context in contexts:
        context.close()


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
def test_the_page_says_what_is_known_and_fits_its_screen(opened, size):
    document = state_of(140).document()
    seen = opened(size, document, document)
    head = seen.inner_text("h1")
    p99 = next(it for it in document["ops"][0]["steps"] if it["name"] == "p99")
    assert head.replace("\u00a0", " ") == f"{OP}: p99 {p99['value']} so far"
    assert p99["known"]
    assert p99["text"] in seen.inner_text("#sentence")
    assert seen.locator("#plot path").count() == 3
    assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen.errors == []
    assert set(seen.asked) <= {URL, URL + "state.json"}


def test_the_name_of_an_operation_is_text_and_no_markup(opened):
    seen = opened(LAPTOP, state_of(31).document())
    assert seen.locator("main img").count() == 0
    assert OP in seen.inner_text("#ops")
    assert seen.errors == []


def test_when_the_run_has_ended_the_page_says_how_to_get_the_verdict(opened):
    state = state_of(31)
    running = state.document()
    state.hear({"end": {}})
    seen = opened(LAPTOP, running, state.document())
    seen.locator("#state", has_text="ended").wait_for(timeout=10_000)
    assert "unruly verdict runs/stalls" in seen.inner_text("#sentence")


def test_when_the_server_is_gone_the_last_figures_stay_and_are_called_so(opened):
    seen = opened(LAPTOP, state_of(31).document())
    seen.wait_for_selector("main.gone", timeout=10_000)
    assert "These are its last figures" in seen.inner_text("#sentence")
    assert "p99" in seen.inner_text("h1")
