"""Take a picture of a report: ``python unruly/docs/screenshot.py REPORT.html OUT.png [WIDTH]``.

Needs the package ``playwright`` and a Chromium that is already installed (``/usr/bin/chromium``, or
where ``$CHROMIUM`` points); nothing is downloaded, and the page is given no network.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PHONE = (390, 844)
LAPTOP_HEIGHT = 1000
DRAWN = "document.documentElement.dataset.figures === 'done'"


def main() -> None:
    """Parse, take the picture, say where it is."""
    parser = argparse.ArgumentParser(description="take a picture of an unruly report")
    parser.add_argument("report", type=Path, metavar="REPORT.html")
    parser.add_argument("output", type=Path, metavar="OUT.png")
    parser.add_argument(
        "width", type=int, nargs="?", default=1400, help="CSS pixels (default 1400)"
    )
    parser.add_argument("--height", type=int, default=None, help="CSS pixels of the window")
    parser.add_argument(
        "--phone", action="store_true", help="390 x 844, touch, 2 pixels to the CSS pixel"
    )
    parser.add_argument(
        "--dark", action="store_true", help="as a reader with a dark scheme sees it"
    )
    parser.add_argument("--full", action="store_true", help="the whole page, not its top")
    parser.add_argument("--at", default="", help="scroll to this element first: '#where'")
    given = parser.parse_args()
    shoot(given)
    sys.stdout.write(f"{given.output}\n")


def shoot(given: argparse.Namespace) -> None:
    """Open the report and write the picture."""
    width = PHONE[0] if given.phone else given.width
    height = given.height or (PHONE[1] if given.phone else LAPTOP_HEIGHT)
    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": width, "height": height},
            is_mobile=given.phone,
            has_touch=given.phone,
            device_scale_factor=2 if given.phone else 1,
            color_scheme="dark" if given.dark else "light",
            offline=True,
        )
        page.goto(given.report.resolve().as_uri())
        page.wait_for_function(DRAWN, timeout=60_000)
        if given.at:
            page.eval_on_selector(given.at, "e => e.scrollIntoView({behavior: 'instant'})")
            page.wait_for_timeout(400)
        page.screenshot(path=str(given.output), full_page=given.full)
        browser.close()


if __name__ == "__main__":
    main()
