"""Batches of a reader made columns of the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unruly.errors import IngestError
from unruly.tables.columns import TABLES
from unruly.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unruly.ingest.complaints import Complaints
    from unruly.ingest.model import Column, Requests

ARROW: Final = {
    "VARCHAR": pa.string(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "USMALLINT": pa.uint16(),
    "UBIGINT": pa.uint64(),
    "UTINYINT": pa.uint8(),
    "UINTEGER": pa.uint32(),
}
REACH_NS: Final = 2**62
"""Times and durations beyond this (146 years) are wrong units, and their sums would overflow."""


def is_scalar(value: Column) -> bool:
    """Whether a column is one value for all rows."""
    return value is None or isinstance(value, str | int | float | np.generic)


def array(value: Column, rows: int, kind: pa.DataType) -> pa.Array:
    """Return a column of ``rows`` values of an Arrow type."""
    if is_scalar(value):
        return pa.repeat(pa.scalar(value, kind), rows)
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if not isinstance(value, pa.Array):
        value = pa.array(value)
    if pa.types.is_dictionary(value.type):
        value = value.dictionary_decode()
    return value.cast(kind)


def plain_names(value: Column) -> Column:
    """Return names with a mark for each control character: they are printed by every verb."""
    if value is None or isinstance(value, str):
        return value if value is None else plain(value)
    if isinstance(value, pa.Array | pa.ChunkedArray):
        distinct = pc.unique(value).to_pylist()
    else:
        distinct = list(dict.fromkeys(value))
    if all(not isinstance(it, str) or plain(it) == it for it in distinct):
        return value
    names = value.to_pylist() if isinstance(value, pa.Array | pa.ChunkedArray) else value
    return [it if it is None else plain(str(it)) for it in names]


def bounded(value: Column, rows: int, kind: pa.DataType) -> pa.Array:
    """Return a column of an unsigned type; what does not fit is the nearest that does."""
    most = 2**kind.bit_width - 1
    if isinstance(value, list):
        value = [min(max(it, 0), most) for it in value]
    numbers = array(value, rows, pa.int64())
    return pc.min_element_wise(pc.max_element_wise(numbers, 0), most).cast(kind)


def table_of(name: str, columns: Mapping[str, Any], rows: int) -> pa.Table:
    """Return rows of a trace table; a column that is not given is null."""
    arrays, fields = [], []
    for column, kind, required in TABLES[name]:
        arrays.append(array(columns.get(column), rows, ARROW[kind]))
        fields.append(pa.field(column, ARROW[kind], nullable=not required))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def codes_of(value: Column, rows: int) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts of a column, and the index of each row's text."""
    if is_scalar(value):
        return [plain(str(value))], np.zeros(rows, np.int64)
    encoded = value if isinstance(value, pa.DictionaryArray) else None
    if encoded is None:
        encoded = array(value, rows, pa.string()).dictionary_encode()
    texts = [plain(str(text)) for text in encoded.dictionary.to_pylist()]
    return texts, np.asarray(encoded.indices).astype(np.int64)


def cells_of(
    factors: Mapping[str, Column], rows: int
) -> tuple[list[dict[str, str]], NDArray[np.int64]]:
    """Distinct combinations of the factors, and which of them each row has."""
    combined, sizes, levels = np.zeros(rows, np.int64), [], []
    for value in factors.values():
        texts, codes = codes_of(value, rows)
        levels.append(texts)
        sizes.append(len(texts))
        combined = combined * len(texts) + codes
    present, place = np.unique(combined, return_inverse=True)
    found = []
    for code in present.tolist():
        chosen, rest = {}, code
        for name, texts, size in reversed(list(zip(factors, levels, sizes, strict=True))):
            rest, at = divmod(rest, size)
            chosen[name] = texts[at]
        found.append({name: chosen[name] for name in factors})
    return found, place.astype(np.int64)


def cell_name(factors: Mapping[str, str]) -> str:
    """Name a cell as plans do."""
    return " ".join(f"{name}={value}" for name, value in factors.items()) or "all"


def sound_rows(batch: Requests, complaints: Complaints) -> tuple[dict[str, Any], int]:
    """Columns of a batch without the rows that cannot be: each is a complaint.

    Raises
    ------
    IngestError
        When the batch has no row-wise duration: a reader that does so is broken.
    """
    if is_scalar(batch.duration_ns):
        raise IngestError(complaints.where, "a batch without durations", "a column of them")
    rows = len(batch.duration_ns)
    duration = array(batch.duration_ns, rows, pa.int64())
    status = array(batch.status, rows, pa.string())
    values = np.asarray(pc.fill_null(duration, 0))
    missing = np.asarray(pc.is_null(duration)).astype(bool)
    reasons = [
        (missing & np.asarray(pc.equal(status, "ok")).astype(bool), "answered, without a duration"),
        (values < 0, "a negative duration"),
        (values >= REACH_NS, "a duration of more than 146 years"),
    ]
    if batch.started_ns is not None:
        started = array(batch.started_ns, rows, pa.int64())
        nowhere = np.asarray(pc.is_null(started)).astype(bool)
        far = np.abs(np.asarray(pc.fill_null(started, 0))) >= REACH_NS
        reasons += [(nowhere, "no time"), (far, "a time beyond the years 1824 to 2116")]
    bad = np.zeros(rows, bool)
    lines = None if is_scalar(batch.line) else np.asarray(batch.line)
    for mask, reason in reasons:
        for place in np.flatnonzero(mask & ~bad):
            line = int(batch.line or 0) if lines is None else int(lines[place])
            shown = f"{reason} ({int(values[place])} ns)" if values[place] < 0 else reason
            complaints.refuse(line, shown)
        bad |= mask
    columns = {name: getattr(batch, name) for name in batch.__dataclass_fields__}
    if bad.any():
        kept = pa.array(~bad)
        columns = {name: _kept(value, kept) for name, value in columns.items()}
        columns["factors"] = {n: _kept(v, kept) for n, v in batch.factors.items()}
    return columns, int(rows - bad.sum())


def _kept(value: Column, mask: pa.Array) -> Column:
    if is_scalar(value) or isinstance(value, dict):
        return value
    return (value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value)).filter(
        mask
    )
