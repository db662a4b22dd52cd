"""JSON with an object for each request: lines, or an array; fields by their paths.

``--value request.duration_ms`` names a field inside another one, and ``--value times.0`` the first
element of a list. A time is the start of its row, unless ``--time-is end``.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from unruly.errors import IngestError
from unruly.ingest.columns import REACH_NS
from unruly.ingest.model import BATCH_ROWS, UNITS_NS, Format, Options, Requests
from unruly.ingest.objects import first_objects, objects
from unruly.ingest.outcomes import OK, SIGNS, Outcomes
from unruly.ingest.table import FLAGS, NONE, unit_of
from unruly.ingest.tabular import ZONELESS, check_times, moments_ns, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

STATUSES: Final = ("status", "status_code", "statusCode", "http_status", "code")
NOBODY: Final = object()


def looks_like(sample: Sample) -> bool:
    """Return whether a file begins as JSON does."""
    return sample.text.lstrip()[:1] in ("{", "[")


def has_field(sample: Sample, path: str) -> bool:
    """Return whether one of the first objects has a field at this path."""
    return any(_at(it, path) is not NOBODY for it in first_objects(sample))


def paths(found: dict[str, Any], within: str = "") -> Iterator[str]:
    """Yield the path of each field of an object that holds a text or a number."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from paths(value, f"{within}{name}.")
        elif isinstance(value, str | int | float):
            yield f"{within}{name}"


def _at(found: Any, path: str) -> Any:
    """The value at a path; `NOBODY` where there is none."""
    for name in path.split("."):
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return NOBODY
    return found


def _read(source: Source, options: Options) -> Iterator[Requests]:
    first = first_objects(source.sample)
    value = options.value
    if value is None or not first:
        raise IngestError(
            source.where, "does not say which field holds latencies", "--value PATH", _hint(first)
        )
    asked = [("--value", value), ("--time", options.time), ("--op", options.op)]
    asked += [("--status", options.status), *(("--factor", it) for it in options.factors)]
    for flag, path in asked:
        if path not in (None, NONE) and all(_at(it, str(path)) is NOBODY for it in first):
            raise IngestError(
                source.where, f"has no field {path!r} for {flag}", "a path", _hint(first)
            )
    unit = options.unit or unit_of(value.rsplit(".", 1)[-1])
    if unit is None:
        wanted = "--unit ns, us, ms or s"
        raise IngestError(
            source.where,
            f"field {value!r} does not say its unit",
            wanted,
            "look at how it was made",
        )
    source.unit = unit
    time = None if options.time in (None, NONE) else options.time
    numeric = time is not None and isinstance(_at(first[0], time), int | float)
    if numeric and options.time_unit is None:
        raise IngestError(
            source.where,
            f"field {time!r} holds numbers and does not say their unit",
            "--time-unit ns, us, ms or s",
            f"--time-unit s, or --time {NONE} to do without times",
        )
    check_times(source, options, time)
    outcomes = _outcomes(source, outcomes_of(options), first)
    rows = objects(source)
    while held := list(islice(rows, BATCH_ROWS)):
        yield from _batch(source, options, held, (value, UNITS_NS[unit], time, outcomes))


def _outcomes(source: Source, asked: Outcomes, first: list[dict[str, Any]]) -> Outcomes:
    """Return how rows say whether they failed; by default by a field with a status of HTTP.

    Raises
    ------
    IngestError
        When the first objects hold no field of a condition.
    """
    for it in asked.conditions:
        if any(_at(one, it.column) is not NOBODY for one in first):
            continue
        # a field such as "error" may stand in few objects
        source.lacks(f"the first {len(first)} objects have no field {it.column} for --failed-if")
        if it.sign in SIGNS:
            raise IngestError(
                source.where, f"has no field {it.column!r} for --failed-if", "a path", _hint(first)
            )
    if asked.columns:
        return asked
    status = next((it for it in STATUSES if any(_is_status(_at(one, it)) for one in first)), None)
    if status is not None:
        source.lacks(f"the field {status} was read as the status of HTTP")
    return Outcomes(status, doubtful="error:failed")


