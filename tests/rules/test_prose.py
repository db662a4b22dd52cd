"""The number of phrases that have to be decoded falls, and never rises."""

from __future__ import annotations

from collections import Counter

import prose
import pytest


@pytest.fixture(scope="module")
def found() -> Counter[str]:
    """The counts of all folders: the whole repository is read for them."""
    return prose.counts()


def test_no_folder_has_more_banned_phrases_than_its_limit(found: Counter[str]) -> None:
    limits = prose.limits()
    over = {it: (count, limits.get(it, 0)) for it, count in found.items()}
    over = {it: pair for it, pair in over.items() if pair[0] > pair[1]}
    assert over == {}, "hint: python tests/rules/prose.py lists the lines"


def test_a_limit_is_lowered_when_a_folder_is_rewritten(found: Counter[str]) -> None:
    slack = {it: (found[it], most) for it, most in prose.limits().items() if found[it] < most}
    assert slack == {}, "hint: python tests/rules/prose.py --update"


@pytest.mark.parametrize(
    ("text", "is_banned"),
    [
        ("Who answers what is due is whoever leads.", True),
        ("The reader is told.", True),
        ("Latency goes with its load.", True),
        ("Of each repeat the bandwidth is divided.", True),
        ("It waits so long that the lease ends.", False),
        ("Of course it waits.", False),
        ("The controller reports the loss to the owner.", False),
        ("Latency rises with the receiver's CPU wait.", False),
    ],
)
def test_a_banned_phrase_is_recognised(text: str, is_banned: bool) -> None:
    assert bool(prose.PATTERN.search(text)) is is_banned
