"""One HTML page that answers a reader's questions about a run, and needs no network."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from unruly.drawing.bundle import prepare

if TYPE_CHECKING:
    from unruly.html.audit import write_audit
    from unruly.html.figures.shift import comparison_sections
    from unruly.html.history import write_history
    from unruly.html.page import write_advice, write_report, write_sections

__all__ = [
    "comparison_sections",
    "prepare",
    "write_advice",
    "write_audit",
    "write_history",
    "write_report",
    "write_sections",
]

_HOMES: Final = {
    "comparison_sections": "unruly.html.figures.shift",
    "write_advice": "unruly.html.page",
    "write_audit": "unruly.html.audit",
    "write_history": "unruly.html.history",
    "write_report": "unruly.html.page",
    "write_sections": "unruly.html.page",
}
"""The module of each name, imported when the name is first used: Altair takes seconds, and
`prepare` must begin before."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the module that defines a name; return the name's value."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_HOMES[name]), name)
        return value