def _hint(first: list[dict[str, Any]]) -> str:
    known = list(islice(paths(first[0]), 12)) if first else []
    return f"its fields are {', '.join(known)}" if known else "an object for each request"


def _is_status(value: Any) -> bool:
    return str(value).isdecimal() and 100 <= int(value) <= 599


def _batch(
    source: Source,
    options: Options,
    held: list[tuple[int, dict[str, Any]]],
    how: tuple[str, int, str | None, Outcomes],
) -> Iterator[Requests]:
    value, unit_ns, time, outcomes = how
    asked = {
        name: pa.array([_text(_at(it, name)) for _, it in held], pa.string())
        for name in outcomes.columns
    }
    status, unclear = outcomes.of(source.where, asked, len(held))
    reasons = [(mask, f"{column} is {reason}") for mask, column, reason in unclear]
    kept: list[tuple[int, dict[str, Any], int | None, str]] = []
    for place, ((line, it), ended) in enumerate(zip(held, status.to_pylist(), strict=True)):
        told, found = next((why for mask, why in reasons if mask[place]), None), _at(it, value)
        taken = _ns(found, unit_ns)
        # a request that failed may have no duration: no reply came
        silent = ended != OK and (found is NOBODY or found is None or found == "")
        if told is None and not silent and (taken is None or taken < 0):
            told = f"{value} is no duration"
        if told is not None:
            source.complaints.refuse(line, told)
        else:
            kept.append((line, it, taken, ended))
    started = None
    if time is not None:
        started, bad = _times(source, [_at(it, time) for _, it, _, _ in kept], options)
        for (line, _, _, _), wrong in zip(kept, bad, strict=True):
            if wrong:
                source.complaints.refuse(line, f"{time} is no time")
        kept = [it for it, wrong in zip(kept, bad, strict=True) if not wrong]
        started = started[~bad]
        if options.time_is == "end":
            started = started - np.array([taken or 0 for _, _, taken, _ in kept], np.int64)
    if kept:
        yield _requests(options, value, kept, started)


def _requests(
    options: Options,
    value: str,
    kept: list[tuple[int, dict[str, Any], int | None, str]],
    started: Any,
) -> Requests:
    found = [it for _, it, _, _ in kept]
    return Requests(
        duration_ns=pa.array([taken for _, _, taken, _ in kept], pa.int64()),
        started_ns=started,
        op=[_text(_at(it, options.op)) for it in found] if options.op else value,
        status=[ended for _, _, _, ended in kept],
        factors={name: [_text(_at(it, name)) for it in found] for name in options.factors},
        line=np.array([line for line, _, _, _ in kept]),
    )


def _ns(value: Any, unit_ns: int) -> int | None:
    """A number of units in ns; None for one that is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, int):
        found = value * unit_ns
    else:
        try:
            number = float(value)
        except ValueError:
            return None
        if not math.isfinite(number):
            return None
        found = round(number * unit_ns)
    return found if abs(found) < REACH_NS else None


def _times(source: Source, values: list[Any], options: Options) -> tuple[Any, Any]:
    if options.time_unit is not None:
        found = [_ns(it, UNITS_NS[options.time_unit]) for it in values]
        bad = np.array([it is None for it in found], bool)
        return np.array([it or 0 for it in found], np.int64), bad
    texts = pa.array([it if isinstance(it, str) else None for it in values], pa.string())
    at, bad, zoned = moments_ns(texts)
    if not zoned:
        source.lacks(ZONELESS)
    return at, np.asarray(bad, bool)


def _text(value: Any) -> str:
    return "" if value is NOBODY or value is None or value in ([], {}) else str(value)


FORMAT: Final = Format(
    "json",
    "JSON with an object for each request; --value names a field by its path",
    "latencies",
    ("{", '":'),
    # other formats are JSON too: --value or --format asks for this one
    lambda _: False,
    _read,
    FLAGS,
)
