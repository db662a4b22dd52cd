"""A real Chromium for the report's tests: a page is judged where a reader reads it.

Under ``CI=true`` a missing Chromium is a failure; elsewhere the tests are skipped, and say so.
Run as root, the browser is started in a network namespace of its own, which has no network at all.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
LAPTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
DRAWN = "document.documentElement.dataset.figures === 'done'"


def _absent(what: str):
    sentence = f"{what}: the report is not looked at in a browser"
    if os.environ.get("CI") == "true":
        pytest.fail(
            sentence + "; CI must have it (apt-get install chromium, pip install playwright)"
        )
    pytest.skip(sentence)


def _isolated(directory: Path) -> str:
    """Return a command that starts Chromium without a network, where that is allowed."""
    unshare = shutil.which("unshare")
    allowed = unshare and subprocess.run([unshare, "-n", "true"], check=False, capture_output=True)
    if not allowed or allowed.returncode != 0:
        return CHROMIUM
    script = directory / "chromium-without-network"
    script.write_text(f'#!/bin/sh\nexec {unshare} -n {CHROMIUM} "$@"\n', encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _absent("the package playwright is not installed")
    if not Path(CHROMIUM).is_file():
        _absent(f"no Chromium at {CHROMIUM}")
    with sync_playwright() as player:
        command = _isolated(tmp_path_factory.mktemp("chromium"))
        browser = player.chromium.launch(executable_path=command, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page that was opened, and everything that it complained about or asked for."""

    page: object
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def ask(self, script: str):
        return self.page.evaluate(script)


@pytest.fixture
def look(chromium):
    """Open a report as a reader does and wait until its figures are drawn."""
    contexts = []

    def opened(path: Path, size=None, scheme: str = "light") -> Opened:
        size = size or LAPTOP
        context = chromium.new_context(
            viewport=size, color_scheme=scheme, is_mobile=size is PHONE, has_touch=size is PHONE
        )
        contexts.append(context)
        seen = Opened(context.new_page())
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.on(
            "console", lambda m: seen.errors.append(m.text) if m.type in ("error", "warning") else 0
        )
        seen.page.on("request", lambda request: seen.requests.append(request.url))

        def closed(dialog):
            seen.dialogs.append(dialog.message)
            dialog.dismiss()

        seen.page.on("dialog", closed)
        seen.page.goto(path.resolve().as_uri())
        seen.page.wait_for_function(DRAWN, timeout=60_000)
        return seen

    yield opened
    for context in contexts:
        context.close()
