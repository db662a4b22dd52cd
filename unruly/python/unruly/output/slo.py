"""What became of the targets that a run was given with ``--slo``."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unruly.base.judging import Outcome


def slo_text(outcomes: Sequence[Outcome], *, width: int = 100) -> str:
    """Return a line or two for each target and operation."""
    cells = len({it.cell for it in outcomes}) > 1
    lines: list[str] = []
    for it in outcomes:
        about = "" if it.limit.op else f"{it.op} "
        where = f" in {it.cell}" if cells and it.cell else ""
        text = f"slo: {it.outcome}: {about}{it.limit.name}{where}: {it.sentence}"
        lines += textwrap.wrap(text, max(60, width), subsequent_indent=" " * 5)
    return "\n".join(lines)
