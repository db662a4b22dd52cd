"""Measure how predictable the latency of a distributed system is: the side that reads the trace.

>>> import unruly
>>> run = unruly.open_run("runs/demo-20261120T120000Z")  # doctest: +SKIP
>>> analysis = unruly.analyse(run)  # doctest: +SKIP
>>> print(unruly.verdict(analysis))  # doctest: +SKIP
"""

from unruly.errors import ParameterError, RecoveryError, RunError, TraceError, UnrulyError
from unruly.findings import Analysis, CellSummary, Finding, GroupSummary, analyse
from unruly.run import Run, open_run
from unruly.stats import Interval
from unruly.summary import summary
from unruly.verdict import verdict

__all__ = [
    "Analysis",
    "CellSummary",
    "Finding",
    "GroupSummary",
    "Interval",
    "ParameterError",
    "RecoveryError",
    "Run",
    "RunError",
    "TraceError",
    "UnrulyError",
    "analyse",
    "open_run",
    "summary",
    "verdict",
]
