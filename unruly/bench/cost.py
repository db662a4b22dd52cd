"""What measuring costs the host: the generator's memory over time, and agents at 1 Hz."""

from __future__ import annotations

from bench.program import drive, measured
from bench.result import Result

MEMORY_BAR_MIB = 64
AGENT_BAR_SHARE = 0.01
AGENT_BAR_MIB = 30
MINUTE_S = 60

MESH = f"""
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "{MINUTE_S}s"
warmup = "5s"
[mesh]
agents = 9
groups = [9]
period = "1s"
workloads = ["null", "crypto", "disk", "network", "mixed"]
[probe]
period = "1s"
"""


def run() -> list[Result]:
    """Measure both."""
    return [memory(), *agents()]


def memory() -> Result:
    """Resident memory of a generator at 20,000/s, over several sealed segments."""
    plan = drive(
        duration=f"{3 * MINUTE_S}s",
        clients=4,
        arrivals='arrivals = "constant"\nrate = "20000/s"',
        probe='period = "1s"',
    )
    with measured(plan) as trace:
        samples = trace.rows(
            "select started_ns, rss_bytes from resources"
            " where watched = 'drive-0' and rss_bytes is not null order by 1"
        )
        copies = trace.manifest["counts"]["copies"]
        segments = len(list((trace.path / "requests").glob("*.parquet")))
    mib = [row[1] / 2**20 for row in samples]
    third = len(mib) // 3
    growth = max(mib[2 * third :]) - max(mib[third : 2 * third])
    return Result(
        name="memory",
        what="resident memory of the generator, 20,000/s for three minutes"
        f" ({copies['recorded']:,} rows in {segments} segments, {copies['dropped']} dropped)",
        bar=f"flat, <= {MEMORY_BAR_MIB} MiB, none dropped",
        measured=f"most {max(mib):.1f} MiB; the last minute's most is {growth:+.1f} MiB to that of"
        " the minute before",
        met=max(mib) <= MEMORY_BAR_MIB and growth <= 1.0 and copies["dropped"] == 0,
        raw={"rss_mib": mib, "copies": copies},
    )


def agents() -> list[Result]:
    """Processor time and memory of nine agents and a probe that do one round a second."""
    with measured(MESH) as trace:
        rows = trace.rows(
            "select watched, sum(user_ns + system_ns) / sum(ended_ns - started_ns),"
            " max(rss_bytes) / 1048576.0 from resources"
            " where watched is not null and user_ns is not null group by 1 order by 1"
        )
    results = []
    for kind, what in (("agent-", "an agent, the busiest of nine"), ("probe-", "the probe")):
        mine = [row for row in rows if row[0].startswith(kind)]
        share, most = max(row[1] for row in mine), max(row[2] for row in mine)
        results.append(
            Result(
                name=f"cost-{kind.strip('-')}",
                what=f"cost of {what}, 1 Hz mesh of nine, all five workloads, probe at 1 Hz",
                bar=f"<= {AGENT_BAR_SHARE:.0%} of a core, <= {AGENT_BAR_MIB} MiB",
                measured=f"{100 * share:.2f} % of a core, {most:.1f} MiB",
                met=share <= AGENT_BAR_SHARE and most <= AGENT_BAR_MIB,
                raw={"processes": [list(row) for row in mine]},
            )
        )
    return results
