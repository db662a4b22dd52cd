"""Metrics of ``resources`` in words, and lists of names."""

from __future__ import annotations

from typing import Final

METRIC_WORDS: Final[dict[str, str]] = {
    "cpu_user_share": "CPU time in user mode",
    "cpu_system_share": "CPU time in the kernel",
    "cpu_iowait_share": "CPU time spent waiting for disks",
    "cpu_steal_share": "CPU steal by other virtual machines",
    "cpu_softirq_share": "CPU time in soft interrupts",
    "cpu_busiest_share": "load of the busiest CPU",
    "cpu_frequency_hz": "clock frequency of the CPUs",
    "run_queue_length": "length of the run queue",
    "context_switches": "context switches",
    "psi_cpu_some_ns": "CPU pressure (some task waited)",
    "psi_cpu_full_ns": "CPU pressure (all tasks waited)",
    "psi_memory_some_ns": "memory pressure (some task waited)",
    "psi_memory_full_ns": "memory pressure (all tasks waited)",
    "psi_io_some_ns": "disk pressure (some task waited)",
    "psi_io_full_ns": "disk pressure (all tasks waited)",
    "memory_used_bytes": "memory in use",
    "swap_used_bytes": "swap in use",
    "swap_in_pages": "pages swapped in",
    "swap_out_pages": "pages swapped out",
    "direct_reclaim_pages": "pages reclaimed directly",
    "disk_reads": "disk reads",
    "disk_writes": "disk writes",
    "disk_read_bytes": "bytes read from disk",
    "disk_written_bytes": "bytes written to disk",
    "disk_time_ns": "disk busy time",
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
    "tcp_needless_retransmits": "TCP retransmissions of segments that had arrived",
    "listen_drops": "connections dropped because the backlog was full",
    "softnet_squeezes": "times the network softirq ran out of budget",
    "cgroup_throttled_periods": "periods throttled by the CPU limit",
    "cgroup_throttled_ns": "time throttled by the CPU limit",
    "cgroup_memory_limit_events": "times the memory limit was hit",
    "minor_faults": "minor page faults",
    "major_faults": "major page faults",
    "run_queue_wait_ns": "CPU wait",
    "user_ns": "CPU time in user mode",
    "system_ns": "CPU time in the kernel",
    "rss_bytes": "resident memory",
    "voluntary_switches": "voluntary context switches",
    "involuntary_switches": "involuntary context switches",
    "threads": "threads",
    "gc_count": "garbage collections",
    "gc_ns": "time in garbage collection",
}


def named(labels: list[str], most: int = 3) -> str:
    """List some names, and how many more there are.

    Examples
    --------
    >>> named(["a", "b"]), named(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    rest = len(labels) - most
    return ", ".join(labels[:most]) + (f" and {rest} more" if rest > 0 else "")
