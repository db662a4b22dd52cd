"""The exposition for Prometheus, in its text format 0.0.4."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from unruly.live.metrics import histograms, metrics

if TYPE_CHECKING:
    from unruly.live.metrics import Labels
    from unruly.live.state import State

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HISTOGRAM: Final = "unruly_response_seconds"


def exposition(state: State) -> str:
    """Return every metric of the state as Prometheus reads it.

    Examples
    --------
    >>> from unruly.live.state import State
    >>> exposition(State()).splitlines()[-1]
    'unruly_run_ended 0'
    """
    lines = [
        f"# HELP {HISTOGRAM} Response times of measured requests that succeeded.",
        f"# TYPE {HISTOGRAM} histogram",
    ]
    for it in histograms(state):
        bounds = [*map(_number, it.bounds_s), "+Inf"]
        for bound, count in zip(bounds, [*it.up_to, it.n], strict=True):
            labels = _labels((*it.labels, ("le", bound)))
            lines.append(f"{HISTOGRAM}_bucket{labels} {count}")
        lines.append(f"{HISTOGRAM}_sum{_labels(it.labels)} {_number(it.sum_s)}")
        lines.append(f"{HISTOGRAM}_count{_labels(it.labels)} {it.n}")
    for metric in metrics(state):
        name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in metric.values]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
