"""A page of benchmarks, generated from the kept results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bench import rival_table
from bench.result import Result, load

if TYPE_CHECKING:
    from pathlib import Path

MET: Final = {True: "yes", False: "**no**", None: "no bar"}


def text(head: str, runs: Path) -> str:
    """Return a page: the head, then a section for each day and host, the newest day first."""
    places = sorted((path for path in runs.iterdir() if path.is_dir()), reverse=True)
    # a day that kept the numbers of a study alone has a page elsewhere
    held = [(place, results) for place in places if (results := load(place))]
    return "\n".join([head, *(section(place, results) for place, results in held)])


def section(place: Path, results: list[Result]) -> str:
    """Return the section of one day on one host."""
    facts = json.loads((place / "host.json").read_text())
    host = facts["host"]
    kind = "a virtual machine" if host["virtualised"] else "bare metal"
    lines = [
        f"## {place.name}",
        "",
        f"{host['cpu_model']}, {host['cores']} cores, {kind}, Linux {host['kernel']},"
        f" noise floor {host['noise_floor_ns'] / 1e3:.0f} us. A plus behind a commit"
        " says that the checkout had uncommitted changes.",
        "",
        "| what | bar | measured | met | commit |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {it.what} | {it.bar or '-'} | {it.measured} | {MET[it.met]} | `{it.commit}` |"
        for it in results
    ]
    lines += [line for it in results if it.name == "durability-age" for line in _kills(it)]
    rivals = (it for it in results if it.name == "false-rivals")
    lines += [line for it in rivals for line in rival_table.by_family(it.raw["cells"])]
    missed = [it for it in results if it.missed]
    if missed:
        lines += ["", "Missed:", ""]
        lines += [f"- {it.what}: {it.measured}, wanted {it.bar}. {_sentence(it)}" for it in missed]
    return "\n".join(lines) + "\n"


def _kills(result: Result) -> list[str]:
    """Return the table of a durability result: a row for each kind of kill."""
    lines = [
        "",
        f"{result.what.partition(':')[0]}, by killed process:",
        "",
        "| killed | times | lost, median | lost, worst | oldest lost | stated exactly"
        " | counts equal | processes left |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {kind} | {it['kills']} | {it['lost_median']:g} | {it['lost_worst']}"
        f" | {it['oldest_lost_s']:.3f} s | {it['stated_exactly']}"
        f" | {it['counts_equal']} | {it['left']} |"
        for kind, it in result.raw["kinds"].items()
    ]
    return lines


def _sentence(result: Result) -> str:
    why = result.why or "The cause is not yet measured"
    return why[0].upper() + why[1:] + "."
