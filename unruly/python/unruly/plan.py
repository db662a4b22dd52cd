"""The plan of a run, with the factors of each cell applied: the only reader of ``plan.toml``.

The runner keeps the plan as it resolved it, with every default written out. A cell of a matrix has
factors, such as ``mesh.regroup`` = ``10s``, and a factor replaces the value of the plan. Analyses
ask `Plan.cell` for the settings of one cell and never see the value that the matrix replaced.

A setting is ``None`` where neither the factors nor the plan have it, where the run has no plan,
and where this version does not understand the value. The parser of the runner has refused every
wrong plan before the run, so that reading one raises no error.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from unruly.quantity import parse_bandwidth, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FILE: Final = "plan.toml"
CLOSED: Final = "closed"
PERIOD: Final = "period"
"""The key of ``[quota]`` that is no process: how often the CPU time is given anew."""
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class CellPlan:
    """The settings that held in one cell; the absent-value policy is that of the module."""

    factors: Mapping[str, str] = field(default_factory=dict)
    """The level of each factor by its key, as the plan writes it; empty without a matrix."""
    duration_ns: int | None = None
    """``run.duration``: the measured time of one trial."""
    warmup_ns: int | None = None
    """``run.warmup``: the time under load before it."""
    regroup_ns: int | None = None
    """``mesh.regroup``: the time after which groups are drawn anew."""
    reply_timeout_ns: int | None = None
    """``mesh.timeout``: how long an agent waits for a reply."""
    store: str | None = None
    """``drive.store``: the service of the repository that is driven."""
    trace_url: str | None = None
    """``drive.trace_url``: where a trace can be looked at, with ``{trace_id}``."""
    spans: str | None = None
    """``drive.spans``: where the run received the spans of services."""
    arrivals: str | None = None
    """``drive.arrivals``: ``constant``, ``poisson``, ``closed`` and so on."""
    clients: int | None = None
    """``drive.clients``."""
    dispersion: float | None = None
    """``drive.dispersion``: the index of dispersion that its bursts were to have."""
    ramp: str | None = None
    """``drive.ramp``: the stages of a load that changes."""
    is_stream: bool = False
    """True if the load of the plan is a stream."""
    protocol: str | None = None
    """``stream.protocol``: how messages travel."""
    link_bps: float | None = None
    """``stream.link`` in bit/s; ``None`` for a link without a limit, too."""
    competing: str | None = None
    """``compete.kind``: ``none``, ``cpu`` or ``gc``."""
    occupancy: float | None = None
    """``compete.occupancy``: the share of the cores that the competing load holds, 0 to 1."""
    quotas: Mapping[str, float] = field(default_factory=dict)
    """The most CPU time of each process that has a quota, in cores."""
    pins: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The CPUs of each process that is kept to some."""

    @property
    def is_closed_loop(self) -> bool:
        """True if a request follows a reply, so that requests are no arrivals.

        The writer of a stream hands over its next message when the last one was taken.
        """
        return self.is_stream or self.arrivals == CLOSED

    @property
    def measured_ns(self) -> tuple[int, int] | None:
        """Begin and end of measurement, in ns since the load began; None without a duration."""
        if self.duration_ns is None:
            return None
        before = self.warmup_ns or 0
        return before, before + self.duration_ns

    def quota(self, process: str) -> float:
        """Return the most CPU time of a process, in cores; infinity without a quota."""
        return self.quotas.get(process, float("inf"))

    def pinned(self, process: str, *, of_service: bool = False) -> frozenset[int]:
        """Return the CPUs that a process is kept to; empty where it may use all.

        A process of the service has those of ``service`` if it has none of its own.
        """
        common = self.pins.get("service", frozenset()) if of_service else frozenset[int]()
        return self.pins.get(process, common)


