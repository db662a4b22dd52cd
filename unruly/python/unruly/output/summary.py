"""``summary.json``: the analysis as JSON, valid against unruly/schema/summary.schema.json."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unruly.base.plain import deep, flat
from unruly.topics.registry import TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from unruly.base.analysis import Analysis

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
        "statuses": [flat(it) for it in analysis.statuses],
        "connections": flat(analysis.connections) if analysis.connections else None,
        "trustworthy": analysis.trustworthy,
        "doubts": analysis.doubts,
        "cells": [deep(cell) for cell in analysis.cells],
        "groups": [flat(group) for group in analysis.groups],
        "slow_nodes": {
            **_windows(analysis),
            "factor": analysis.options.factor,
            "percentile": analysis.options.percentile,
            "floor_ns": analysis.options.floor_ns,
            "windows": slow.windows,
            "left_out": slow.left_out,
            "least_rows": slow.least_rows,
            "jaccard_mean": slow.jaccard_mean,
            "named": [flat(node) for node in slow.named],
            "histogram": slow.histogram.to_dict("records"),
            "sensitivity": slow.sensitivity.to_dict("records"),
        },
        "correlations": {
            "paired_share": found.paired_share,
            "largest_distance_ns": found.largest_distance_ns,
            "unit": found.unit,
            "note": found.note,
            "metrics": [flat(row) for row in found.rows],
        },
        "decomposition": analysis.decomposition.to_dict("records"),
        "self_distrust": _self_distrust(analysis),
        **_topics(analysis),
        "findings": [flat(finding) for finding in analysis.findings],
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


def _topics(analysis: Analysis) -> dict[str, Any]:
    """Return what each topic says, in the order of the registry; null where it does not apply."""
    found: dict[str, Any] = {}
    for topic in TOPICS:
        model = analysis.topics.get(topic.name)
        found[topic.name] = None if model is None else topic.summary(model)
    return found


def _self_distrust(analysis: Analysis) -> dict[str, Any]:
    doubt = analysis.self_distrust
    kept = {field.name: getattr(doubt, field.name) for field in fields(doubt)}
    return {**kept, "processes": doubt.processes.to_dict("records")}


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
