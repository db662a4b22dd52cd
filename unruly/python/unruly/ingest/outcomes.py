"""Which rows of a table failed: ``--status`` names a column, ``--failed-if`` a condition.

A failed request ranks above every reply, however fast its error came. A word that can mean either
is an error, because a guess would turn every latency of a run into a failure, or none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from unruly.errors import IngestError, ParameterError
from unruly.ingest.model import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

OK: Final = "ok"
FLAG: Final = "--failed-if"
FORM: Final = re.compile(
    r"\s*(?P<column>[^=!<>]+?)\s*(?P<sign>!=|<=|>=|==?|<|>)\s*(?P<value>.*?)\s*"
)
"""The first sign ends the name of the column."""
SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
SUCCESSES: Final = frozenset({
    "ok", "okay", "success", "successful", "succeeded", "true", "t", "yes", "y", "pass", "passed",
    "completed",
})  # fmt: skip
FAILURES: Final = frozenset({
    "false", "f", "no", "n", "fail", "failed", "failure", "ko", "error", "err", "errored",
    "aborted", "cancelled", "canceled", "unavailable", "rejected", "dropped",
})  # fmt: skip
GRPC: Final = frozenset({
    "unknown", "invalid argument", "not found", "already exists", "permission denied",
    "resource exhausted", "failed precondition", "out of range", "unimplemented", "internal",
    "data loss", "unauthenticated",
})  # fmt: skip
HTTP: Final = re.compile(r"(?:HTTP/\d(?:\.\d)? )?(?P<code>[1-5]\d\d)(?:\.0)?(?: \D.{0,100})?")
"""A status of HTTP, also as ``200 OK`` or ``HTTP/1.1 200 OK``."""


@dataclass(frozen=True)
class Condition:
    """A row failed if its ``column`` compares so with ``value``."""

    column: str
    sign: str
    value: str

    def __str__(self) -> str:
        return f"{self.column}{self.sign}{self.value}"

    def holds(self, text: str) -> bool | None:
        """Return whether the text of a row meets the condition; None if it is no number."""
        left, right = _number(text), _number(self.value)
        if self.sign in SIGNS:
            if left is None or right is None:
                return None
            return SIGNS[self.sign](left, right)
        if left is not None and right is not None:
            same = left == right
        else:
            same = text.strip().casefold() == self.value.casefold()
        return same is (self.sign == "=")


def condition(text: str) -> Condition:
    """Return the condition that a user wrote.

    Raises
    ------
    ParameterError
        When the text is no condition, or orders by a word.

    Examples
    --------
    >>> condition("status >= 400")
    Condition(column='status', sign='>=', value='400')
    """
    match = FORM.fullmatch(text)
    if match is None:
        wanted = "COLUMN, one of = != < <= > >=, and a value"
        raise ParameterError(FLAG, f"is {text!r}", wanted, f"{FLAG} 'status>=400'")
    column, sign, value = match["column"], match["sign"].replace("==", "="), match["value"]
    if sign in SIGNS and _number(value) is None:
        hint = f"{FLAG} '{column}={value}' compares words"
        raise ParameterError(FLAG, f"orders by {value!r}", f"a number after {sign}", hint)
    return Condition(column, sign, value)


@dataclass(frozen=True)
class Outcomes:
    """How the rows of a file say whether they failed."""

    status: str | None
    """The column of the status."""
    conditions: tuple[Condition, ...] = ()
    doubtful: str | None = None
    """The status of a row whose status can mean either; None: it is an error."""

    @property
    def columns(self) -> list[str]:
        """Every column that decides."""
        named = [self.status] if self.status is not None else []
        return [*named, *(it.column for it in self.conditions)]

    def of(
        self, where: str, columns: Mapping[str, pa.Array], rows: int
    ) -> tuple[pa.Array, list[tuple[NDArray[np.bool_], str, str]]]:
        """Return the status of each row, and the rows that cannot be compared.

        Each of the latter is a mask, the column and a reason.

        Raises
        ------
        IngestError
            When the column of ``--status`` has a word that can mean either.
        """
        failed = np.zeros(rows, bool)
        found = np.full(rows, OK, dtype=object)
        unclear = []
        for it in self.conditions:
            texts, codes = _coded(columns[it.column])
            verdicts = [it.holds(text) for text in texts]
            unclear.append((
                np.array([verdict is None for verdict in verdicts], bool)[codes],
                it.column,
                f"no number for {it}",
            ))  # fmt: skip
            held = np.array([bool(verdict) for verdict in verdicts], bool)[codes]
            kinds = np.array([_kind(it.column, text) for text in texts], dtype=object)[codes]
            known = failed & (found != "error:failed")
            found[held & ~known] = kinds[held & ~known]
            failed |= held
        if self.status is not None:
            texts, codes = _coded(columns[self.status])
            kinds = np.array(
                [status_of(text) or self.doubtful or "" for text in texts], dtype=object
            )[codes]
            unknown = np.flatnonzero((kinds == "") & ~failed)
            if len(unknown):
                raise _unclear(where, self.status, texts[int(codes[unknown[0]])])
            better = (kinds != "") & (kinds != OK) & (~failed | (found == "error:failed"))
            found[better] = kinds[better]
        return pa.array(found.tolist(), pa.string()), unclear


def status_of(text: str) -> str | None:
    """Return the status that a word or a code means; None when it can mean either.

    Examples
    --------
    >>> [status_of(it) for it in ("200", "OK", "503", "true", "DEADLINE_EXCEEDED", "1")]
    ['ok', 'ok', 'error:503', 'ok', 'timeout', None]
    """
    word = text.strip()
    match = HTTP.fullmatch(word)
    if match is not None:
        return OK if match["code"] < "400" else failure(match["code"])
    plain = re.sub(r"[_\s-]+", " ", word).casefold()
    if plain in SUCCESSES:
        return OK
    kind = failure("", plain)
    if plain in GRPC:
        return kind
    return kind if kind != "error:failed" or FAILURES & set(plain.split()) else None


def _kind(column: str, text: str) -> str:
    """Return the kind of failure of a row that a condition calls failed."""
    is_code = re.search(r"status|code", column, re.IGNORECASE) is not None
    match = HTTP.fullmatch(text.strip()) if is_code else None
    if match is not None and match["code"] >= "400":
        return failure(match["code"])
    return failure("", text.replace("_", " ")[:1_000])


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _coded(texts: pa.Array) -> tuple[Sequence[str], NDArray[np.int64]]:
    """Return the distinct texts, and the index of each row's text."""
    encoded = texts.fill_null("").dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)


def _unclear(where: str, column: str, text: str) -> IngestError:
    shown = text if len(text) <= 40 else text[:37] + "..."
    return IngestError(
        where,
        f"{column} is {shown!r}, which can mean a success or a failure",
        "statuses of HTTP, or words such as ok, success, true, error, timeout, false",
        f"{FLAG} '{column}={shown}' if these rows failed; else "
        f"{FLAG} '{column}!={shown}' without --status",
    )
