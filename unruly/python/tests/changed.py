"""Lets a test say something else of a topic than the analysis found."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace


def with_topics(analysis, **models):
    """Return the analysis with other models of these topics."""
    return replace(analysis, topics={**analysis.topics, **models})


def analysis_of(**topics):
    """Return a stand-in for an analysis that has these topics and no cell."""
    return SimpleNamespace(topic=lambda name, _: topics.get(name), cells=())
