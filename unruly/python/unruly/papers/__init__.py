"""The five papers, claim by claim: where each can be seen here, and what runs say of it today.

The claims are data (a TOML file a paper), the verdicts of all runs are kept beside them, and the
page is made of both.
"""

from unruly.papers.claims import Claim, Paper, papers
from unruly.papers.judgement import Judgement
from unruly.papers.judges import judge_run
from unruly.papers.page import page
from unruly.papers.record import Check, Record, check, kept, remember

__all__ = [
    "Check", "Claim", "Judgement", "Paper", "Record", "check", "judge_run", "kept", "page",
    "papers", "remember",
]  # fmt: skip
