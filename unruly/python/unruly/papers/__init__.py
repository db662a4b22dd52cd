"""The five papers, claim by claim: where each can be seen here, and what runs say of it today.

The claims are data (a TOML file a paper), the verdicts are kept beside them, and the page is made
of both.
"""

from unruly.papers.claims import Claim, Paper, papers
from unruly.papers.judgement import Judgement
from unruly.papers.judges import judge_run
from unruly.papers.page import kept, page, remember

__all__ = ["Claim", "Judgement", "Paper", "judge_run", "kept", "page", "papers", "remember"]
