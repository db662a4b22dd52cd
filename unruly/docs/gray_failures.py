"""Write the tables of Flurry's page gray-failures.md from the summary of a run that is kept.

Run ``make pages``. As a program it writes the picture of the page anew, beside the page.

The run is of the plan ``gray-failures``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import altair as alt
import kept
import vl_convert
from kept import number, table
from stores import doubts

KEPT: Final = "2026-11-30-intel-2core/side-by-side/gray-failures.summary.json"
PAGE: Final = Path(__file__).resolve().parents[2] / "flurry" / "docs" / "gray-failures.md"
PICTURE: Final = PAGE.with_suffix(".png")
MS: Final = 1e6
EDGE_MS: Final = 5_000.0
"""The right edge of the picture, where failures stand."""
STORES: Final = {
    "flurry-disk": "Flurry", "redis-replicated-disk": "Redis + WAIT", "etcd-3.7": "etcd",
    "cassandra": "Cassandra",
}  # fmt: skip
REPLICAS: Final = {
    "flurry-disk": "flurry-2", "redis-replicated-disk": "redis-2", "etcd-3.7": "etcd-follower",
    "cassandra": "cassandra-2",
}  # fmt: skip
LEADERS: Final = {
    "flurry-disk": "controller", "redis-replicated-disk": "redis-1", "etcd-3.7": "etcd-leader",
}  # fmt: skip
KINDS: Final = {
    "kill": "killed", "stop": "stopped", "quota": "slow", "network": "lossy network",
    "disk": "disk stalled",
}  # fmt: skip
HEAD: Final = [
    "ms", "requests due", "failed", "p50", "p99", "p99.9", "longest silence",
    "replies without a write",
]  # fmt: skip


def written(page: str) -> str:
    """Return the page with its tables as the kept summary has them."""
    found = kept.read(KEPT)
    return kept.filled(
        page,
        {
            "gray trust": doubts(found),
            "gray free": free(found),
            "gray replica": faults(found, REPLICAS),
            "gray leader": faults(found, LEADERS),
        },
    )


def ms(value: float | None) -> str:
    """Nanoseconds as milliseconds of three digits."""
    return "-" if value is None else number(value / MS)


def store_of(cell: str) -> str:
    """Return the service that a cell starts."""
    return cell.partition("=")[2]


def level(found: dict[str, Any] | None) -> str:
    """Return a level with its interval over the trials; "failed" where it falls among those."""
    if found is None:
        return "-"
    if found["estimate"] is None:
        return "failed"
    if found["low"] is None or found["high"] is None:
        return f"{ms(found['estimate'])}, or failed"
    return f"{ms(found['estimate'])} [{ms(found['low'])}, {ms(found['high'])}]"


def faults(found: dict[str, Any], victims: dict[str, str]) -> str:
    """A row for each fault of these processes and each store, faults in the order of `KINDS`."""
    rows = {
        (it["kind"].removeprefix("fault "), store_of(it["cell"])): it
        for it in found["stores"]["faults"]
        if it["process"] == victims.get(store_of(it["cell"]))
    }
    lines = [
        fault(f"{word}: {STORES[store]}", rows[kind, store])
        for kind, word in KINDS.items()
        for store in STORES
        if (kind, store) in rows
    ]
    return table(HEAD, lines)


def fault(name: str, row: dict[str, Any]) -> list[str]:
    """The numbers of a fault."""
    each = row["each"]
    return [
        name,
        f"{row['due']:,}",
        f"{row['failed']:,}",
        *(level(each.get(name)) for name in ("p50", "p99", "p99_9")),
        ms(row["gap_ns"]),
        f"{row['lost']:,}",
    ]


def free(found: dict[str, Any]) -> str:
    """A row for each store without a fault."""
    rows = {store_of(it["cell"]): it for it in found["stores"]["faults"]}
    lines = [
        [STORES[store], f"{it['free']:,}", ms(it["free_p50"]), ms(it["free_p99"])]
        for store in STORES
        for it in [rows[store]]
    ]
    return table(["ms", "requests", "p50", "p99"], lines)


def points(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the picture shows: the p99 of each store in each fault, ms; None if failed."""
    rows = []
    for victims, whose in ((REPLICAS, "replica"), (LEADERS, "leader")):
        held = {
            (it["kind"].removeprefix("fault "), store_of(it["cell"])): it
            for it in found["stores"]["faults"]
            if it["process"] == victims.get(store_of(it["cell"]))
        }
        for kind, word in KINDS.items():
            for store, name in STORES.items():
                if (kind, store) not in held:
                    continue
                p99 = held[kind, store]["each"]["p99"]
                values = {end: p99[end] and p99[end] / MS for end in ("estimate", "low", "high")}
                rows.append({"fault": f"{whose}: {word}", "store": name, **values})
    return rows


def picture(found: dict[str, Any]) -> Any:
    """Return the picture of the page: one row a fault, one mark a store."""
    rows = points(found)
    failed = [{**it, "estimate": EDGE_MS} for it in rows if it["estimate"] is None]
    known = [it for it in rows if it["estimate"] is not None]
    order = list(dict.fromkeys(it["fault"] for it in rows))
    scale = alt.Scale(type="log", domain=[0.8, EDGE_MS * 1.3])
    axis = alt.Axis(values=[1, 10, 100, 1000], format=",d", grid=True, domain=False)
    x = alt.X("estimate:Q", scale=scale, axis=axis, title="p99 during the fault, ms")
    y = alt.Y("fault:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, ticks=False))
    names = list(STORES.values())
    offset = alt.YOffset("store:N", sort=names, scale=alt.Scale(paddingInner=0.2))
    colours = ["#0b6aa8", "#c8500f", "#5b7f2b", "#7a5195"]
    colour = alt.Color(
        "store:N", scale=alt.Scale(domain=names, range=colours), sort=names,
        legend=alt.Legend(title=None, orient="top", symbolType="circle"),
    )  # fmt: skip
    base = alt.Chart(alt.Data(values=known)).encode(y=y, yOffset=offset, color=colour)
    lines = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    marks = base.mark_point(filled=True, size=60, opacity=1).encode(x=x)
    crosses = alt.Chart(alt.Data(values=failed)).encode(y=y, yOffset=offset, color=colour)
    crosses = crosses.mark_point(shape="cross", angle=45, filled=True, size=90, opacity=1)
    chart = alt.layer(lines, marks, crosses.encode(x=x)).properties(
        width=620, height=10 * 46,
        title=alt.Title(
            "A cross: more than 1 % failed in most of the faults, so that there is no p99",
            fontWeight="normal", fontSize=12, anchor="start",
        ),
    )  # fmt: skip
    return chart.configure_view(stroke=None).configure_axis(labelFontSize=12, titleFontSize=12)


if __name__ == "__main__":
    PICTURE.write_bytes(vl_convert.vegalite_to_png(picture(kept.read(KEPT)).to_dict(), scale=1.5))
