"""Rules about the run as a whole: its end, its rows, its failures, its timestamps."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from unruly.base import worked
from unruly.base.model import Finding
from unruly.base.rule import Rule
from unruly.base.worked import failure_step, kinds_words
from unruly.quantity import NS_PER_S, count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from unruly.base.analysis import Analysis


CLOCKS_APART_NS: Final = 100e6
"""Clocks that are further apart mix what happened at different times."""


def _nothing_measured(analysis: Analysis) -> Iterator[Finding]:
    """The run has no measured request.

    Example: nothing was measured

    Raised: The run has no row outside its warm-up.

    Means: No number can be given. The run was shorter than its warm-up, nothing could be sent, or
    the wrong directory was copied.

    Next: Look at `logs/` in the run directory and at `missing` in the summary. Then run it again
    for longer than the warm-up.

    Numbers: `conservation.rows` and `conservation.by_status` in `summary.json`.
    """
    if analysis.cells:
        return
    yield Finding(
        "nothing-measured",
        "trust",
        "spoils",
        0,
        "nothing was measured",
        "The run has no measured row: it ended before the warm-up did, or nothing was sent.",
        {"rows": analysis.conservation.rows, "by_status": analysis.conservation.by_status},
        "Look at logs/ in the run directory, then run it again for longer than its warm-up.",
    )


def _rows_dropped(analysis: Analysis) -> Iterator[Finding]:
    """Some requests were sent but not recorded.

    Example: 7 rows were dropped

    Raised: The manifest's count `dropped` is above 0.

    Means: The recorder could not keep these rows. Its buffer was full because the thread behind it
    was too slow, or the disk was full or broken; `logs/` then has the error. The lost rows most
    likely belong to the very stalls that make the tail, so a percentile of the remaining rows is
    too low. This spoils the run, and `unruly gate` refuses it.

    Next: Look in `logs/` for a disk error. Otherwise lower the rate, or give the recorder a faster
    disk.

    Numbers: `self_distrust.dropped` and `conservation.copies` in `summary.json`.
    """
    dropped = analysis.self_distrust.dropped
    if not dropped:
        return
    scheduled = (analysis.conservation.copies or {}).get("scheduled", 0)
    share = dropped / scheduled if scheduled else None
    yield Finding(
        "rows-dropped",
        "trust",
        "spoils",
        1,
        f"{count(dropped)} rows were dropped",
        f"{count(dropped)} rows ({percent(share)}) were not recorded, because the recorder's "
        "buffer or "
        f"its disk was full. Most likely they belong to the slow requests.",
        {"dropped": dropped, "scheduled": scheduled},
        "Look in logs/ for a disk error. Otherwise lower the rate, or use a faster disk.",
    )


def _run_incomplete(analysis: Analysis) -> Iterator[Finding]:
    """A process that measures ended before its time, so rows are missing.

    Example: drive-0 was killed by signal 9 (SIGKILL) before its time

    Raised: The manifest's status is `incomplete`: a process that measures died or could not write,
    and no fault of the plan had killed it. The finding is also raised when a segment of the run
    cannot be read.

    Means: The missing rows most likely belong to slow requests, so every percentile is too low. The
    finding names the process, its signal and the time. In an open loop it also reports how many
    requests were scheduled until then and have no row. `unruly gate` ends with code 2: such a run
    is an error and not a measurement.

    Next: Find out what ended the process. Signal 9 often comes from the kernel's out-of-memory
    killer (`dmesg`), and signal 25 from a limit on the size of files (`ulimit -f`). The log of the
    process is in `logs/`. Then repeat the run.

    Numbers: `status`, `doubts` and `conservation` in `summary.json`; the process is in the evidence
    of the finding.
    """
    broken = analysis.run.broken
    if analysis.run.status != "incomplete" and not broken:
        return
    yield Finding(
        "run-incomplete",
        "trust",
        "spoils",
        0,
        broken[0] if broken else "a process that measures did not end properly",
        ("; ".join(broken) or "The manifest says no more")
        + (
            ". What it lost are most likely the slow requests, so every percentile is too low."
            if analysis.run.status == "incomplete"
            else ". What cannot be read is missing from the analysis."
        ),
        {"status": analysis.run.status, "broken": broken},
        "Find out what ended it (memory, a limit, a full disk: its log is in logs/), and repeat "
        "the run.",
    )


def _run_cut_off(analysis: Analysis) -> Iterator[Finding]:
    """The runner died before the end of the run.

    Example: the run was cut off

    Raised: The manifest's status is `cut off`, or still `running`.

    Means: The analysis uses the rows that were already written. At most the last second of each
    process is missing. The conservation counts are not checked.

    Next: Judge it as a shorter run, or run it again.

    Numbers: `status`, `measured_ns` and `missing` in `summary.json`.
    """
    if analysis.run.status not in ("cut off", "running"):
        return
    missing = analysis.run.missing
    yield Finding(
        "run-cut-off",
        "trust",
        "warns",
        3,
        "the run was cut off",
        "The runner died before the end. The analysis uses the rows that were written; "
        + ("; ".join(missing) if missing else "at most the last second of rows is missing")
        + ".",
        {"status": analysis.run.status, "missing": missing},
        "Judge it as a shorter run, or run it again.",
    )


def _run_stopped(analysis: Analysis) -> Iterator[Finding]:
    """Somebody ended the run early.

    Example: the run was asked to end early

    Raised: The manifest's status is `stopped`.

    Means: All rows are there, and the counts hold. The results are valid for the measured time.

    Next: Do nothing if the run was long enough: the promise and its blind spot already use the
    shorter length. Otherwise `unruly run PLAN --resume DIR` measures the trials that are left.

    Numbers: `status` and `measured_ns` in `summary.json`; the planned time is in the evidence of
    the finding.
    """
    if analysis.run.status != "stopped":
        return
    measured = analysis.measured_ns
    planned = analysis.run.manifest.get("planned_ns")
    yield Finding(
        "run-stopped",
        "trust",
        "informs",
        4,
        "the run was asked to end early",
        f"It measured for {duration(measured)} of the {duration(planned)} planned. Its results are "
        f"valid for that time.",
        {"planned_ns": planned, "measured_ns": measured},
        "If this was too short, `unruly run PLAN --resume DIR` measures the rest.",
    )


def _run_resumed(analysis: Analysis) -> Iterator[Finding]:
    """The run was interrupted and resumed.

    Example: the run was measured in 2 parts

    Raised: The manifest has more than one part, because `unruly run --resume` continued the run.
    The finding warns if a later part was measured on another host or with another version.

    Means: Each trial was measured from its start to its end in one part. The trials of a repeat may
    lie on both sides of a gap, in which the host may have changed its state. A difference between
    two cells can then be a difference between two parts.

    Next: Compare the cells repeat by repeat, and leave out the repeats that span a gap if they
    stand out. Measure again without a gap if the finding warns.

    Numbers: The lengths of the gaps and the changes are in the evidence of the finding. The
    manifest has the times of each part and each trial.
    """
    parts = [it for it in analysis.run.manifest.get("parts") or [] if isinstance(it, dict)]
    if len(parts) < 2:
        return
    changed = [str(it) for part in parts for it in part.get("changed") or []]
    pairs = list(pairwise(parts))
    gaps = [_gap_ns(before, after) for before, after in pairs]
    boots = sum(before.get("boot") != after.get("boot") for before, after in pairs)
    known = [gap for gap in gaps if gap is not None]
    longest = f" The longest gap was {duration(max(known))}." if known else ""
    restarts = f" The host was started again {count(boots)} times." if boots else ""
    differ = f" Between the parts, {'; '.join(changed)}." if changed else ""
    yield Finding(
        "run-resumed",
        "trust",
        "warns" if changed else "informs",
        4,
        f"the run was measured in {count(len(parts))} parts",
        f"It was interrupted and resumed.{longest}{restarts}{differ}",
        {"parts": len(parts), "gaps_ns": gaps, "restarts": boots, "changed": changed},
        "Compare cells within one repeat, and measure again without a gap if the host has changed.",
    )


def _gap_ns(before: dict[str, Any], after: dict[str, Any]) -> int | None:
    """Return the time between two parts, or ``None`` if the first runner died before it knew."""
    ended, started = before.get("ended_ns"), after.get("started_ns")
    if not isinstance(ended, int) or not isinstance(started, int):
        return None
    return max(started - ended, 0)


def _failures(analysis: Analysis) -> Iterator[Finding]:
    """Some requests failed.

    Example: 18 of 3,600 requests failed

    Raised: At least one measured request was not answered well.

    Means: A failed request counts as slower than every answered one, by an unknown amount. It
    counts in `n` and ranks last. The mean, the standard deviation, the maximum and every percentile
    that falls among the failures are absent. `mean_ok` and `max_ok` leave failures out.

    A run of which more than {worked.FAILED_MOST:percent} failed did not work: the verdict begins
    with "No".

    Next: The verdict lists the failures by kind, and the finding suggests where to look for the
    most frequent kind. In a notebook, `analysis.outliers` has the first 500 failed requests with
    their times.

    Numbers: `worked` (`failed`, `share`, `kinds`) and `statuses` in `summary.json`.
    """
    found = analysis.worked
    if not found.failed:
        return
    failed = {analysis.label(row): row.failed for row in analysis.responses if row.failed}
    yield Finding(
        "failures",
        "trust",
        "warns",
        5,
        f"{count(found.failed)} of {count(found.requests)} requests failed",
        f"{kinds_words(found.kinds, most=8)}. A failed request counts as slower than every "
        "answered one. So there is no mean, and no percentile that falls among the failures.",
        {"failed": failed, "by_status": dict(found.kinds)},
        failure_step(found),
    )


def _load_in_stages(analysis: Analysis) -> Iterator[Finding]:
    """The load changed during the run, as its plan asked.

    Example: the load changed in stages (10s:50, 20s:50)

    Raised: The plan of a cell has `drive.ramp`.

    Means: Every percentile is of all stages together, so it says nothing about a single level, and
    a promise holds only for the same stages. The figure over time shows each level by itself.

    Next: Measure each level in a cell of its own: without `drive.ramp`, and with a matrix of
    `drive.rate` or `drive.clients`.

    Numbers: The stages of each cell are in the evidence of the finding.
    """
    stages = {name: cell.ramp for name, cell in analysis.run.plan.cells.items() if cell.ramp}
    if not stages:
        return
    shown = ", ".join(dict.fromkeys(stages.values()))
    yield Finding(
        "load-in-stages",
        "trust",
        "informs",
        300,
        f"the load changed in stages ({shown})",
        "Every percentile is of all stages together. It says nothing about a single level.",
        {"ramp": stages},
        "Measure each level in a cell of its own: without drive.ramp, and with a matrix of "
        "drive.rate or drive.clients.",
    )


def _times_made_up(analysis: Analysis) -> Iterator[Finding]:
    """The imported source has no timestamps.

    Example: the source has no timestamps

    Raised: The run is imported from a source whose rows have no time, such as a column of values or
    a matrix of round trips.

    Means: The import places the rows one after another in the order of the file, each as long as
    its own duration. The quantiles are correct. Drift, stalls and rare events cannot be judged.
    Intervals and promises hold only if the file has its rows in the order in which they were
    measured.

    Next: Import the column with the times as well: `unruly import FILE --value COLUMN --time
    COLUMN`.

    Numbers: The names of these cells are in the evidence of the finding.
    """
    cells = sorted({row.cell for row in analysis.responses} & analysis.run.timeless)
    if not cells:
        return
    yield Finding(
        "times-made-up",
        "trust",
        "warns",
        9,
        "the source has no timestamps",
        "Its rows are placed one after another in the order of the file. Drift and bursts cannot "
        "be detected. Every interval assumes that this order is the order of time.",
        {"cells": cells},
        "Import the column with the timestamps as well (--time), if there is one.",
    )


def _rows_merged(analysis: Analysis) -> Iterator[Finding]:
    """The rows of the run were merged into histograms, to save room.

    Example: the rows were merged into histograms

    Raised: A standing agent has merged the rows of this run (`unruly standing --keep` and
    `--room`).

    Means: Each response time is known within the 0.5 % of a bin, and count, minimum, mean and
    maximum are exact. How late the load generator was had been counted before, so the run is as
    trustworthy as it was. The times of single requests are gone: nothing explains slow requests. If
    the run was analysed before, its `summary.json` has the causes until the next analysis replaces
    it.

    Next: Collect runs while their rows are there (`unruly collect`), or keep rows for longer.

    Numbers: `conservation` in `summary.json`; the time of the merger is in the evidence of the
    finding.
    """
    merged = analysis.run.merged
    if merged is None:
        return
    at = datetime.fromtimestamp(int(merged.get("at_ns") or 0) / NS_PER_S, UTC)
    yield Finding(
        "rows-merged",
        "trust",
        "warns",
        8,
        "the rows were merged into histograms",
        f"A standing agent merged them on {at:%Y-%m-%d}. Each response time is known within 0.5 %. "
        "The times of single requests are gone, so nothing explains slow requests.",
        {"at_ns": merged.get("at_ns"), "requests": merged.get("requests")},
        "Collect runs while their rows are there (unruly collect), or keep rows for longer "
        "(unruly standing --keep).",
    )


def _cells_left_out(analysis: Analysis) -> Iterator[Finding]:
    """Some cells of the matrix could not be measured.

    Example: part of the matrix was left out

    Raised: The manifest names cells or systems that this host could not measure: a middleware
    system whose programs are missing, or two parameters that exclude each other.

    Means: The other cells were measured as planned, and their results are valid. Nothing is known
    of the cells that were left out.

    Next: Install what the sentence names, and measure again. Impossible cells need nothing.

    Numbers: `left_out` in `summary.json`.
    """
    left_out = analysis.run.left_out
    if not left_out:
        return
    yield Finding(
        "cells-left-out",
        "trust",
        "warns",
        4,
        "part of the matrix was left out",
        "; ".join(left_out) + ".",
        {"left_out": left_out},
        "Install the missing programs, and measure again.",
    )


def _clocks_compared(analysis: Analysis) -> Iterator[Finding]:
    """The load came from several hosts, and their clocks were compared.

    Example: the clocks of 2 hosts were compared

    Raised: The run reached other hosts. It asks each of them for its clock once a second.

    Means: The difference of two clocks lies within the interval: a question left before the other
    host read its clock, and the answer came after. One host alone times each request, so response
    times do not depend on the difference. The times of day of rows from different hosts do: two
    events on two hosts that are closer than the difference may have happened in the other order.
    No row is corrected. Causes, faults, recoveries and rates put the times of several hosts beside
    one another, so the finding warns if a difference may be more than {CLOCKS_APART_NS:duration},
    or if a clock was set while the run measured. Streams are put on one time line by the middle of
    the interval, and have no bandwidth if it is wider than that.

    Next: Let all hosts keep the same time (NTP or PTP), if a picture over time is of interest.

    Numbers: The bounds of each host are in the evidence of the finding.
    """
    hosts = analysis.run.manifest.get("hosts") or []
    clocks = {str(host["name"]): host["clock"] for host in hosts if host.get("clock")}
    if not clocks:
        return
    were_set = [name for name, clock in clocks.items() if clock["steps"]]
    apart_ns = max(max(abs(it["low_ns"]), abs(it["high_ns"])) for it in clocks.values())
    if any(it.get("kind") == "writer" for it in analysis.run.manifest.get("processes") or []):
        # streams are put on one time line, which is as wrong as the bounds are wide
        apart_ns = max(it["high_ns"] - it["low_ns"] for it in clocks.values())
    far = (
        f" Causes, faults, recoveries and rates put their times beside one another, and may be "
        f"wrong by {duration(apart_ns)}."
        if apart_ns > CLOCKS_APART_NS
        else ""
    )
    told = "; ".join(f"{name}: {ahead(clock)}" for name, clock in clocks.items())
    was_set = f" The clock of {', '.join(were_set)}, or this host's, was set." if were_set else ""
    yield Finding(
        "clocks-compared",
        "trust",
        "warns" if were_set or far else "informs",
        310,
        f"the clocks of {count(len(clocks))} hosts were compared",
        f"Difference to the clock of this host: {told}. No response time depends on it."
        f"{far}{was_set}",
        {"clocks": clocks},
        "Let all hosts keep the same time (NTP or PTP), if times of day are of interest.",
    )


def ahead(clock: Mapping[str, Any]) -> str:
    """Return the bounds of a clock's difference in words: "2.1 ms to 2.6 ms ahead"."""
    low_ns, high_ns = clock["low_ns"], clock["high_ns"]
    low, high = duration(abs(low_ns)), duration(abs(high_ns))
    if low_ns >= 0:
        return f"{low} to {high} ahead"
    if high_ns <= 0:
        return f"{high} to {low} behind"
    return f"{low} behind to {high} ahead"


RULES: Final = (
    Rule("nothing-measured", "trust", ("spoils",), _nothing_measured),
    Rule("rows-dropped", "trust", ("spoils",), _rows_dropped),
    Rule("run-incomplete", "trust", ("spoils",), _run_incomplete),
    Rule("run-cut-off", "trust", ("warns",), _run_cut_off),
    Rule("run-stopped", "trust", ("informs",), _run_stopped),
    Rule("rows-merged", "trust", ("warns",), _rows_merged),
    Rule("cells-left-out", "trust", ("warns",), _cells_left_out),
    Rule("run-resumed", "trust", ("warns", "informs"), _run_resumed),
    Rule("failures", "trust", ("warns",), _failures, (worked,)),
    Rule("load-in-stages", "trust", ("informs",), _load_in_stages),
    Rule("times-made-up", "trust", ("warns",), _times_made_up),
    Rule("clocks-compared", "trust", ("warns", "informs"), _clocks_compared),
)
