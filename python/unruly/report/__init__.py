"""One HTML page that answers a reader's questions about a run, and needs no network."""

from __future__ import annotations

from unruly.report.page import write_advice, write_report

__all__ = ["write_advice", "write_report"]
