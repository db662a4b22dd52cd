"""From numbers to findings: each rule looks at one thing and reports it once, or is silent.

A rule is a generator over the analysis. Its docstring explains its finding, and `make pages` writes
that text to unruly/docs/findings. Each rule has a test that raises it and one that does not.
"""

from __future__ import annotations

from typing import Final

from unruly.base import (
    rules_generator,
    rules_host,
    rules_nodes,
    rules_promise,
    rules_rate,
    rules_run,
    rules_tail,
)

RULES: Final = (
    *rules_rate.RULES,
    *rules_run.RULES,
    *rules_generator.RULES,
    *rules_host.RULES,
    *rules_promise.RULES,
    *rules_nodes.RULES,
    *rules_tail.RULES,
)
"""The rules that belong to no topic, in the order in which they are applied."""
