"""``unruly self check`` learns from Python whether the analysis works."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from unruly import installation

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_analysis_of_this_checkout_works():
    done = subprocess.run(
        [sys.executable, "-m", "unruly.installation"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["fault"] is None
    assert found["python"].startswith("3.")


def test_every_library_that_the_package_needs_is_imported():
    """A library without which a verdict or a report fails is noticed when it is missing."""
    program = "import sys; from unruly.installation import fault; fault(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [it.partition(">")[0].partition("[")[0] for it in project["dependencies"]]
    modules = {"ibis-framework": "ibis", "vl-convert-python": "vl_convert"}
    wanted = {modules.get(name, name) for name in named}
    assert wanted - set(done.stdout.split()) == set()


def test_a_library_that_cannot_be_imported_is_the_fault(monkeypatch):
    monkeypatch.setattr(installation, "MODULES", ("unruly.no_such_module",))
    assert installation.answer()["fault"] == (
        "ModuleNotFoundError: No module named 'unruly.no_such_module'"
    )
