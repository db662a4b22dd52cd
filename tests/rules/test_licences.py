"""Nothing that is built or shipped is under a licence that ours cannot carry."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from importlib import metadata

from packaging.requirements import Requirement
from repository import ROOT, cargo_metadata

ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-1-Clause", "BSD-2-Clause",
    "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "MPL-2.0",
    "PSF-2.0", "Python-2.0", "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip

CLASSIFIERS = {
    "OSI Approved :: Apache Software License",
    "OSI Approved :: BSD License",
    "OSI Approved :: MIT License",
    "OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)",
    "OSI Approved :: Python Software Foundation License",
}

WORDS = re.compile(
    r"^(MIT|BSD|3-Clause BSD|Apache|ISC|PSF|Python Software Foundation|MPL)", re.IGNORECASE
)


def permits(expression: str, allowed: Collection[str] = frozenset(ALLOWED)) -> bool:
    """Whether an SPDX expression leaves a way that is allowed: one side of OR, all of AND."""
    plain = expression.replace("/", " OR ").replace("(", " ( ").replace(")", " ) ")
    while found := re.search(r"\(([^()]*)\)", plain):
        inner = "MIT" if permits(found.group(1), allowed) else "denied"
        plain = plain[: found.start()] + inner + plain[found.end() :]
    return any(
        all(part.strip() in allowed for part in way.split(" AND ")) for way in plain.split(" OR ")
    )


def test_an_expression_is_read_as_its_words_say() -> None:
    assert permits("MIT OR GPL-3.0-only")
    assert permits("(MIT OR Apache-2.0) AND Unicode-3.0")
    assert not permits("MIT AND GPL-3.0-only")
    assert not permits("AGPL-3.0-or-later")


def test_every_crate_may_be_linked() -> None:
    packages = cargo_metadata()["packages"]
    denied = {it["name"]: it["license"] for it in packages if not permits(it["license"] or "none")}
    assert denied == {}
    assert len(packages) > 50


def test_what_cargo_deny_is_told_agrees_with_these_tests() -> None:
    """It is seldom installed: a list that nobody runs would rot."""
    told = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    assert told <= ALLOWED
    packages = cargo_metadata()["packages"]
    assert {it["name"] for it in packages if not permits(it["license"] or "none", told)} == set()


def test_every_python_package_may_be_shipped() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line.rstrip(" \\")) for line in lines if re.match(r"[\w.-]+.*==", line)]
    denied = {}
    for name in (pin.name for pin in pins if pin.marker is None or pin.marker.evaluate()):
        about = metadata.metadata(name)
        expression = about.get("License-Expression")
        classes = {
            line.removeprefix("License :: ")
            for line in about.get_all("Classifier") or []
            if line.startswith("License :: ")
        } - {"OSI Approved"}
        if expression:
            fine = permits(expression)
        elif classes:
            fine = classes <= CLASSIFIERS
        else:
            fine = bool(WORDS.match((about.get("License") or "").strip()))
        if not fine:
            denied[name] = expression or classes or about.get("License")
    assert denied == {}
    assert len(pins) > 20
