"""Analyse the trace of a load test: which latency a service can promise, and why it was slow.

>>> import unruly
>>> run = unruly.open_run("runs/demo")
>>> analysis = unruly.analyse(run)
>>> print(unruly.verdict(analysis))  # doctest: +ELLIPSIS
unruly verdict: demo [synthetic], complete, 60 s measured, ...
trust: ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from unruly.api import Gate, audit, compare, export, gate, import_file, report
    from unruly.base.analysis import Analysis
    from unruly.base.estimate import Estimate
    from unruly.base.limits import Limit
    from unruly.base.model import Finding, GroupSummary
    from unruly.base.operation import CellSummary, Operation
    from unruly.errors import (
        IngestError,
        ParameterError,
        PlotError,
        RecoveryError,
        RunError,
        TraceError,
        UnknownNameError,
        UnrulyError,
    )
    from unruly.output.advice import advice_json, advise_text
    from unruly.output.comparison import compare_text
    from unruly.output.summary import summary
    from unruly.output.verdict import verdict
    from unruly.run import Run, open_run
    from unruly.stats.interval import Interval
    from unruly.topics.advice.model import Advice
    from unruly.topics.advice.statistics import advise
    from unruly.topics.analyse import analyse

__all__ = [
    "Advice",
    "Analysis",
    "CellSummary",
    "Estimate",
    "Finding",
    "Gate",
    "GroupSummary",
    "IngestError",
    "Interval",
    "Limit",
    "Operation",
    "ParameterError",
    "PlotError",
    "RecoveryError",
    "Run",
    "RunError",
    "TraceError",
    "UnknownNameError",
    "UnrulyError",
    "advice_json",
    "advise",
    "advise_text",
    "analyse",
    "audit",
    "compare",
    "compare_text",
    "export",
    "gate",
    "import_file",
    "open_run",
    "report",
    "summary",
    "verdict",
]

_HOMES: Final = {
    "unruly.api": ("Gate", "audit", "compare", "export", "gate", "import_file", "report"),
    "unruly.errors": (
        "IngestError",
        "ParameterError",
        "PlotError",
        "RecoveryError",
        "RunError",
        "TraceError",
        "UnknownNameError",
        "UnrulyError",
    ),
    "unruly.topics.advice.statistics": ("advise",),
    "unruly.topics.advice.model": ("Advice",),
    "unruly.topics.analyse": ("analyse",),
    "unruly.base.estimate": ("Estimate",),
    "unruly.base.limits": ("Limit",),
    "unruly.base.analysis": ("Analysis",),
    "unruly.base.model": ("Finding", "GroupSummary"),
    "unruly.base.operation": ("CellSummary", "Operation"),
    "unruly.output.advice": ("advice_json", "advise_text"),
    "unruly.output.comparison": ("compare_text",),
    "unruly.output.summary": ("summary",),
    "unruly.output.verdict": ("verdict",),
    "unruly.run": ("Run", "open_run"),
    "unruly.stats.interval": ("Interval",),
}
"""The module of each public name. It is imported when the name is first used: importing pandas,
SciPy and Ibis takes seconds, and ``unruly --help`` needs none of them. No public name may be that
of a submodule, since importing the submodule would replace it."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the module that defines a public name; return the name's value."""
        for module, names in _HOMES.items():
            if name in names:
                globals()[name] = value = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, which tab completion shows."""
    return __all__
