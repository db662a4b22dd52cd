"""An open loop of 20,000 requests a second from one thread: its lag, and its bytes a row."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from bench.program import Trace, drive, measured
from bench.result import Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 20_000
SECONDS = 20
LAG_BAR_US = 20
SIZE_BAR = 1.15


def entropy_bits(values: NDArray[np.int64]) -> float:
    """Entropy of integers, in bits a value.

    The plug-in estimate where values repeat, Vasicek's m-spacing estimate where hardly any do:
    the plug-in cannot exceed log2(n), which is too low for nanoseconds.
    """
    _, counts = np.unique(values, return_counts=True)
    n = values.size
    if counts.size < n / 20:
        share = counts / n
        return float(-(share * np.log2(share)).sum())
    m = max(1, int(np.sqrt(n)))
    ordered = np.sort(values).astype(float)
    low, high = np.arange(n) - m, np.arange(n) + m
    spacing = ordered[high.clip(max=n - 1)] - ordered[low.clip(min=0)]
    # A spacing of zero is within one nanosecond.
    return float(np.log2(np.maximum(spacing, 1.0) * n / (2 * m)).mean())


def size(trace: Trace) -> Result:
    """Bytes a row beside the entropy of the columns kept."""
    files = sorted((trace.path / "requests").glob("*.parquet"))
    table = pq.read_table(files)
    rows = table.num_rows
    columns: dict[str, dict[str, float]] = {}
    for name in table.column_names:
        stored = sum(_column_bytes(pq.ParquetFile(file), name) for file in files)
        columns[name] = {"bytes": stored / rows, "entropy_bytes": 0.0}
        column = table[name].combine_chunks()
        if column.null_count == rows:
            continue
        if name.endswith("_ns") or name == "request":
            values = column.to_numpy(zero_copy_only=False).astype(np.int64)
            columns[name]["entropy_bytes"] = entropy_bits(np.diff(values)) / 8
        else:
            values = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)[1]
            columns[name]["entropy_bytes"] = entropy_bits(values) / 8
    total = sum(path.stat().st_size for path in files) / rows
    entropy = sum(column["entropy_bytes"] for column in columns.values())
    joint = _joint_bytes(table)
    return Result(
        name="size",
        what="bytes a row, Poisson arrivals, to the entropy of the columns kept"
        " (each column's own steps, as a file of columns codes them)",
        bar=f"<= {SIZE_BAR}",
        measured=f"{total / entropy:.3f} ({total:.2f} bytes a row, entropy {entropy:.2f})",
        met=total / entropy <= SIZE_BAR,
        raw={"rows": rows, "bytes_a_row": total, "joint_entropy_bytes": joint, "columns": columns},
        why=f"with each time coded as its distance from the time before it in the same row the"
        f" entropy is {joint:.2f} bytes: seven absolute times are kept so that any reader can"
        " subtract any two, and that is what a smaller file would have to give up",
    )


def _column_bytes(file: pq.ParquetFile, name: str) -> int:
    groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema == name)


def _joint_bytes(table: object) -> float:
    """Entropy of a row when each time is known relative to the one before it."""
    order = (
        "intended_ns", "sent_ns", "server_kernel_received_ns", "server_received_ns",
        "server_sent_ns", "kernel_received_ns", "received_ns",
    )  # fmt: skip
    whole = table.select(order).drop_null()  # type: ignore[attr-defined]
    times = [whole[name].to_numpy().astype(np.int64) for name in order]
    bits = entropy_bits(np.diff(times[0]))
    bits += sum(entropy_bits(late - early) for early, late in itertools.pairwise(times))
    return bits / 8


def run() -> list[Result]:
    """Measure the lag at a constant rate and the size under Poisson arrivals."""
    arrivals = f'arrivals = "constant"\nrate = "{RATE}/s"'
    with measured(drive(duration=f"{SECONDS}s", clients=4, arrivals=arrivals)) as trace:
        [(median, p99, worst, rows, sent)] = trace.rows(
            "select median(sent_ns - intended_ns) / 1e3,"
            " quantile_disc(sent_ns - intended_ns, 0.99) / 1e3,"
            " max(sent_ns - intended_ns) / 1e3, count(*), count(sent_ns)"
            " from requests where phase = 'measure'"
        )
        copies = trace.manifest["counts"]["copies"]
    wanted = RATE * SECONDS
    lag = Result(
        name="send-lag",
        what=f"send lag at {RATE:,}/s, open loop, one thread on core 0, the server on core 1",
        bar=f"median <= {LAG_BAR_US} us, none skipped, all stored",
        measured=f"median {median:.2f} us, p99 {p99:.1f} us, worst {worst:.0f} us;"
        f" {rows:,} of {wanted:,} rows, {copies['dropped']} dropped",
        met=median <= LAG_BAR_US and rows == sent == wanted and copies["dropped"] == 0,
        raw={"median_us": median, "p99_us": p99, "worst_us": worst, "rows": rows, "sent": sent},
    )
    arrivals = f'arrivals = "poisson"\nrate = "{RATE}/s"'
    with measured(drive(duration=f"{SECONDS}s", clients=4, arrivals=arrivals)) as trace:
        return [lag, size(trace)]
