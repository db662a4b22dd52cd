"""Write THIRD-PARTY.txt: whose code unruly contains, under which licence, with the texts."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

import vl_convert

from third_party.components import (
    JAVASCRIPT,
    ROOT,
    Component,
    crates,
    jars,
    python_packages,
    runtime_python,
    standard_library,
    static_parts,
)
from third_party.texts import Texts

NOTICES = ROOT / "THIRD-PARTY.txt"
HEAD = """\
Software of other people in unruly
==================================

unruly itself is under the Apache License 2.0 (file LICENSE). This file names the libraries of other
people, their licences and their owners. `make notices` writes it; a test compares it with the lock
files. Numbers in brackets lead to the licence texts at the end.
"""
OWNERS = {
    "std": "Copyright (c) The Rust Project Contributors",
    "libunwind": "Copyright (c) 2009-2019 by the contributors of LLVM",
    "musl": "Copyright © 2005-2020 Rich Felker, et al.",
    "zig-runtime": "Copyright (c) Zig contributors",
}
"""The owners of what stands in no registry."""
ENTRY = re.compile(r"^(\S+) (\S+) \((.*)\)(?: \[([\d, ]+)\])?$", re.MULTILINE)
TEXT = re.compile(r"^----- \[(\d+)\]$", re.MULTILINE)
NOT_IN_A_BROWSER = re.compile(
    r"^(@types/.*|ansi-.*|cliui|commander|emoji-regex|escalade|get-.*|iconv-lite|rw|safer-buffer"
    r"|string-width|strip-ansi|vega-typings|wrap-ansi|y18n|yargs.*)$"
)
"""What Vega's packages need on a command line; no bundle for a browser holds it."""


def entry(component: Component, texts: Texts) -> str:
    """Return a library's line and those of its owners."""
    owners, numbers = texts.of(component.folder) if component.folder else ([], [])
    if component.shipped and not numbers:
        numbers = fallback(component.licence, texts)
    numbers = sorted(numbers)
    leads = f" [{', '.join(map(str, numbers))}]" if numbers else ""
    first = f"{component.name} {component.version} ({component.licence or 'not named'}){leads}"
    return "\n".join([first, *(f"    {owner}" for owner in owners)])


def fallback(licence: str, texts: Texts) -> list[int]:
    """Return the standard texts of a licence, for a library that carries none."""
    begins = {"MIT": "Permission is hereby granted, free of charge", "Apache-2.0": "Apache License"}
    numbers = []
    for name, words in begins.items():
        if re.search(rf"\b{re.escape(name)}\b", licence):
            bodies = enumerate(texts.bodies, start=1)
            numbers += [number for number, body in bodies if words in body[:400]][:1]
    return numbers


def section(title: str, lead: str, lines: list[str]) -> str:
    """Return a part of the file."""
    return "\n".join(["", "", title, "-" * len(title), "", lead, "", *lines])


def write() -> None:
    """Write the notices of everything that the programs, the jars and the reports contain."""
    texts = Texts()
    linked = [it for it in crates() if it.shipped]
    # First those with texts: the others refer to them.
    known = {it: entry(it, texts) for it in linked}
    rust_lines = [
        entry(standard_library(), texts),
        f"    {OWNERS['std']}",
        *(entry(it, texts) if "[" not in known[it] else known[it] for it in linked),
    ]
    runtime = runtime_python()
    python = python_packages()
    parts = [
        HEAD,
        section("Rust", "The programs contain these crates.", rust_lines),
        section(
            "Static programs",
            "The linker adds these to the programs of the release files. Zig has their sources.",
            [f"{entry(it, texts)}\n    {OWNERS[it.name]}" for it in static_parts()],
        ),
        section(
            "Java",
            "These libraries stand as jars beside unruly-jvm.jar, or are packed into one of them.",
            [entry(it, texts) for it in jars()],
        ),
        section(
            "JavaScript",
            "Every report holds these libraries, with the following notices.",
            [JAVASCRIPT.read_text(encoding="utf-8").rstrip("\n")],
        ),
        section(
            "Python, needed by the wheel",
            "The wheel holds none of these. pip fetches them, with their licence files.",
            [entry(it, texts) for it in python if it.name in runtime],
        ),
        section(
            "Python, for development",
            "Nothing that is shipped holds these.",
            [entry(it, texts) for it in python if it.name not in runtime],
        ),
        section("Licence texts", "Copyright lines stand above, beside each library.", []),
        *(f"\n----- [{n}]\n\n{body}\n" for n, body in enumerate(texts.bodies, start=1)),
    ]
    NOTICES.write_text("\n".join(parts).rstrip("\n") + "\n", encoding="utf-8")


def write_javascript() -> None:
    """Write the notices of the report's JavaScript, of the versions that vl-convert bundles.

    npm fetches them: vl-convert ships the code without its licences. Of Vega-Lite it names the
    minor version alone.
    """
    versions = bundled_versions()
    wanted = [f"{name}@{version}" for name, version in versions.items()]
    with tempfile.TemporaryDirectory() as place:
        command = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", place, *wanted]
        subprocess.run(command, check=True)
        modules = Path(place, "node_modules")
        lock = json.loads(Path(place, "package-lock.json").read_text())["packages"]
        names = sorted({it.rpartition("node_modules/")[2] for it in lock if it})
        JAVASCRIPT.write_text(
            javascript_notices(versions, [modules / it for it in names if (modules / it).is_dir()]),
            encoding="utf-8",
        )


def bundled_versions() -> dict[str, str]:
    """Return the versions that vl-convert puts into a report."""
    return {
        "vega": vl_convert.get_vega_version(),
        "vega-embed": vl_convert.get_vega_embed_version(),
        "vega-lite": vl_convert.get_vegalite_versions()[-1],
        "vega-themes": vl_convert.get_vega_themes_version(),
    }


def javascript_notices(versions: dict[str, str], folders: list[Path]) -> str:
    """Return the notices of Vega and of what it is made of, the same text and owner once."""
    groups: dict[tuple[tuple[str, ...], int], list[str]] = {}
    texts = Texts()
    for folder in folders:
        name = folder.name
        if not NOT_IN_A_BROWSER.match(name) and folder.parent.name == "node_modules":
            owners, numbers = texts.of(folder)
            for number in numbers:
                groups.setdefault((tuple(owners), number), []).append(name)
    parts = [
        "This page is drawn by Vega (BSD-3-Clause), in these versions:",
        "\n".join(f"{name} {version}" for name, version in versions.items()),
        "Vega contains further libraries. The licences of all of them follow.",
    ]
    for number, body in enumerate(texts.bodies, start=1):
        owned = [(owners, names) for (owners, its), names in groups.items() if its == number]
        for owners, names in owned:
            parts.append("\n".join([", ".join(names) + ":", *(f"  {it}" for it in owners)]))
        parts.append(body)
    return "\n\n".join(parts) + "\n"
