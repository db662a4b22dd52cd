"""Short streams, and what both ends of them counted."""

from __future__ import annotations

from pathlib import Path

from house import Measured, call, need_root

NAMESPACES = 'hosts = "namespaces"'


def measured(folder: Path, stream: str, run: str = "", more: str = "", **words: str) -> Measured:
    """A short stream; ``words`` are keys of ``[run]``."""
    times = {"duration": "1s", "warmup": "200ms", **words}
    lines = "\n".join(f'{key} = "{value}"' for key, value in times.items())
    plan = folder / "plan.toml"
    plan.write_text(
        f'name = "streams"\n[run]\n{lines}\n{run}\n[stream]\n{stream}\n'
        f'[probe]\nperiod = "200ms"\n{more}\n'
    )
    said = call("run", plan, "-q", "-o", folder / "out", timeout=150)
    assert said.returncode == 0, said.stderr
    return Measured(folder / "out")


def machines(run: Path) -> dict[int, str]:
    """Virtual machines of a run that live, by pid: their logs are in its directory."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "org.unruly.jvm" in words and str(run) in words:
            found[int(folder.name)] = words
    return found


def flows(run: Measured) -> dict[tuple[str, str], dict[str, int]]:
    """What each side of each cell counted in all."""
    names = ["messages", "bytes", "lost", "duplicated", "reordered"]
    sums = ", ".join(f"sum({name})::bigint" for name in names)
    rows = run.rows(f"select cell, side, {sums} from intervals group by all")
    return {(cell, side): dict(zip(names, rest, strict=True)) for cell, side, *rest in rows}


def one_after_the_other(folder: Path, protocols: list[str], more: str = "") -> Measured:
    """Each protocol between two hosts."""
    need_root("hosts of their own")
    names = ", ".join(f'"{name}"' for name in protocols)
    matrix = f'{more}[matrix]\n"stream.protocol" = [{names}]'
    return measured(folder, 'protocol = "tcp"', NAMESPACES, matrix)


def check_counts(run: Measured, protocol: str, *, reliable: bool) -> None:
    """Check that every written message arrived or was lost, and that no event reports a problem."""
    cell = f"protocol={protocol}"
    problems = run.rows(
        f"select process, kind, detail from events where cell = '{cell}'"
        " and (kind like 'stream%' or kind in ('peer lost', 'memory ran away'))"
    )
    assert not problems
    found = flows(run)
    wrote, came = (found[cell, side] for side in ("writer", "reader"))
    assert wrote["messages"] > 100
    assert wrote["bytes"] == 2000 * wrote["messages"]
    assert came["bytes"] == 2000 * (came["messages"] + came["duplicated"])
    assert came["messages"] + came["lost"] == wrote["messages"]
    if not reliable:
        return
    assert [came[name] for name in ("lost", "duplicated", "reordered")] == [0, 0, 0]
    # One message in a hundred has its latency kept, by the clock of all other tables.
    ((rows, lowest, statuses, outside),) = run.rows(
        "select count(*), min(received_ns - intended_ns), count(distinct status),"
        " count(*) filter (intended_ns < (select min(started_ns) from intervals)"
        " or received_ns > (select max(ended_ns) + 1000000000 from intervals))"
        f" from requests where cell = '{cell}' and op = 'message'"
    )
    assert rows == -(-wrote["messages"] // 100)
    assert lowest > 0
    assert (statuses, outside) == (1, 0)
