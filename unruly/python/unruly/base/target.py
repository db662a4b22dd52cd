"""The target that a store is held to: such a share of requests within such a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from unruly.base.sla import SECONDS, UNITS
from unruly.errors import UnrulyError
from unruly.quantity import duration

_TARGET: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%:([0-9]+(?:\.[0-9]+)?) ?(ns|us|ms|s|min)?")


class TargetError(UnrulyError):
    """A target that cannot be read."""


@dataclass(frozen=True)
class Target:
    """``share`` of requests within ``limit_ns``.

    The default is the target of the study of data stores. It is computed for every store, because
    the claims of that study are judged by it, but only a target that somebody ``asked`` for is
    shown.
    """

    share: float = 0.99999
    limit_ns: float = 500e6
    asked: bool = True

    @property
    def words(self) -> str:
        """As a person says it.

        Examples
        --------
        >>> Target().words
        '99.999 % within 500 ms'
        """
        return f"{100 * self.share:.10g} % within {duration(self.limit_ns)}"


def parse_target(text: str) -> Target:
    """Read ``SHARE:LIMIT``.

    Raises
    ------
    TargetError
        When it is none: a share between 0 and 100 %, and a time, in seconds without a unit.

    Examples
    --------
    >>> parse_target("99.9%:2ms").words
    '99.9 % within 2 ms'
    >>> parse_target("99%:2").limit_ns
    2000000000.0
    """
    found = _TARGET.fullmatch(text.strip())
    share = float(found[1]) / 100 if found else 0.0
    limit = float(found[2]) * UNITS[found[3] or SECONDS] if found else 0.0
    if not 0 < share < 1 or limit <= 0:
        raise TargetError(
            "--target", f"is {text!r}", "a share below 100 % and a time",
            "--target 99.999%:500ms",
        )  # fmt: skip
    return Target(share, limit)
