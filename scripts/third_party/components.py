"""List the libraries of other people, from the lock files and what is installed.

Nothing here asks a registry: cargo reads its own cache, Python its installed packages, and Maven's
libraries are the jars beside ours.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
PROGRAMS = ("unruly", "flurry-cli")
"""The packages whose programs are shipped; the simulation and the fuzzer are not."""
POM = "{http://maven.apache.org/POM/4.0.0}"
JARS = ROOT / "unruly" / "jvm" / "target" / "lib"
JAVASCRIPT = ROOT / "unruly" / "python" / "unruly" / "html" / "javascript.txt"
JAVASCRIPT_LINE = re.compile(r"^(vega[\w-]*) ([\d.]+)$", re.MULTILINE)
MUSL = "1.2.5"
"""The musl that the pinned Zig carries; a test of the release files compares them."""
LICENCES = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Classifiers of packages that name no SPDX expression."""


@dataclass(frozen=True, order=True)
class Component:
    """A library. ``shipped`` is true if a program, a jar or a report contains its code."""

    ecosystem: str
    name: str
    version: str
    licence: str = ""
    shipped: bool = True
    folder: Path | None = None

    @property
    def purl(self) -> str:
        """The package URL of the library."""
        return f"pkg:{self.ecosystem}/{self.name.replace(':', '/')}@{self.version}"


def crates() -> list[Component]:
    """Every crate of Cargo.lock; shipped are those whose code the programs contain."""
    words = ["metadata", "--format-version", "1", "--locked"]
    packages = json.loads(_cargo(*words))["packages"]
    known = {(it["name"], it["version"]): it for it in packages}
    linked = set().union(*(_linked(platform) for platform in PLATFORMS))
    listed = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    names = sorted((it["name"], it["version"]) for it in listed if "source" in it)
    return [_crate(*it, known.get(it), shipped=it in linked) for it in names]


def _crate(name: str, version: str, package: dict[str, Any] | None, *, shipped: bool) -> Component:
    if package is None:
        return Component("cargo", name, version, shipped=shipped)
    # A slash is an old way to write OR.
    licence = re.sub(r"\s*/\s*", " OR ", package["license"] or "")
    return Component(
        "cargo", name, version, licence, shipped, Path(package["manifest_path"]).parent
    )


def _cargo(*words: str) -> str:
    done = subprocess.run(["cargo", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _linked(platform: str) -> set[tuple[str, str]]:
    """Crates that the programs link: no procedural macros, nothing of builds or tests."""
    edges = ["--edges", "normal,no-proc-macro", "--target", platform]
    packages = [word for name in PROGRAMS for word in ("--package", name)]
    tree = _cargo("tree", "--locked", *packages, *edges, "--prefix", "none")
    return {(name, version) for name, version in re.findall(r"^(\S+) v(\S+)", tree, re.MULTILINE)}


def python_packages() -> list[Component]:
    """Every pin of requirements.lock. None is in the wheel: pip fetches them beside it."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line.rstrip(" \\")) for line in lines if re.match(r"[\w.-]+.*==", line)]
    return sorted(
        Component("pypi", canonicalize_name(pin.name), _pinned(pin), _licence(pin.name), False)
        for pin in pins
    )


def _pinned(pin: Requirement) -> str:
    return next(iter(pin.specifier)).version


def _licence(name: str) -> str:
    """The licence that an installed package names; nothing for one that is not installed here."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if expression := about.get("License-Expression"):
        return str(expression)
    classes = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    known = [LICENCES[it] for it in classes if it in LICENCES]
    words = (about.get("License") or "").strip().splitlines()
    return " OR ".join(known) or (words[0] if words else "")


def runtime_python() -> set[str]:
    """The packages that the wheel depends on, directly or through another."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(it) for it in project["dependencies"]]
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in seen:
            continue
        seen.add(name)
        for line in metadata.requires(name) or []:
            inner = Requirement(line)
            extras = ["", *wanted.extras]
            if inner.marker is None or any(inner.marker.evaluate({"extra": it}) for it in extras):
                waiting.append(inner)
    return seen


def pinned_jars() -> list[Component]:
    """The libraries that unruly/jvm/pom.xml names for running, without those that they bring."""
    pom = ElementTree.parse(ROOT / "unruly" / "jvm" / "pom.xml").getroot()
    properties = {it.tag.removeprefix(POM): it.text or "" for it in pom.find(f"{POM}properties")}
    found = set()
    for it in pom.find(f"{POM}dependencies"):
        said = {child.tag.removeprefix(POM): child.text or "" for child in it}
        if said.get("scope") != "test":
            version = re.sub(r"\$\{([^}]+)\}", lambda name: properties[name[1]], said["version"])
            found.add(
                Component("maven", f"{said['groupId']}:{said['artifactId']}", version, "Apache-2.0")
            )
    return sorted(found)


def jars() -> list[Component]:
    """Every library that stands beside our jar, and those that are packed into them."""
    pinned = {(it.name.split(":")[1], it.version): it for it in pinned_jars()}
    found = set(pinned.values())
    for path in sorted(JARS.glob("*.jar")):
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if name.endswith("/pom.properties"):
                    said = dict(
                        line.split("=", 1)
                        for line in jar.read(name).decode().splitlines()
                        if "=" in line
                    )
                    maven = f"{said['groupId']}:{said['artifactId']}"
                    licence = LICENCE_OF_PACKED.get(said["artifactId"], "Apache-2.0")
                    found.add(Component("maven", maven, said["version"], licence))
    return sorted(found)


LICENCE_OF_PACKED = {"HdrHistogram": "CC0-1.0 OR BSD-2-Clause"}
"""Libraries inside a jar whose licence is another one."""


def javascript() -> list[Component]:
    """The libraries that draw the pictures of a report, as their notices name them."""
    found = JAVASCRIPT_LINE.findall(JAVASCRIPT.read_text(encoding="utf-8"))
    return sorted(Component("npm", name, version, "BSD-3-Clause") for name, version in found)


def standard_library() -> Component:
    """The standard library of Rust, which every program contains."""
    toolchain = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]
    return Component("generic", "std", toolchain["channel"], "MIT OR Apache-2.0")


def static_parts() -> list[Component]:
    """What the linker adds to the static programs: a C library, and the runtime of Zig."""
    lock = (ROOT / "scripts" / "zig" / "requirements.lock").read_text()
    zig = re.findall(r"^ziglang==([\d.]+)", lock, re.MULTILINE)[0]
    return [
        Component("generic", "libunwind", f"zig-{zig}", "Apache-2.0 WITH LLVM-exception"),
        Component("generic", "musl", MUSL, "MIT"),
        Component("generic", "zig-runtime", zig, "MIT"),
    ]


def everything() -> list[Component]:
    """All libraries, of every ecosystem."""
    compiled = [*crates(), standard_library(), *static_parts()]
    return [*compiled, *python_packages(), *jars(), *javascript()]


def by_ecosystem(components: list[Component]) -> dict[str, list[Component]]:
    """The libraries, by the registry that they come from."""
    found = defaultdict(list)
    for component in components:
        found[component.ecosystem].append(component)
    return dict(found)
