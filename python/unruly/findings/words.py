"""Metrics of ``resources`` in words, and numbers as people read them."""

from __future__ import annotations

from typing import Final

METRIC_WORDS: Final[dict[str, str]] = {
    "cpu_user_share": "user time of the CPUs",
    "cpu_system_share": "kernel time of the CPUs",
    "cpu_iowait_share": "time the CPUs waited for disks",
    "cpu_steal_share": "time stolen by other guests of the machine",
    "cpu_softirq_share": "time in soft interrupts",
    "cpu_busiest_share": "load of the busiest CPU",
    "cpu_frequency_hz": "clock frequency of the CPUs",
    "run_queue_length": "length of the run queue",
    "context_switches": "context switches",
    "psi_cpu_some_ns": "time in which some task lacked a CPU",
    "psi_cpu_full_ns": "time in which all tasks lacked a CPU",
    "psi_memory_some_ns": "time in which some task lacked memory",
    "psi_memory_full_ns": "time in which all tasks lacked memory",
    "psi_io_some_ns": "time in which some task waited for a disk",
    "psi_io_full_ns": "time in which all tasks waited for a disk",
    "memory_used_bytes": "memory in use",
    "swap_used_bytes": "swap in use",
    "swap_in_pages": "pages swapped in",
    "swap_out_pages": "pages swapped out",
    "direct_reclaim_pages": "pages reclaimed directly",
    "disk_reads": "disk reads",
    "disk_writes": "disk writes",
    "disk_read_bytes": "bytes read from disk",
    "disk_written_bytes": "bytes written to disk",
    "disk_time_ns": "time the disk was busy",
    "disk_write_time_ns": "time spent writing to disk",
    "disk_queue_length": "length of the disk queue",
    "network_received_bytes": "bytes received",
    "network_sent_bytes": "bytes sent",
    "network_received_packets": "packets received",
    "network_sent_packets": "packets sent",
    "network_errors": "network errors",
    "network_drops": "packets dropped",
    "network_collisions": "collisions",
    "tcp_retransmits": "TCP retransmissions",
    "listen_drops": "connections dropped for want of backlog",
    "softnet_squeezes": "times the network softirq ran out of budget",
    "cgroup_throttled_periods": "periods throttled by the CPU quota",
    "cgroup_throttled_ns": "time throttled by the CPU quota",
    "cgroup_memory_limit_events": "times the memory limit was hit",
    "minor_faults": "minor page faults",
    "major_faults": "major page faults",
    "run_queue_wait_ns": "time waiting for a CPU",
    "user_ns": "CPU time of its own",
    "system_ns": "CPU time in the kernel",
    "rss_bytes": "resident memory",
    "voluntary_switches": "voluntary context switches",
    "involuntary_switches": "involuntary context switches",
    "threads": "threads",
    "gc_count": "garbage collections",
    "gc_ns": "time in garbage collection",
}

_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_LONG = (("d", 86400e9), ("h", 3600e9), ("min", 60e9))


def named(labels: list[str], most: int = 3) -> str:
    """List some names, and how many more there are.

    Examples
    --------
    >>> named(["a", "b"]), named(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    rest = len(labels) - most
    return ", ".join(labels[:most]) + (f" and {rest} more" if rest > 0 else "")


def latency(ns: float | None, digits: int = 3) -> str:
    """Write a latency with a unit that fits: 0.42 ms rather than 420000.

    Examples
    --------
    >>> latency(421_337.0), latency(None), latency(62e6)
    ('0.421 ms', '-', '62.0 ms')
    """
    if ns is None or ns != ns:  # noqa: PLR0124 - NaN
        return "-"
    for unit, size in _UNITS:
        if ns >= size or unit == "ns" or (unit == "ms" and ns >= size / 10):
            return f"{_digits(ns / size, digits)} {unit}"
    raise AssertionError(ns)


def duration(ns: float | None) -> str:
    """Write a length of time.

    Examples
    --------
    >>> duration(20e9), duration(6e11)
    ('20 s', '10 min')
    """
    if ns is None or ns != ns:  # noqa: PLR0124 - NaN
        return "-"
    for unit, size in _LONG:
        if ns >= 2 * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else latency(ns)


def count(number: float) -> str:
    """Write a count with separators.

    Examples
    --------
    >>> count(1234567)
    '1,234,567'
    """
    return f"{int(number):,}"


def percent(share: float | None) -> str:
    """Write a share.

    Examples
    --------
    >>> percent(0.123), percent(0.00042), percent(1.0)
    ('12.3 %', '0.042 %', '100 %')
    """
    if share is None or share != share:  # noqa: PLR0124 - NaN
        return "-"
    digits = _digits(100 * share, 3)
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def nearly(share: float) -> str:
    """Write a share that is close to all with as many nines as tell it from all.

    Examples
    --------
    >>> nearly(0.99999), nearly(0.999987), nearly(0.5), nearly(1.0)
    ('99.999 %', '99.9987 %', '50 %', '100 %')
    """
    if share >= 1:
        return "100 %"
    places = max(1, 1 - int(f"{100 * (1 - share):e}".split("e")[1]))
    return f"{100 * share:.{places}f}".rstrip("0").rstrip(".") + " %"


def about(number: float) -> str:
    """Write a count that is only roughly known, rounded up.

    Examples
    --------
    >>> about(368887), about(42)
    ('370,000', '42')
    """
    step = 10 ** max(0, len(str(int(number))) - 2)
    return count(-(-int(number) // step) * step)


def rate(hz: float) -> str:
    """Write a load.

    Examples
    --------
    >>> rate(20000.0), rate(1234.5)
    ('20,000/s', '1,234/s')
    """
    return f"{hz:,.0f}/s" if hz >= 10 else f"{hz:.3g}/s"


def _digits(value: float, digits: int) -> str:
    """Significant digits without an exponent."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - int(f"{abs(value):e}".split("e")[1]))
    return f"{value:.{places}f}"
