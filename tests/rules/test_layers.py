"""The arrows of ARCHITECTURE.md point one way. Those of Python are checked beside its package."""

from __future__ import annotations

import re

import pytest
from repository import ROOT, cargo_metadata

METER = {"unruly-plan", "unruly-trace", "unruly-load", "unruly-stream", "unruly-agent"}
CRATES: dict[str, set[str]] = {
    "unruly-time": set(),
    "unruly-plan": set(),
    "unruly-trace": {"unruly-time"},
    "unruly-load": {"unruly-plan", "unruly-time", "unruly-trace"},
    "unruly-stream": {"unruly-plan"},
    "unruly-tap": {"unruly-time", "unruly-trace"},
    "unruly-agent": {*METER, "unruly-time", "unruly-tap"} - {"unruly-agent"},
    "unruly-drivers": {"unruly-plan", "unruly-flurry", "unruly-time"},
    "unruly-program": {"unruly-plan", "unruly-trace", "unruly-agent"},
    "unruly-runner": {*METER, "unruly-program", "unruly-tap"},
    "unruly": {*METER, "unruly-drivers", "unruly-program", "unruly-runner", "unruly-tap"},
    "flurry-core": set(),
    "flurry-sim": {"flurry-core"},
    "unruly-flurry": {"flurry-core", "unruly-time"},
    "flurry-recording": {"flurry-core", "unruly-flurry", "unruly-time", "unruly-trace"},
    "flurry-cli": {
        "unruly-flurry",
        "flurry-recording",
        "unruly-plan",
        "unruly-program",
        "unruly-trace",
    },
    "unruly-fuzz": {"flurry-core", "unruly-load", "unruly-plan", "unruly-trace"},
}


@pytest.mark.parametrize("name", sorted(CRATES))
def test_a_crate_depends_only_on_those_below_it(name: str) -> None:
    package = next(it for it in cargo_metadata()["packages"] if it["name"] == name)
    own = {
        it["name"]
        for it in package["dependencies"]
        if it["name"].startswith(("unruly", "flurry")) and it["kind"] is None
    }
    assert own <= CRATES[name]


def test_every_crate_of_the_workspace_has_its_place() -> None:
    members = set(cargo_metadata()["workspace_members"])
    names = {it["name"] for it in cargo_metadata()["packages"] if it["id"] in members}
    assert names == set(CRATES)


def test_no_shipped_build_takes_the_whole_workspace_and_so_the_bugs_of_the_simulation() -> None:
    """Cargo unites the features of all packages that a command selects, needed or not.

    Tests and the simulation are built together, under another profile: none of these is shipped.
    The fuzzer is built with the shipped programs, and has their core.
    """
    builds = re.findall(r"cargo build[^;\n]*", (ROOT / "Makefile").read_text())
    assert builds == [
        "cargo build --release --locked --package unruly --package flurry-cli --package unruly-fuzz"
        " --bins",
        "cargo build --release --locked --package unruly --no-default-features --features flurry"
        " --bins",
        "cargo build --profile demo --locked --package unruly --no-default-features --bins",
    ]
