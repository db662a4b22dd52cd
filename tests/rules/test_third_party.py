"""Every library is named with its licence, and stands in the bill of materials."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from repository import ROOT

from third_party import components, notices, sbom

NOTICES = notices.NOTICES.read_text(encoding="utf-8")
SECTION = re.compile(r"^(.+)\n-{4,}$", re.MULTILINE)
HINT = "hint: make notices"


def sections(text: str) -> dict[str, str]:
    """The parts of the file, by their titles."""
    begins = list(SECTION.finditer(text))
    ends = [*(it.start() for it in begins[1:]), len(text)]
    return {it[1]: text[it.end() : end] for it, end in zip(begins, ends, strict=True)}


def named(title: str, text: str = NOTICES) -> set[tuple[str, str]]:
    """Name and version of every library in a part of the file."""
    return {(found[1], found[2]) for found in notices.ENTRY.finditer(sections(text)[title])}


def pairs(found: list[components.Component]) -> set[tuple[str, str]]:
    return {(it.name, it.version) for it in found}


def pinned_python() -> set[tuple[str, str]]:
    text = (ROOT / "requirements.lock").read_text()
    found = re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^\s;\\]+)", text, re.MULTILINE)
    return {(canonicalize_name(name), version) for name, version in found}


def test_the_notices_name_every_crate_that_the_programs_contain() -> None:
    shipped = [it for it in components.crates() if it.shipped]
    rust = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    assert named("Rust") == pairs(shipped) | {("std", rust)}, HINT
    assert len(shipped) > 150


def test_the_notices_and_the_bill_name_what_the_linker_adds() -> None:
    parts = components.static_parts()
    assert named("Static programs") == pairs(parts), HINT
    assert {it.name for it in parts} == {"libunwind", "musl", "zig-runtime"}
    bill = sbom.bill(components.everything(), components.runtime_python())
    required = {it["purl"] for it in bill["components"] if it["scope"] == "required"}
    assert {it.purl for it in [components.standard_library(), *parts]} <= required


def test_the_notices_name_every_python_package_of_the_lock_file() -> None:
    needed, development = named("Python, needed by the wheel"), named("Python, for development")
    assert needed | development == pinned_python(), HINT
    assert {name for name, _ in needed} == components.runtime_python(), HINT
    assert not {name for name, _ in needed} & {name for name, _ in development}


def test_the_notices_name_every_library_that_the_pom_names() -> None:
    pinned = pairs(components.pinned_jars())
    assert pinned <= named("Java"), HINT
    assert len(pinned) > 3


def test_the_notices_name_the_javascript_that_a_report_holds() -> None:
    said = dict(components.JAVASCRIPT_LINE.findall(components.JAVASCRIPT.read_text()))
    assert said == notices.bundled_versions(), "hint: make notices-javascript"
    assert components.JAVASCRIPT.read_text().rstrip("\n") in NOTICES, HINT


def test_a_licence_is_named_and_its_text_is_there() -> None:
    texts = set(notices.TEXT.findall(NOTICES))
    # The Creative Commons ask for no text; such a library is in no program of ours.
    for title in ("Rust", "Static programs", "Java"):
        for name, version, licence, numbers in notices.ENTRY.findall(sections(NOTICES)[title]):
            assert licence, f"{name} {version} names no licence"
            assert numbers or "CC0" in licence, f"{name} {version} leads to no text"
            assert set(numbers.split(", ")) - {""} <= texts, f"{name} {version}: no such text"
    assert len(texts) > 10


@pytest.mark.parametrize(
    "words",
    [
        "Copyright (c) 2015-2023, University of Washington Interactive Data Lab",
        "Neither the name of the copyright holder nor the names of its contributors",
        "Copyright 2010-2026 Mike Bostock",
    ],
)
def test_the_notices_of_a_report_say_what_the_licence_demands(words: str) -> None:
    assert words in components.JAVASCRIPT.read_text()


def test_the_bill_of_materials_holds_every_entry_of_the_lock_files() -> None:
    bill = sbom.bill(components.everything(), components.runtime_python())
    found = {it["purl"] for it in bill["components"]}
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    wanted = {f"pkg:cargo/{it['name']}@{it['version']}" for it in locked if "source" in it}
    wanted |= {f"pkg:pypi/{name}@{version}" for name, version in pinned_python()}
    wanted |= {it.purl for it in components.pinned_jars()}
    wanted |= {f"pkg:npm/{name}@{version}" for name, version in notices.bundled_versions().items()}
    assert wanted <= found
    assert len(wanted) > 350


def test_the_bill_of_materials_has_the_shape_of_cyclonedx_and_does_not_change() -> None:
    everything, runtime = components.everything(), components.runtime_python()
    bill = sbom.bill(everything, runtime)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    refs = [it["bom-ref"] for it in bill["components"]]
    assert len(set(refs)) == len(refs)
    for it in bill["components"]:
        assert {"type", "bom-ref", "name", "version", "purl", "scope"} <= it.keys()
        assert it["purl"].startswith("pkg:")
        assert it["purl"].endswith(f"@{it['version']}")
        assert it["scope"] in {"required", "excluded"}
    assert set(bill["dependencies"][0]["dependsOn"]) == set(refs)
    assert json.dumps(sbom.bill(everything[::-1], runtime)) == json.dumps(bill)


@pytest.mark.parametrize(
    ("licence", "written"),
    [
        ("MIT OR Apache-2.0", {"expression": "MIT OR Apache-2.0"}),
        (
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            {"expression": "(MIT OR Apache-2.0) AND Unicode-3.0"},
        ),
        ("Apache License, Version 2.0", {"license": {"name": "Apache License, Version 2.0"}}),
    ],
)
def test_a_licence_is_an_expression_only_if_spdx_can_read_it(
    licence: str, written: dict[str, object]
) -> None:
    assert sbom.licensed(licence) == written


def test_a_crate_of_tests_or_of_compiling_is_not_called_shipped() -> None:
    shipped = {it.name: it.shipped for it in components.crates()}
    assert shipped["parquet"]
    assert shipped["ring"]
    for name in ("proptest", "stateright", "prost-build", "syn"):
        assert not shipped[name], name


def test_the_wheel_holds_the_notices(tmp_path: Path) -> None:
    # The directory that maturin puts into the wheel, without compiling the program.
    words = [sys.executable, "-m", "maturin", "pep517", "write-dist-info"]
    words += ["--metadata-directory", str(tmp_path), "--interpreter", sys.executable]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("*.dist-info/licenses/THIRD-PARTY.txt")
    assert found.read_text(encoding="utf-8") == NOTICES
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    assert "License-File: THIRD-PARTY.txt" in metadata.read_text(encoding="utf-8")
