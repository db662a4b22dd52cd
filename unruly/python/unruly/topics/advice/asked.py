"""The advice that somebody asked for, beside the analysis of the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unruly.topics.advice.model import Advice

if TYPE_CHECKING:
    from unruly.drawing.view import View


def advice_of(view: View) -> Advice | None:
    """Return the advice to draw; None where nobody asked for it."""
    assert view.advice is None or isinstance(view.advice, Advice)
    return view.advice
