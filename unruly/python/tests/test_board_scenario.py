"""The visitors of the board ask for its pages as often as those of RUBBoS's browsing mix do."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "board.toml"
MIX = {
    "stories": 0.22091, "browse": 0.03698, "categories": 0.01704, "category": 0.0358,
    "older": 0.0335, "story": 0.26683, "comment": 0.27921, "search": 0.03708,
    "search-stories": 0.03793, "search-comments": 0.02797, "search-users": 0.00675,
}  # fmt: skip
"""Shares of all requests: a walk of three million steps on the browse-only table of RUBBoS."""
REQUESTS_OF_A_VISIT = 11.82


def test_each_page_has_the_share_of_requests_that_it_has_in_rubbos() -> None:
    states = tomllib.loads(SCENARIO.read_text(encoding="utf-8"))["state"]
    names = [it["name"] for it in states]
    assert names == list(MIX)
    to = np.array([[it["then"].get(name, 0.0) for name in names] for it in states])
    ends = np.array([it["then"].get("end", 0.0) for it in states])
    assert to.sum(axis=1) + ends == pytest.approx(np.ones(len(names)))
    # a visit begins with the first state: how often each is passed until the end
    begins = np.eye(len(names))[0]
    passed = np.linalg.solve(np.eye(len(names)) - to.T, begins)
    assert passed.sum() == pytest.approx(REQUESTS_OF_A_VISIT, abs=0.1)
    shares = dict(zip(names, passed / passed.sum(), strict=True))
    assert shares == pytest.approx(MIX, abs=0.001)
