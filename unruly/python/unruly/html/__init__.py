"""One HTML page that answers a reader's questions about a run, and needs no network."""

from __future__ import annotations

from unruly.html.figures.shift import comparison_sections
from unruly.html.page import write_advice, write_report, write_sections

__all__ = ["comparison_sections", "write_advice", "write_report", "write_sections"]
