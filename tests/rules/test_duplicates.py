"""No library is compiled in two versions unless deny.toml names the crate that needs the older."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable

from repository import ROOT

NOT_COMPILED = {"bit-vec", "num-bigint", "r-efi", "synstructure", "windows-sys"}
"""Crates of Cargo.lock that no program of ours holds: for another system or a feature left out."""

Locked = Iterable[tuple[str, str]]


def locked() -> set[tuple[str, str]]:
    """Name and version of every package of the lock file."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return {(it["name"], it["version"]) for it in packages}


def skipped() -> dict[tuple[str, str], str]:
    """The older versions that deny.toml allows, each with its reason."""
    entries = tomllib.loads((ROOT / "deny.toml").read_text())["bans"]["skip"]
    return {tuple(it["crate"].split("@")): it["reason"] for it in entries}


def unexplained(packages: Locked, allowed: Locked) -> dict[str, list[str]]:
    """Crates of which more than one version is left once the allowed ones are taken away."""
    versions = defaultdict(list)
    for name, version in sorted(set(packages) - set(allowed)):
        if name not in NOT_COMPILED:
            versions[name].append(version)
    return {name: found for name, found in versions.items() if len(found) > 1}


def test_every_second_version_of_a_library_has_a_reason() -> None:
    assert unexplained(locked(), skipped()) == {}
    assert all(skipped().values())


def test_a_new_second_version_is_found() -> None:
    assert unexplained([*locked(), ("serde", "0.9.0")], skipped()).keys() == {"serde"}
    assert unexplained([*locked(), ("rand", "0.7.0")], skipped()).keys() == {"rand"}


def test_no_version_is_allowed_that_has_gone() -> None:
    versions = defaultdict(set)
    for name, version in locked():
        versions[name].add(version)
    assert [f"{name}@{it}" for name, it in skipped() if it not in versions[name]] == []
    assert [name for name, _ in skipped() if len(versions[name]) < 2] == []


def test_cargo_deny_fails_too() -> None:
    """The same list is of use only while cargo-deny is strict."""
    bans = tomllib.loads((ROOT / "deny.toml").read_text())["bans"]
    assert bans["multiple-versions"] == "deny"
