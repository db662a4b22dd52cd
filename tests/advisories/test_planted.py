"""A planted vulnerable pin is reported by the real tools. `make advisories` installs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".cache" / "advisories" / "bin"
CHECK = ROOT / "scripts" / "advisories" / "check.py"
ADVISORY = """```toml
[advisory]
id = "RUSTSEC-2099-0001"
package = "{package}"
date = "2099-01-01"

[versions]
patched = [">= {patched}"]
```

# A hole that was planted

Nothing is wrong with the crate.
"""


@pytest.fixture(autouse=True)
def tools() -> None:
    """Both tools, which come from a registry."""
    if all((TOOLS / name).is_file() for name in ("cargo-audit", "pip-audit")):
        return
    if os.environ.get("CI") == "true":
        pytest.fail("the tools of `make advisories` could not be had; under CI nothing is skipped")
    pytest.skip("the tools of `make advisories` could not be had")


def check(tmp_path: Path, package: str, patched: str, requirements: str) -> tuple[int, str]:
    """Run the check with RustSec's form of a database, and one Python pin."""
    place = tmp_path / "database" / "crates" / package
    place.mkdir(parents=True)
    text = ADVISORY.format(package=package, patched=patched)
    (place / "RUSTSEC-2099-0001.md").write_text(text)
    pins = tmp_path / "requirements.lock"
    pins.write_text(requirements)
    done = subprocess.run(
        [sys.executable, CHECK, "--tools", TOOLS, "--requirements", pins],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ADVISORY_DB": str(tmp_path / "database")},
    )
    return done.returncode, done.stdout + done.stderr


def test_a_crate_with_an_advisory_is_reported(tmp_path: Path) -> None:
    code, said = check(tmp_path, "bytes", "99.0.0", "")
    assert code == 1, said
    assert "VULNERABLE bytes 1." in said
    assert "RUSTSEC-2099-0001 A hole that was planted" in said


def test_an_advisory_that_a_pin_has_mended_is_not_reported(tmp_path: Path) -> None:
    code, said = check(tmp_path, "bytes", "1.0.0", "")
    assert code == 0, said
    assert "VULNERABLE" not in said
    assert "crates looked up in 1 advisories" in said


def test_a_vulnerable_python_pin_is_reported_or_called_unchecked(tmp_path: Path) -> None:
    """Jinja2 2.10 lets a template leave its sandbox (CVE-2019-10906)."""
    code, said = check(tmp_path, "bytes", "1.0.0", "jinja2==2.10\n")
    vulnerable, unchecked = "VULNERABLE jinja2 2.10" in said, "NOT CHECKED Python" in said
    assert vulnerable != unchecked, said
    assert code == (1 if vulnerable else 0)
