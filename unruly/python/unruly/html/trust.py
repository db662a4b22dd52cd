"""Tables about the measurement itself: statuses, our load generator, processes and hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unruly.base.rules_run import ahead
from unruly.base.worked import kind_name
from unruly.drawing import format
from unruly.drawing.document import Datum, Table, number, table, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unruly.drawing.view import View

TREATMENT = {
    "ok": "counted with its latency",
    "timeout": "censored: counts in n as slower than every reply",
    "refused": "failed: counts in n as slower than every reply",
    "shed": "over our own bound of requests in flight; counts as slower than every reply",
    "unfinished": "censored at the end of the run: counts as slower than every reply",
    "error": "failed: counts in n as slower than every reply",
    "wrong": "a reply with a wrong body; counts as failed",
    "behind": "a copy that lagged; counts as failed",
    "stale": "a copy for an older request; counts as failed",
    "lost": "a copy that never arrived; counts as slower than every reply",
}
NOT_RECORDED = "not recorded on this host"


def status_table(view: View) -> Table | None:
    """Return the rows by status, each with how it is treated."""
    counted = view.analysis.conservation
    if not counted.by_status:
        return None
    total = sum(counted.by_status.values())
    rows = [
        [
            text("answered" if status == "ok" else kind_name(status)),
            number(format.count(n)),
            number(format.share(n / total) if total else format.DASH, "no rows"),
            text(
                TREATMENT.get(
                    status.split(":")[0], "failed: counts in n as slower than every reply"
                )
            ),
        ]
        for status, n in sorted(
            counted.by_status.items(), key=lambda pair: (pair[0] != "ok", -pair[1])
        )
    ]
    return table(
        ["status", "replies", "share", "how it is treated"],
        rows,
        "Every reply, and every reply that never came",
        counted.sentence,
    )


def code_table(view: View) -> Table | None:
    """Return the status codes of the replies; None where they have none."""
    found = view.analysis.statuses
    if not found:
        return None
    several = len({it.cell for it in found}) > 1
    rows = [
        [
            *([text(it.cell)] if several else []),
            text(it.op),
            number(str(it.code), strong=not it.expected),
            number(format.count(it.count)),
            text("success" if it.expected else "failure"),
        ]
        for it in found
    ]
    connections = view.analysis.connections
    note = connections.sentence if connections else ""
    columns = [*(["cell"] if several else []), "operation", "status code", "replies", "counts as"]
    return table(columns, rows, "Status codes of the replies", f"{note}." if note else "")


def _absent(view: View) -> str:
    """Return why a figure about our own side is missing."""
    run = view.analysis.run
    if run.merged:
        return "removed when the rows were merged"
    return "the source does not say" if run.foreign else NOT_RECORDED


def self_table(view: View) -> Table:
    """Return what the measuring side did to the measurement."""
    d = view.analysis.self_distrust
    lag, sampler = d.send_lag_ns, d.sampler_lag_ns
    absent = _absent(view)

    def row(name: str, shown: str, why: str, reason: str = absent) -> list[Datum]:
        return [text(name), number(shown, reason), text(why)]

    rows = [
        row("send delay, p99", format.duration(lag.get("p99")), "how late our generator sent"),
        row("send delay, maximum", format.duration(lag.get("max")), "its worst moment"),
        row(
            "slowest 1 % explained by send delay",
            format.share(d.tail_explained_share),
            f"of {format.plural(d.tail_rows, 'reply', 'replies')} beyond the p99",
            absent if view.analysis.run.keeps_bins_alone else "no replies beyond the p99",
        ),
        *(
            row(
                f"{it.what} read late",
                format.share(it.share),
                f"of {format.count(it.n)}; the longest wait was {format.duration(it.longest_ns)}",
            )
            for it in d.unread
        ),
        row("replies stamped by the kernel", format.share(d.kernel_stamp_share), "client side"),
        row(
            "requests stamped by the kernel",
            format.share(d.server_kernel_stamp_share),
            "server side",
        ),
        row(
            "sampler late, p99",
            format.duration(sampler.get("p99")),
            f"its period is {format.span(d.sampler_period_ns)}"
            if d.sampler_period_ns
            else "of the resource probe",
        ),
        row(
            "rows dropped by the recorder",
            format.count(d.dropped),
            "0 means that every reply is here",
        ),
        row(
            "CPU stolen by the hypervisor, mean",
            format.share(d.steal_share_mean),
            "time that the host was not ours",
        ),
        row("CPU stolen, worst sample", format.share(d.steal_share_max), ""),
        row(
            "time somebody waited for a CPU", format.share(d.psi_cpu_share), "pressure (PSI), some"
        ),
        row(
            "time somebody waited for a disk", format.share(d.psi_io_share), "pressure (PSI), some"
        ),
        row(
            "time somebody waited for memory",
            format.share(d.psi_memory_share),
            "pressure (PSI), some",
        ),
    ]
    return table(["what", "value", "meaning"], rows, "What our own side did to the measurement")


def process_table(view: View) -> Table | None:
    """Return how much each measuring process waited and used."""
    frame = view.analysis.self_distrust.processes
    if frame.empty:
        return None
    rows = [
        [
            text(r["process"]),
            number(format.share(r["run_queue_wait_share"]), NOT_RECORDED),
            number(format.share(r["cpu_share"]), NOT_RECORDED),
            number(format.size(r["rss_bytes_max"]), NOT_RECORDED),
        ]
        for r in frame.head(64).to_dict("records")
    ]
    return table(
        ["process", "waited for a CPU", "CPU used", "memory, most"], rows, "The measuring processes"
    )


def throttled_table(view: View) -> Table | None:
    """Return how long a CPU limit held each process back, for each cell."""
    frame = view.analysis.self_distrust.throttled
    if frame.empty:
        return None
    rows = [
        [
            text(r["cell"]),
            text(r["process"]),
            number(format.duration(r["throttled_ns"]), NOT_RECORDED),
            number(format.share(r["share"]), NOT_RECORDED),
        ]
        for r in frame.head(64).to_dict("records")
    ]
    return table(
        ["cell", "process", "time throttled", "share of the time"],
        rows,
        "Processes that a CPU limit held back",
    )


def host_table(view: View) -> Table | None:
    """Return each host's facts."""
    hosts = view.analysis.run.manifest.get("hosts") or []
    if not hosts:
        return None
    rows = [_host(host) for host in hosts[:64]]
    head = ["host", "CPU", "cores", "kernel", "clock", "virtual", "memory", "noise floor"]
    if any(host.get("clock") for host in hosts):
        head.append("clock, beside this host's")
        for row, host in zip(rows, hosts, strict=False):
            clock = host.get("clock")
            row.append(text(ahead(clock)) if clock else Datum(format.DASH, "its own", number=False))
    return table(head, rows, "The hosts")


def _host(host: Mapping[str, Any]) -> list[Datum]:
    unknown = "the host does not report it"
    virtual = {True: "yes", False: "no"}.get(host.get("virtualised"), format.DASH)  # type: ignore[arg-type]
    return [
        text(host.get("name") or "?"),
        _known(host.get("cpu_model")),
        number(format.count(host.get("cores")), unknown),
        _known(host.get("kernel")),
        _known(host.get("clock_source")),
        Datum(virtual, unknown if virtual == format.DASH else "", number=False),
        number(format.size(host.get("memory_bytes")), unknown),
        number(format.duration(host.get("noise_floor_ns")), unknown),
    ]


def _known(value: object) -> Datum:
    if value:
        return text(value)
    return Datum(format.DASH, "the host does not report it", number=False)
