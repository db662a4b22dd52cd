"""sysstat's database form: ``sadf -d``, with any of sar's activities.

Each block begins with a header that names its fields. Rates become counts of their interval;
interfaces (without lo) and disks are summed; of the CPUs the sum and the busiest are kept.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from unruly.errors import IngestError
from unruly.ingest.activity import SECOND_NS, Samples
from unruly.ingest.model import Batch, Format, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

HEADER: Final = "# hostname;interval;timestamp"
ALL_CPUS: Final = ("-1", "all")
SHARES: Final = {
    "%user": "cpu_user_share",
    "%usr": "cpu_user_share",
    "%nice": "cpu_user_share",
    "%system": "cpu_system_share",
    "%sys": "cpu_system_share",
    "%iowait": "cpu_iowait_share",
    "%steal": "cpu_steal_share",
    "%soft": "cpu_softirq_share",
}
RATES: Final = {
    "cswch/s": ("context_switches", 1.0),
    "majflt/s": ("major_faults", 1.0),
    "pswpin/s": ("swap_in_pages", 1.0),
    "pswpout/s": ("swap_out_pages", 1.0),
    "pgscand/s": ("direct_reclaim_pages", 1.0),
    "retrans/s": ("tcp_retransmits", 1.0),
    "rtps": ("disk_reads", 1.0),
    "wtps": ("disk_writes", 1.0),
    "bread/s": ("disk_read_bytes", 512.0),
    "bwrtn/s": ("disk_written_bytes", 512.0),
    "rxpck/s": ("network_received_packets", 1.0),
    "txpck/s": ("network_sent_packets", 1.0),
    "rxkB/s": ("network_received_bytes", 1024.0),
    "txkB/s": ("network_sent_bytes", 1024.0),
    "rxerr/s": ("network_errors", 1.0),
    "txerr/s": ("network_errors", 1.0),
    "rxdrop/s": ("network_drops", 1.0),
    "txdrop/s": ("network_drops", 1.0),
    "coll/s": ("network_collisions", 1.0),
    "squeezd/s": ("softnet_squeezes", 1.0),
}
LEVELS: Final = {
    "kbmemused": ("memory_used_bytes", 1024.0),
    "kbswpused": ("swap_used_bytes", 1024.0),
    "runq-sz": ("run_queue_length", 1.0),
    "aqu-sz": ("disk_queue_length", 1.0),
    "avgqu-sz": ("disk_queue_length", 1.0),
}
STAMP: Final = re.compile(r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?: UTC)?$", re.ASCII)


def _recognises(sample: Sample) -> bool:
    return any(line.startswith(HEADER) for line in sample.lines)


def _read(source: Source, options: Options) -> Iterator[Batch]:
    del options
    names: list[str] = []
    samples = Samples()
    for number, line in source.lines():
        if line.startswith(HEADER):
            names = [name.split("[")[0].strip() for name in line.lstrip("# ").split(";")]
            continue
        if "LINUX-RESTART" in line or "COM" in line.split(";")[3:4]:
            continue
        source.complaints.lines += 1
        fields = [part.strip() for part in line.split(";")]
        try:
            if len(fields) < len(names):
                raise ValueError(f"{len(fields)} fields where {len(names)} are named")
            _add(samples, source, dict(zip(names, fields, strict=False)))
        except ValueError as error:
            source.complaints.refuse(number, str(error))
    if not samples.held:
        raise IngestError(
            source.where,
            "has no sample that is kept",
            "CPU, memory, disk, network",
            "sadf -d -- -A",
        )
    yield from samples.batches()


def _add(samples: Samples, source: Source, row: dict[str, str]) -> None:
    interval = float(row["interval"])
    if interval <= 0:
        raise ValueError(f"interval is {row['interval']}")
    ended = _stamp_ns(source, row["timestamp"])
    span = (ended - round(interval * SECOND_NS), ended)
    cpu = row.get("CPU")
    if cpu is not None and cpu not in ALL_CPUS:
        if "%idle" in row:
            samples.largest(span, "cpu_busiest_share", 1 - float(row["%idle"]) / 100)
        return
    # lo is no network, and a partition is part of a disk that is counted already
    if row.get("IFACE") == "lo":
        return
    for name, text in row.items():
        if name in SHARES and cpu is not None:
            samples.add(span, SHARES[name], float(text) / 100)
        elif name in RATES:
            column, scale = RATES[name]
            samples.add(span, column, float(text) * scale * interval)
        elif name in LEVELS:
            column, scale = LEVELS[name]
            samples.add(span, column, float(text) * scale)
        elif name == "fault/s":
            minor = float(text) - float(row.get("majflt/s") or 0)
            samples.add(span, "minor_faults", minor * interval)
        elif name == "%util" and "DEV" in row:
            samples.add(span, "disk_time_ns", float(text) / 100 * interval * SECOND_NS)


def _stamp_ns(source: Source, text: str) -> int:
    if text.isdecimal():
        return int(text) * SECOND_NS
    found = STAMP.match(text)
    if found is None:
        raise ValueError(f"timestamp is {text!r}")
    if not text.endswith("UTC"):
        source.lacks("sar's times name no zone and are taken as UTC")
    instant = datetime.fromisoformat(f"{found[1]}T{found[2]}").replace(tzinfo=UTC)
    return int(instant.timestamp()) * SECOND_NS


FORMAT: Final = Format(
    "sar",
    "sysstat, as sadf -d writes it",
    "context",
    ("hostname;interval;timestamp", "%iowait"),
    _recognises,
    _read,
)
