"""``summary.json``: the analysis as JSON, valid against unruly/schema/summary.schema.json."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unruly.stats import Interval

if TYPE_CHECKING:
    from pathlib import Path

    from unruly.findings import Analysis
    from unruly.findings.steadiness import Steadiness

SCHEMA = 1
FILE = "summary.json"


def summary(analysis: Analysis) -> dict[str, Any]:
    """Return the analysis as plain JSON values.

    Parameters
    ----------
    analysis : Analysis
        As `unruly.analyse` gives it.

    Returns
    -------
    dict
        Valid against ``unruly/schema/summary.schema.json``. What cannot be said is null, and its
        reason stands under the same name in ``absent``.
    """
    slow, found = analysis.slow_nodes, analysis.correlations
    document = {
        "schema": SCHEMA,
        "run": analysis.run.id,
        "name": analysis.run.name,
        "tag": analysis.run.tag,
        "status": analysis.run.status,
        "measured_ns": analysis.measured_ns,
        "worked": _worked(analysis),
        "statuses": [_flat(it) for it in analysis.statuses],
        "connections": _flat(analysis.connections) if analysis.connections else None,
        "trustworthy": analysis.trustworthy,
        "doubts": analysis.doubts,
        "cells": [_deep(cell) for cell in analysis.cells],
        "groups": [_flat(group) for group in analysis.groups],
        "slow_nodes": {
            **_windows(analysis),
            "factor": analysis.options.factor,
            "percentile": analysis.options.percentile,
            "floor_ns": analysis.options.floor_ns,
            "windows": slow.windows,
            "left_out": slow.left_out,
            "least_rows": slow.least_rows,
            "jaccard_mean": slow.jaccard_mean,
            "named": [_flat(node) for node in slow.named],
            "histogram": slow.histogram.to_dict("records"),
            "sensitivity": slow.sensitivity.to_dict("records"),
        },
        "correlations": {
            "paired_share": found.paired_share,
            "largest_distance_ns": found.largest_distance_ns,
            "unit": found.unit,
            "note": found.note,
            "metrics": [_flat(row) for row in found.rows],
        },
        "decomposition": analysis.decomposition.to_dict("records"),
        "self_distrust": _self_distrust(analysis),
        "magical": _magical(analysis),
        "over_time": _over_time(analysis),
        "arrival_log": _arrival_log(analysis),
        "causes": _causes(analysis),
        "stores": _stores(analysis),
        "streams": _streams(analysis),
        "runtimes": _deep(analysis.runtimes) if analysis.runtimes else None,
        "findings": [_flat(finding) for finding in analysis.findings],
        "conservation": asdict(analysis.conservation),
        "missing": analysis.run.missing,
    }
    plain: dict[str, Any] = _plain(document)
    return plain


def write_summary(analysis: Analysis) -> Path | None:
    """Write summary.json into the run directory, whole or not at all; None when it is read-only."""
    path = analysis.run.path / FILE
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    text = json.dumps(summary(analysis), indent=1, allow_nan=False) + "\n"
    try:
        # a new file: a link of that name may lead anywhere
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        return None
    return path


def _windows(analysis: Analysis) -> dict[str, Any]:
    """Return the window of the slow nodes in ns, and that of each cell where they differ."""
    options = analysis.options
    found: dict[str, Any] = {"window_ns": options.window_ns}
    if len(set(options.windows_ns.values())) > 1:
        found["cell_windows_ns"] = dict(options.windows_ns)
    return found


def _worked(analysis: Analysis) -> dict[str, Any]:
    found = analysis.worked
    kinds = [{"status": status, "count": number} for status, number in found.kinds]
    return {**asdict(found), "kinds": kinds}


def _self_distrust(analysis: Analysis) -> dict[str, Any]:
    doubt = analysis.self_distrust
    kept = {field.name: getattr(doubt, field.name) for field in fields(doubt)}
    return {**kept, "processes": doubt.processes.to_dict("records")}


def _magical(analysis: Analysis) -> dict[str, Any] | None:
    view = analysis.magical
    if view is None:
        return None
    return {
        "cells": [_flat(cell) for cell in view.cells],
        "systems": view.systems,
        "factors": view.factors,
        "explained": [
            {
                "measure": it.measure,
                "observations": it.observations,
                "reason": it.reason,
                "effects": [_flat(effect) for effect in it.effects],
            }
            for it in view.explained
        ],
        "p99_on_mean": {system: _flat(line) for system, line in view.lines.items()},
        "count_against_size": _flat(view.count_against_size) if view.count_against_size else None,
        "resources": [_flat(row) for row in view.resources],
        "notes": view.notes,
    }


def _over_time(analysis: Analysis) -> dict[str, Any] | None:
    view = analysis.over_time
    if view is None:
        return None
    return {
        "note": view.note,
        "rows": [
            {
                "cell": row.cell,
                "op": row.op,
                "throughput_hz": _flat(row.throughput) if row.throughput else None,
                "dispersion": _flat(row.dispersion) if row.dispersion else None,
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
                    **_flat(it.recoveries),
                    "faults": [_flat(one) for one in it.recoveries.faults],
                }
                if it.recoveries
                else None,
                "absent": it.absent,
            }
            for it in view.recoveries
        ],
        "warm_ups": [_flat(it) for it in view.warm_ups],
    }


def _arrival_log(analysis: Analysis) -> dict[str, Any] | None:
    view = analysis.arrival_log
    if view is None:
        return None
    return {"note": view.note, "rows": [_deep(row) for row in view.rows]}


def _causes(analysis: Analysis) -> dict[str, Any] | None:
    view = analysis.causes
    if view is None:
        return None
    rows = [_deep(row) for row in view.rows]
    return {"note": view.note, "left_out": list(view.left_out), "rows": rows}


def _stores(analysis: Analysis) -> dict[str, Any] | None:
    view = analysis.stores
    if view is None:
        return None
    return {
        "target": _flat(view.target),
        "tails": [_deep(row) for row in view.tails],
        "faults": [_flat(row) for row in view.faults],
        "loads": [_flat(row) for row in view.loads],
        "ramps": [
            {"series": it.series, "cells": [load.cell for load in it.loads], **_deep(it.knee)}
            for it in view.ramps
        ],
        "scalings": [
            {
                "factor": it.factor,
                "series": it.series,
                "cells": [load.cell for load in it.loads],
                "levels": it.levels,
            }
            for it in view.scalings
        ],
    }


def _streams(analysis: Analysis) -> dict[str, Any] | None:
    view = analysis.streams
    if view is None:
        return None
    return {
        "note": view.note,
        "rows": [
            {
                **_deep(row),
                "quantiles_bps": {str(p): value for p, value in row.quantiles_bps.items()},
            }
            for row in view.rows
        ],
        "legs": [_flat(leg) for leg in view.legs],
        "hypotheses": [_deep(it) for it in view.hypotheses],
    }


def _changes(row: Steadiness) -> list[dict[str, Any]] | None:
    if row.changes is None or row.changes.abstained:
        return None
    pairs = zip(row.changes.points, row.changed_ns, strict=True)
    return [{"at_ns": at, **_flat(point)} for point, at in pairs]


def _flat(value: Any) -> dict[str, Any]:
    """A dataclass as a dict, with intervals as their own keys; ranks only where there are some."""
    flat = {}
    for item in fields(value):
        held = getattr(value, item.name)
        flat[item.name] = _interval(held) if isinstance(held, Interval) else held
    return flat


def _deep(value: Any) -> Any:
    """A dataclass of dataclasses as dicts and lists."""
    if isinstance(value, tuple):
        return [_deep(held) for held in value]
    if is_dataclass(value) and not isinstance(value, Interval | type):
        return {name: _deep(held) for name, held in _flat(value).items()}
    return value


def _interval(interval: Interval) -> dict[str, Any]:
    flat = asdict(interval)
    if interval.low_rank is None and interval.high_rank is None:
        del flat["low_rank"], flat["high_rank"]
    return flat


def _plain(value: Any) -> Any:
    """Turn numpy scalars, NaN and tuples into what JSON has."""
    if isinstance(value, dict):
        return {str(key): _plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
