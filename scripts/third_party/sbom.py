"""Write the bill of materials as CycloneDX JSON: the same bytes for the same lock files."""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from typing import TYPE_CHECKING, Any

from third_party.components import ROOT, Component, everything, runtime_python

if TYPE_CHECKING:
    from pathlib import Path

SPEC_VERSION = "1.6"
SPDX = re.compile(r"^[\w.+-]+( (AND|OR|WITH) [\w.+-]+)*$")
SBOM = ROOT / "target" / "unruly.cdx.json"


def version() -> str:
    """Return unruly's own version."""
    return str(tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"])


def described(component: Component, runtime: set[str]) -> dict[str, Any]:
    """Return a library in CycloneDX's words. Libraries of tests and builds are ``excluded``."""
    needed = component.shipped or (component.ecosystem == "pypi" and component.name in runtime)
    group, _, name = component.name.rpartition(":")
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": name,
        "version": component.version,
        "purl": component.purl,
        "scope": "required" if needed else "excluded",
    }
    if group:
        found["group"] = group
    if component.licence:
        found["licenses"] = [licensed(component.licence)]
    return found


def licensed(licence: str) -> dict[str, Any]:
    """Return a licence as SPDX where it is written so, otherwise by its name."""
    if SPDX.match(re.sub("[()]", "", licence)):
        return {"expression": licence}
    return {"license": {"name": licence}}


def bill(components: list[Component], runtime: set[str]) -> dict[str, Any]:
    """Return the whole document, without a time of its making: it is a function of the locks."""
    own = f"pkg:generic/unruly@{version()}"
    listed = [described(it, runtime) for it in sorted(set(components))]
    refs = [it["bom-ref"] for it in listed]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join([own, *refs]))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "unruly",
                "version": version(),
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": listed,
        "dependencies": [{"ref": own, "dependsOn": refs}],
    }


def write(path: Path = SBOM) -> Path:
    """Write the bill of everything that the lock files name, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(bill(everything(), runtime_python()), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path
