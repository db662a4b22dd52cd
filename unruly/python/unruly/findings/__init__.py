"""What is found in a run, as data: the analysis, its rules, and its findings."""

from unruly.findings.advice import advise
from unruly.findings.advice_model import Advice
from unruly.findings.analyse import analyse
from unruly.findings.analysis import Analysis
from unruly.findings.model import (
    SECTIONS,
    SEVERITIES,
    BlindSpot,
    Conservation,
    Correlation,
    Correlations,
    Finding,
    GroupSummary,
    NamedNode,
    Options,
    SelfDistrust,
    SlowNodes,
)
from unruly.findings.operation import CellSummary
from unruly.findings.rules import CODES

__all__ = [
    "CODES",
    "SECTIONS",
    "SEVERITIES",
    "Advice",
    "Analysis",
    "BlindSpot",
    "CellSummary",
    "Conservation",
    "Correlation",
    "Correlations",
    "Finding",
    "GroupSummary",
    "NamedNode",
    "Options",
    "SelfDistrust",
    "SlowNodes",
    "advise",
    "analyse",
]
