"""``python -m unruly.installation`` prints, for ``unruly self check``, whether the analysis works.

It prints one line of JSON: ``{"python": "3.11.2", "version": "0.1.0", "fault": null}``. The version
is null in a checkout, and the fault is the reason why a library cannot be imported.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib import import_module, metadata
from typing import Final

MODULES: Final = (
    "ibis.backends.duckdb",
    "ijson",
    "unruly.topics.analyse",
    "unruly.html.page",
    "unruly.html.plots",
)
"""Modules that together import every library of the analysis."""


def version() -> str | None:
    """Return the version of the installed package; None in a checkout."""
    try:
        return metadata.version("unruly")
    except metadata.PackageNotFoundError:
        return None


def fault() -> str | None:
    """Return why a library of the analysis cannot be imported; None if all can be."""
    for module in MODULES:
        try:
            import_module(module)
        except Exception as error:  # noqa: BLE001 - a broken library may raise anything
            return f"{type(error).__name__}: {error}"
    return None


def answer() -> dict[str, str | None]:
    """Return what ``unruly self check`` asks for."""
    return {"python": platform.python_version(), "version": version(), "fault": fault()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer()) + "\n")
