"""Short streams, and what both ends of them counted."""

from __future__ import annotations

from pathlib import Path

from house import Measured, call


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


def flows(run: Measured) -> dict[tuple[str, str], dict[str, int]]:
    """What each side of each cell counted in all."""
    names = ["messages", "bytes", "lost", "duplicated", "reordered"]
    sums = ", ".join(f"sum({name})::bigint" for name in names)
    rows = run.rows(f"select cell, side, {sums} from intervals group by all")
    return {(cell, side): dict(zip(names, rest, strict=True)) for cell, side, *rest in rows}
