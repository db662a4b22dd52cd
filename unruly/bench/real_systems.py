"""Real systems under a light load, for real faults: three stores, and a group of agents.

The processes of a store have core 0 and the load generator core 1, so that a fault of the one does
not take the CPU time of the other. A group has both cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DURATION_S: Final = 15
WARMUP_S: Final = 2
PROBE_MS: Final = 100
"""A cause that lasts less than half of it fills no sample, and stays unseen."""

_DRIVE: Final = """
name = "causes-real"
seed = {seed}
[run]
duration = "{duration}s"
warmup = "{warmup}s"
[drive]
store = "{store}"
clients = 8
rate = "{rate}/s"
keys = 5000
value = "1000B"
operations = "write"
timeout = "5s"
scheduling = "realtime"
{level}
[probe]
period = "{probe}ms"
[pin]
drive-0 = [1]
{pins}
"""

_MESH: Final = """
name = "causes-real"
seed = {seed}
[run]
duration = "{duration}s"
warmup = "{warmup}s"
[mesh]
agents = 5
groups = [5]
period = "15ms"
workloads = ["null"]
{more}
[probe]
period = "{probe}ms"
"""

REDIS_SYNCED: Final = """
about = "Redis, one server, each write on its disk"
url = "redis://{{ processes.redis[0].front }}:{{ processes.redis[0].port }}"
version = ["redis-server", "--version"]
programs = ["redis-server"]
packages = ["redis-server"]
[[process]]
name = "redis"
count = 1
command = [
    "redis-server", "--bind", "{{ host }}", "--port", "{{ port }}", "--save", "",
    "--appendonly", "yes", "--appendfsync", "always", "--dir", "{{ folder }}",
]
"""

IN_MEMORY_GROUP: Final = """
about = "{name}, in a control group of memory"
url = "{name}://{{{{ processes.{name}[0].front }}}}:{{{{ processes.{name}[0].port }}}}"
version = ["{program}", "--version"]
programs = ["{program}"]
packages = ["{package}"]
[[process]]
name = "{name}"
count = 1
command = ["/bin/sh", "-c", "echo $$ > {group}/cgroup.procs; exec {command}"]
"""
GROUPED: Final = {
    "redis": (
        "redis-server", "redis-server",
        "redis-server --bind {{ host }} --port {{ port }} --save '' --dir {{ folder }}",
    ),
    "memcached": (
        "memcached", "memcached",
        "memcached -u root -l {{ host }} -p {{ port }} -U 0 -t 1 -m 256",
    ),
}  # fmt: skip
"""The program, its Debian package and its command, of stores in a control group of memory."""


@dataclass(frozen=True)
class System:
    """A system that a run starts, and the names of its processes."""

    name: str
    servers: tuple[str, ...]
    store: str = ""
    """The service of a drive; empty for a group of agents."""
    rate_hz: int = 0
    service: str = ""
    """The text of a service file of its own."""
    mesh: str = ""
    """Further keys of a group's plan."""
    level: str = ""
    """How many servers answer each request, where a client can choose."""

    @property
    def target(self) -> str:
        """The process that faults hit: the second of several, else the only one."""
        return self.servers[min(1, len(self.servers) - 1)]

    def plan(self, seed: int, faults: str) -> str:
        """Return the text of the plan of one run."""
        common = {"seed": seed, "duration": DURATION_S, "warmup": WARMUP_S, "probe": PROBE_MS}
        if not self.store:
            return _MESH.format(more=self.mesh, **common) + faults
        pins = "\n".join(f"{name} = [0]" for name in self.servers)
        level = f'level = "{self.level}"' if self.level else ""
        text = _DRIVE.format(store=self.store, rate=self.rate_hz, level=level, pins=pins, **common)
        return text + faults


def _numbered(name: str, many: int) -> tuple[str, ...]:
    return tuple(f"{name}-{number}" for number in range(1, many + 1))


def grouped(name: str, group: str) -> System:
    """Return a store whose only process runs in a control group of memory."""
    program, package, command = GROUPED[name]
    text = IN_MEMORY_GROUP.format(
        name=name, program=program, package=package, command=command, group=group
    )
    return System(f"{name}-grouped", _numbered(name, 1), "./service.toml", 1_000, text)


REDIS = System("redis", _numbered("redis", 1), "redis", 1_000)
SYNCED = System("redis-synced", _numbered("redis", 1), "./service.toml", 500, REDIS_SYNCED)
ETCD = System("etcd", _numbered("etcd", 3), "etcd", 500)
FLURRY = System("flurry", _numbered("flurry", 3), "flurry", 1_000, level="all")
ON_DISK = System("flurry-disk", _numbered("flurry", 3), "flurry-disk", 500, level="all")
AGENTS = System("agents", tuple(f"agent-{number}" for number in range(5)))
JVMS = System(
    "agents-jvm",
    AGENTS.servers,
    mesh='runtime = "jvm"\n[jvm]\ncollector = "serial"\nheap = "256MiB"',
)
