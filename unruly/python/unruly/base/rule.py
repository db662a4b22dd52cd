"""A rule: from numbers to a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unruly.base.analysis import Analysis
    from unruly.base.model import Finding


@dataclass(frozen=True)
class Rule:
    """Looks at one thing and says it once, or is silent.

    ``code`` is what it can raise. It has a page ``unruly/docs/findings/<code>.md``.
    """

    code: str
    find: Callable[[Analysis], Iterator[Finding]]
