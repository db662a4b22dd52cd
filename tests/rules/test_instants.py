"""Instants and lengths of time have types. A raw number is one where bytes, text or a column is."""

from __future__ import annotations

import re

from repository import ROOT, tracked

RAW = re.compile(
    r"^\s*(?:pub(?:\([a-z]+\))? )?\w*_ns: (?:&?(?:mut )?)(?:\[|Vec<|Option<)*[iu](?:64|128)\b"
    r"|[(,|] ?(?:mut )?\w*_ns: (?:&?(?:mut )?)(?:\[|Vec<|Option<)*[iu](?:64|128)\b"
)
EDGES = {
    # Messages on the wire, and what becomes of their fields.
    "flurry/crates/core/src/wire/body.rs",
    "flurry/crates/core/src/wire/key_value.rs",
    "flurry/crates/core/src/wire/operation.rs",
    "flurry/crates/core/src/wire/stored.rs",
    "unruly/crates/stream/src/header.rs",
    # Columns, and the kernel's counters that fill them.
    "unruly/crates/agent/src/probe/cgroup.rs",
    "unruly/crates/agent/src/probe/host.rs",
    "unruly/crates/agent/src/probe/process.rs",
    "unruly/crates/agent/src/probe/row.rs",
    "unruly/crates/trace/src/merge.rs",
    # Text that another program wrote, and text for people.
    "unruly/crates/plan/src/utc.rs",
    "unruly/crates/runner/src/services/pauses.rs",
    # Random numbers that become the lengths of gaps.
    "unruly/crates/plan/src/arrivals.rs",
}


def _raw(text: str) -> list[int]:
    """Lines with a raw field or parameter. Tests may write numbers as they like."""
    shipped = text.split("#[cfg(test)]\nmod ", maxsplit=1)[0]
    return [at for at, line in enumerate(shipped.splitlines(), 1) if RAW.search(line)]


def test_no_instant_and_no_length_of_time_is_a_bare_number() -> None:
    sources = [it for it in tracked("*.rs") if "/src/" in it.as_posix()]
    named = {it.relative_to(ROOT).as_posix(): it.read_text(encoding="utf-8") for it in sources}
    found = {name: lines for name, text in named.items() if (lines := _raw(text))}
    tests = {name for name in found if name.endswith(("tests.rs", "_tests.rs"))}
    assert {name: found[name] for name in found.keys() - EDGES - tests} == {}
    assert found.keys() >= EDGES, "an edge without a raw number is an edge no longer"


def test_the_rule_sees_fields_and_parameters() -> None:
    for raw in (
        "    pub sent_ns: i64,",
        "    pub(crate) sent_ns: Option<i64>,",
        "    through_ns: Vec<u64>,",
        "fn due(&mut self, now_ns: i64) -> bool {",
        "fn note(start_ns: &mut u64) {",
        "let took = |time_ns: i64| time_ns + 1;",
    ):
        assert _raw(raw) == [1], raw
    for typed in (
        "    pub sent_ns: MonoNs,",
        "    sent_ns: Some(5),",
        "let ended_ns: i64 = text.parse()?;",
        "fn next_ns(&self) -> Option<i64> {",
    ):
        assert _raw(typed) == [], typed
