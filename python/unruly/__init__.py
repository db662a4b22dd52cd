"""Measure how predictable the latency of a distributed system is: the side that reads the trace.

>>> import unruly
>>> run = unruly.open_run("runs/demo")
>>> analysis = unruly.analyse(run)
>>> print(unruly.verdict(analysis))  # doctest: +ELLIPSIS
unruly verdict: demo [synthetic], complete, 60 s measured, ...
trust: ...
"""

# the module before the function of its name, which must be what `unruly.advise` is
from unruly.advise import advice_json, advise_text
from unruly.errors import (
    IngestError,
    ParameterError,
    RecoveryError,
    RunError,
    TraceError,
    UnrulyError,
)
from unruly.findings import (
    Advice,
    Analysis,
    CellSummary,
    Finding,
    GroupSummary,
    advise,
    analyse,
)
from unruly.run import Run, open_run
from unruly.stats import Interval
from unruly.summary import summary
from unruly.verdict import verdict

__all__ = [
    "Advice",
    "Analysis",
    "CellSummary",
    "Finding",
    "GroupSummary",
    "IngestError",
    "Interval",
    "ParameterError",
    "RecoveryError",
    "Run",
    "RunError",
    "TraceError",
    "UnrulyError",
    "advice_json",
    "advise",
    "advise_text",
    "analyse",
    "open_run",
    "summary",
    "verdict",
]
