"""One HTML file that opens with no network: the figures' JavaScript is inside it, once.

What comes from a run is untrusted text. The template escapes it; inside the JSON of the figures
every ``<``, ``>`` and ``&`` is written as an escape, so that no string can end the script element;
and a content security policy lets nothing run but the two scripts of this page, by their hashes,
and lets nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import vl_convert
from markupsafe import Markup

from unruly.report import format
from unruly.report.sections import sections
from unruly.report.verdict import verdict
from unruly.report.view import View, views_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from unruly.findings.model import Analysis
    from unruly.report.document import Section

SEVERITY_WORDS = {"spoils": "Spoils the run", "warns": "Warning", "informs": "Note"}


def write_report(analyses: Sequence[Analysis], output: str | os.PathLike[str]) -> Path:
    """Write one HTML page about one run, or about several that are compared.

    Parameters
    ----------
    analyses : sequence of Analysis
        At least one. Several are put side by side by their tag.
    output : path-like
        The file to write; its directory is made. An older file is replaced at once.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    ValueError
        If `analyses` is empty.
    """
    if not analyses:
        raise ValueError("analyses is empty; wanted at least one run; hint: unruly report DIR")
    page = render(analyses)
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(path.name + ".part")
    half.write_text(page, encoding="utf-8")
    half.replace(path)
    return path


def render(analyses: Sequence[Analysis]) -> str:
    """Return the page as text."""
    views = views_of(analyses)
    found = sections(views)
    engine, script = _bundle(), _package_text("page.js")
    template = _environment().get_template("template.html")
    return template.render(
        title=_title(views),
        headline=_headline(views),
        views=views,
        verdicts=[verdict(view) for view in views],
        sections=found,
        specs=_specs(found),
        style=Markup(_package_text("style.css")),
        engine=Markup(engine),
        script=Markup(script),
        hashes=[_hash(engine), _hash(script)],
        severity=SEVERITY_WORDS,
        dash=format.DASH,
    )


def embedded(value: Any) -> Markup:
    """Return JSON that is inert inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _specs(found: Sequence[Section]) -> Markup:
    panels: dict[str, Any] = {}
    for section in found:
        for part in section.parts:
            for figure in part.figures:
                for index, panel in enumerate(figure.panels):
                    panels[f"{figure.key}-{index}"] = panel.spec
    return embedded(panels)


def _title(views: Sequence[View]) -> str:
    return f"{_headline(views)} · unruly report"


def _headline(views: Sequence[View]) -> str:
    names = list(dict.fromkeys(view.analysis.run.name for view in views))
    return format.listing(names, 3)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_package_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["number_of"] = _number_of
    return environment


def _number_of(reasons: Sequence[str], reason: str) -> int:
    return list(reasons).index(reason) + 1


@cache
def _bundle() -> str:
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # An end tag inside a string of the bundle would end the element that holds it.
    return bundle.replace("</script", "<\\/script")


def _package_text(name: str) -> str:
    return files("unruly.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode(
        "ascii"
    )
