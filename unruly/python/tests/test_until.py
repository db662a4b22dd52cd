"""A run that ends when it knows enough: who says so, and when."""

from __future__ import annotations

import io
import json

import numpy as np

from unruly.stats.histogram import bucket_index
from unruly.until import Seconds, answer


def seconds(count: int, a_second: int, seed: int = 1, stalls: bool = False) -> list[str]:
    rng = np.random.default_rng(seed)
    lines = []
    for second in range(count):
        values = rng.lognormal(12, 0.5, a_second)
        if stalls and second % 11 == 3:
            values[: a_second // 4] += 5e7
        buckets, counts = np.unique(bucket_index(values), return_counts=True)
        bins = [["read", int(b), int(n)] for b, n in zip(buckets, counts, strict=True)]
        lines.append(json.dumps({"process": 0, "bins": bins}))
    return lines


def looks(lines: list[str], within: float) -> list[dict[str, object]]:
    out = io.StringIO()
    answer(lines, out, 99.0, within)
    first, *rest = out.getvalue().splitlines()
    assert first == "ready"
    return [json.loads(line) for line in rest]


def test_it_looks_first_after_thirty_seconds_and_then_ever_less_often() -> None:
    said = [str(it["said"]) for it in looks(seconds(60, 200), 0.001)]
    assert [int(words.split()[2]) for words in said] == [30, 34, 39, 44, 50, 57]


def test_many_alike_are_enough_and_few_or_stalled_ones_are_not() -> None:
    assert looks(seconds(34, 3_000), 0.1)[-1]["enough"] is True
    assert looks(seconds(34, 20), 0.1)[-1]["enough"] is False
    assert looks(seconds(34, 3_000, stalls=True), 0.1)[-1]["enough"] is False


def test_the_warm_up_is_no_part_of_the_run() -> None:
    silence = [json.dumps({"process": 0, "bins": []})] * 20
    assert looks([*silence, *seconds(29, 200)], 0.1) == []
    assert len(looks([*silence, *seconds(30, 200)], 0.1)) == 1


def test_each_operation_must_be_known() -> None:
    both = Seconds(99.0, 0.1)
    for line in seconds(30, 3_000):
        bins = json.loads(line)["bins"]
        both.hear(0, [*bins, ["write", 2_400, 2]])
    found = both.look(30)
    assert found["enough"] is False
    assert "write not yet known" in str(found["said"])


def test_nothing_that_comes_back_is_never_enough() -> None:
    nothing = Seconds(99.0, 0.1)
    assert nothing.look(30) == {"said": "p99 after 30 s: nothing came back", "enough": False}
