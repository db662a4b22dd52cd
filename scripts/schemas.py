"""The schemas of what the meter writes as JSON, from the types of the code that writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import compact

from json_schema import Schema, returned
from unruly.base.comparison import Comparison
from unruly.output.advice import AdviceDocument
from unruly.output.comparison import ComparisonDocument
from unruly.output.summary import Summary
from unruly.topics.advice.model import Advice
from unruly.topics.registry import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unruly.topics.topic import Topic

FOLDER: Final = Path(__file__).resolve().parents[1] / "unruly" / "schema"


def summary(topics: Iterable[Topic] = TOPICS) -> dict[str, Any]:
    """Return the schema of ``summary.json``; each topic adds the type that its summary returns."""
    parts = {topic.name: returned(topic.summary) | None for topic in topics}
    return Schema(closed=True).document(Summary, parts=parts)


def texts() -> dict[Path, str]:
    """Return the text of each schema."""
    found = {
        "summary": summary(),
        "advice": Schema(closed=False).document(AdviceDocument, Advice, parts={}),
        "comparison": Schema(closed=False).document(ComparisonDocument, Comparison, parts={}),
    }
    return {FOLDER / f"{name}.schema.json": compact.text(it) for name, it in found.items()}
