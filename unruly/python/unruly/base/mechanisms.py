"""The mechanisms that can make a request slow: the evidence for each, and its words.

The list puts causes before their symptoms. A stopped process gets no CPU, so "process stopped"
comes before the wait for a CPU. A GC pause keeps a host busy. A safepoint waits for every thread,
and so for one that a CPU limit holds back. A process that gets no CPU does not read, so packets to
it are sent again. A process that caught up afterwards was busy. If several mechanisms cover a
request, the first one counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MechanismName = Literal[
    "process died",
    "process stopped",
    "gc pause",
    "disk wait",
    "cpu quota",
    "safepoint",
    "page faults",
    "lack of memory",
    "stolen cpu",
    "cpu wait",
    "lost packets",
    "busy process",
    "busy disk",
    "busy cpus",
    "send lag",
    "client kernel to user",
    "server kernel to user",
    "handler",
    "network and queue",
    "server or network",
]


@dataclass(frozen=True)
class Metric:
    """A column of ``resources``, and the floor below which it does not matter to latency.

    ``per`` is the unit of the floor: per "time" of the sample (a share), per "second" (a count), or
    the "sample" itself.
    """

    name: str
    floor: float
    per: str


@dataclass(frozen=True)
class Mechanism:
    """One way to be slow."""

    name: MechanismName
    told: str
    """What the requests did, with ``{process}`` for whom it happened to."""
    events: tuple[str, ...] = ()
    """Kinds of ``events`` that show it."""
    metrics: tuple[Metric, ...] = ()
    part: str = ""
    """The part of a request (`unruly.tables.causes.PARTS`) that must have taken the time."""
    not_where: tuple[str, ...] = ()
    """A request whose time was taken by one of these parts was not slow because of it."""
    counted_late: bool = False
    """Its counter grows when such a time ends, so that a sample between two is one of them."""
    decisive: bool = False
    """Who is so answers nobody, and hardly ever is: one such time may be enough."""


CLIENT_NOT_WHERE: Final = ("server_kernel", "handler")
"""What happens to a client alone does not make a server slow."""
SERVER_NOT_WHERE: Final = ("client_kernel",)
ANSWERED: Final = ("client_kernel", "server_kernel", "handler")
"""Parts in which no packet is under way."""

MECHANISMS: Final = (
    Mechanism(
        "process died", "went to {process}, which had died", ("process died",), decisive=True
    ),
    Mechanism(
        "process stopped", "waited while {process} was stopped", ("process stopped",),
        decisive=True,
    ),
    Mechanism(
        "gc pause", "waited for a GC pause of {process}", ("gc",),
        not_where=SERVER_NOT_WHERE,
    ),
    Mechanism(
        "disk wait", "waited while {process} waited for its disk", ("disk wait",),
        not_where=SERVER_NOT_WHERE,
    ),
    Mechanism(
        "cpu quota", "waited while {process} was throttled by its CPU limit",
        metrics=(Metric("cgroup_throttled_ns", 0.05, "time"),), counted_late=True,
        decisive=True,
    ),
    Mechanism(
        "safepoint", "waited while {process} was at a safepoint", ("safepoint",),
        not_where=SERVER_NOT_WHERE,
    ),
    Mechanism(
        "page faults", "waited while {process} read its own memory from disk",
        metrics=(Metric("major_faults", 10.0, "second"),),
    ),
    Mechanism(
        "lack of memory", "waited while {process} was short of memory",
        metrics=(
            Metric("psi_memory_some_ns", 0.05, "time"),
            Metric("direct_reclaim_pages", 100.0, "second"),
            Metric("swap_in_pages", 10.0, "second"),
            Metric("swap_out_pages", 10.0, "second"),
        ),
    ),
    Mechanism(
        "stolen cpu", "waited while other virtual machines used the CPUs of {process}",
        metrics=(Metric("cpu_steal_share", 0.05, "sample"),),
    ),
    Mechanism(
        "cpu wait", "waited while {process} waited for a CPU",
        metrics=(Metric("run_queue_wait_ns", 0.05, "time"),),
    ),
    Mechanism(
        "lost packets", "waited for lost packets of {process} to be sent again",
        metrics=(Metric("lost_segments", 1.0, "sample"),), not_where=ANSWERED,
    ),
    Mechanism(
        "busy process", "waited while {process} used most of a CPU",
        metrics=(Metric("cpu_ns", 0.5, "time"),), not_where=SERVER_NOT_WHERE,
    ),
    Mechanism(
        "busy disk", "waited while the disk of {process} was busy",
        metrics=(
            Metric("psi_io_some_ns", 0.2, "time"),
            Metric("psi_io_full_ns", 0.1, "time"),
            Metric("disk_time_ns", 0.5, "time"),
        ),
    ),
    Mechanism(
        "busy cpus", "waited while {process} had too few CPUs",
        metrics=(Metric("psi_cpu_some_ns", 0.2, "time"),),
    ),
    Mechanism("send lag", "were sent late by {process}", part="send_lag"),
    Mechanism(
        "client kernel to user", "waited in the kernel until {process} read the reply",
        part="client_kernel",
    ),
    Mechanism(
        "server kernel to user", "waited in the kernel until {process} read them",
        part="server_kernel",
    ),
    Mechanism("handler", "took {process} long to handle", part="handler"),
    Mechanism(
        "network and queue", "spent the time on the network to {process}, or in a queue",
        part="rest",
    ),
    Mechanism(
        "server or network",
        "spent the time in {process} or on the network (no time stamp separates them)",
        part="rest",
    ),
)  # fmt: skip
RANK: Final = {it.name: place for place, it in enumerate(MECHANISMS)}
BY_NAME: Final = {it.name: it for it in MECHANISMS}
SHORTAGES: Final = frozenset(metric.name for it in MECHANISMS for metric in it.metrics)
"""Metrics of which a process or a host has too little, or waits for it."""