@dataclass(frozen=True)
class Plan:
    """The plan of a run: the settings that all cells share, and those of each cell."""

    slo: tuple[str, ...] = ()
    """``run.slo``: the targets, as the plan writes them."""
    goodput: str | None = None
    """``run.goodput``: the limits of a good request, as the plan writes them."""
    cells: Mapping[str, CellPlan] = field(default_factory=dict)
    """The settings of each cell of the manifest, by its name and in the order of the plan."""
    base: CellPlan = field(default_factory=CellPlan)
    """The settings without any factor."""

    @classmethod
    def read(cls, run: Path, factors: Mapping[str, Mapping[str, str]]) -> Plan:
        """Read the plan that is kept with a run.

        Parameters
        ----------
        run : Path
            The directory of the run.
        factors : mapping
            The factors of each cell, by its name: the level of each key.

        Returns
        -------
        Plan
            A plan without a file, or with one that cannot be read, has the factors alone.
        """
        return cls.of(_tables(run / FILE), factors)

    @classmethod
    def of(cls, tables: Mapping[str, Any], factors: Mapping[str, Mapping[str, str]]) -> Plan:
        """Return the plan of TOML tables that are parsed already."""
        cells = {name: _cell(tables, own) for name, own in factors.items()}
        held = _value(tables, {}, "run.slo")
        slo = tuple(str(it) for it in held) if isinstance(held, list) else ()
        limits = _read(_value(tables, {}, "run.goodput"), str)
        return cls(slo, limits, cells, _cell(tables, {}))

    def cell(self, name: str) -> CellPlan:
        """Return the settings of a cell; of one that is unknown, those without any factor."""
        return self.cells.get(name, self.base)


def of_file(file: Path) -> Plan:
    """Return the plan of a file as a person writes it, without defaults and without cells.

    A file that is missing, or cannot be read, is a plan without settings.
    """
    return Plan.of(_tables(file), {})


def problems(run: Path, sha256: str) -> list[str]:
    """Return a sentence if the plan in the directory of a run is not the one that ran.

    Parameters
    ----------
    run : Path
        The directory of the run.
    sha256 : str
        The checksum of the plan in the manifest; with an empty one nothing is checked.
    """
    file = run / FILE
    try:
        found = file.read_bytes() if file.is_file() else None
    except OSError:
        found = None
    if not sha256 or (found is not None and hashlib.sha256(found).hexdigest() == sha256):
        return []
    what = "is missing" if found is None else "is not as it was written"
    return [f"{FILE} {what}, so that nobody knows the targets of this run"]


def _tables(file: Path) -> dict[str, Any]:
    """Return the tables of a plan; none where it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        return tomllib.loads(text)
    except (OSError, ValueError, RecursionError):
        return {}


def _cell(tables: Mapping[str, Any], factors: Mapping[str, str]) -> CellPlan:
    """Return the settings of a cell with these factors."""

    def setting(key: str, read: Callable[[str], _Value]) -> _Value | None:
        return _read(_value(tables, factors, key), read)

    return CellPlan(
        factors=dict(factors),
        duration_ns=setting("run.duration", parse_duration),
        warmup_ns=setting("run.warmup", parse_duration),
        regroup_ns=setting("mesh.regroup", parse_duration),
        reply_timeout_ns=setting("mesh.timeout", parse_duration),
        store=setting("drive.store", str),
        trace_url=setting("drive.trace_url", str),
        spans=setting("drive.spans", str),
        arrivals=setting("drive.arrivals", str),
        clients=setting("drive.clients", int),
        dispersion=setting("drive.dispersion", float),
        ramp=setting("drive.ramp", str),
        is_stream="stream" in tables,
        protocol=setting("stream.protocol", str),
        link_bps=setting("stream.link", lambda text: float(parse_bandwidth(text))),
        competing=setting("compete.kind", str),
        occupancy=setting("compete.occupancy", float),
        quotas=_quotas(tables, factors),
        pins={
            process: frozenset(int(cpu) for cpu in cpus if isinstance(cpu, int))
            for process, cpus in _table(tables, "pin").items()
            if isinstance(cpus, list)
        },
    )


def _quotas(tables: Mapping[str, Any], factors: Mapping[str, str]) -> dict[str, float]:
    swept = [key.partition(".") for key in factors]
    names = [*_table(tables, "quota"), *(name for table, _, name in swept if table == "quota")]
    names = [name for name in names if name != PERIOD]
    found = {name: _read(_value(tables, factors, f"quota.{name}"), float) for name in names}
    return {name: cores for name, cores in found.items() if cores is not None}


def _value(tables: Mapping[str, Any], factors: Mapping[str, str], key: str) -> Any:
    """Return the value of a key such as ``stream.link``: its factor, else that of the plan."""
    if key in factors:
        return factors[key]
    table, _, name = key.partition(".")
    return _table(tables, table).get(name)


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    held = tables.get(name)
    return held if isinstance(held, dict) else {}


def _read(value: Any, read: Callable[[str], _Value]) -> _Value | None:
    try:
        return None if value is None else read(str(value))
    except ValueError:
        return None
