"""The licences of the JavaScript in a page. They demand that every copy holds them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def licences() -> str:
    """Return the notices of Vega and of the libraries in it."""
    return files("unruly.html").joinpath("javascript.txt").read_text(encoding="utf-8")


def with_licences(page: str) -> str:
    """Return a page of Vega's own making with the notices before its end."""
    before, end, after = page.rpartition("</body>")
    inert = f'<script type="text/plain" id="licences">\n{licences()}</script>\n'
    return f"{before}{inert}{end}{after}"
