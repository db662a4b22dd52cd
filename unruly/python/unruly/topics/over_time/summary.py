"""What this topic says in ``summary.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.plain import flat

if TYPE_CHECKING:
    from unruly.topics.over_time.statistics import OverTime, Steadiness


def summary(view: OverTime) -> dict[str, Any]:
    """Return what the topic says, as JSON values."""
    return {
        "note": view.note,
        "rows": [
            {
                "cell": row.cell,
                "op": row.op,
                "throughput_hz": flat(row.throughput) if row.throughput else None,
                "dispersion": flat(row.dispersion) if row.dispersion else None,
                "changes": _changes(row),
                "absent": row.absent,
            }
            for row in view.rows
        ],
        "recoveries": [
            {
                "cell": it.cell,
                "repeat": it.repeat,
                "process": it.process,
                "fault_ns": list(it.fault_ns),
                "recoveries": {
                    **flat(it.recoveries),
                    "faults": [flat(one) for one in it.recoveries.faults],
                }
                if it.recoveries
                else None,
                "absent": it.absent,
            }
            for it in view.recoveries
        ],
        "warm_ups": [flat(it) for it in view.warm_ups],
    }


def _changes(row: Steadiness) -> list[dict[str, Any]] | None:
    if row.changes is None or row.changes.abstained:
        return None
    pairs = zip(row.changes.points, row.changed_ns, strict=True)
    return [{"at_ns": at, **flat(point)} for point, at in pairs]
