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
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from unruly.drawing import format
from unruly.drawing.bundle import prepare
from unruly.drawing.chart import one_line
from unruly.drawing.document import Chapter, Page
from unruly.drawing.measured import Measured
from unruly.drawing.view import View, views_of
from unruly.html import several
from unruly.html.javascript import licences
from unruly.html.sections import advice_alone, sections
from unruly.html.verdict import verdict

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from unruly.base.analysis import Analysis
    from unruly.base.comparison import Comparison
    from unruly.drawing.document import Section
    from unruly.topics.advice.model import Advice

SEVERITY_WORDS = {"spoils": "Spoils the run", "warns": "Warning", "informs": "Note"}


def write_report(
    analyses: Sequence[Analysis],
    output: str | os.PathLike[str],
    advice: Sequence[Advice | None] | None = None,
    *,
    names: Sequence[str] = (),
    comparison: Comparison | None = None,
) -> Path:
    """Write one HTML page about one run, or about several that are compared.

    Parameters
    ----------
    analyses : sequence of Analysis
        At least one.
    output : path-like
        The file to write; its directory is made. An older file is replaced at once.
    advice : sequence of Advice or None, optional
        Of each run; drawn under "What would help?".
    names : sequence of str, optional
        What several runs are called; by default the environment or the name of each.
    comparison : Comparison, optional
        Of several runs: whether they differ. It stands first.

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
    return _write(render(analyses, advice, names=names, comparison=comparison), output)


def write_sections(headline: str, found: Sequence[Section], output: str | os.PathLike[str]) -> Path:
    """Write a page of other sections: a comparison. Replaces an older file at once."""
    return write_page(Page(headline, sections=tuple(found)), output)


def write_page(page: Page, output: str | os.PathLike[str]) -> Path:
    """Write a page as one HTML file and return its path. Replaces an older file at once."""
    with debug_mode(False):
        return _write(_fill(page, prepare().result()), output)


def write_advice(analysis: Analysis, advice: Advice, output: str | os.PathLike[str]) -> Path:
    """Write one HTML page of advice alone: the answers, and what would help.

    Parameters
    ----------
    analysis : Analysis
        Of the run: whether it can be trusted stands first.
    advice : Advice
        As `unruly.advise` gives it.
    output : path-like
        The file to write; its directory is made. An older file is replaced at once.

    Returns
    -------
    Path
        The file that was written.
    """
    return _write(render([analysis], [advice], alone=True), output)


def _write(page: str, output: str | os.PathLike[str]) -> Path:
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(path.name + ".part")
    # a new file: never write through a link of this name
    half.unlink(missing_ok=True)
    with half.open("x", encoding="utf-8", errors="replace", newline="\n") as file:
        file.write(page)
    half.replace(path)
    return path


def render(
    analyses: Sequence[Analysis],
    advice: Sequence[Advice | None] | None = None,
    *,
    names: Sequence[str] = (),
    comparison: Comparison | None = None,
    alone: bool = False,
) -> str:
    """Return the page as text; only the advice if `alone`."""
    views = views_of(analyses, advice, names)
    bundling = prepare()
    # checking each datum against Vega-Lite's schema would take as long as all the rest; the tests
    # check the charts instead
    with debug_mode(False):
        page = _single(views[0], alone) if len(views) == 1 else _several(views, comparison)
        return _fill(page, bundling.result())


def _single(view: View, alone: bool) -> Page:
    measured, shown = Measured.of(view.analysis.run), verdict(view)
    return Page(
        measured.name,
        measured.sentence,
        measured.command,
        measured.started,
        shown.statements,
        shown,
        tuple(advice_alone(view) if alone else sections(view)),
    )


def _several(views: Sequence[View], comparison: Comparison | None) -> Page:
    chapters = [
        Chapter(
            f"run-{view.place}",
            view.label,
            Measured.of(view.analysis.run),
            verdict(view, alone=False),
            tuple(replace(it, key=f"{it.key}-{view.place}") for it in sections(view)),
        )
        for view in views
    ]
    labels = [view.label for view in views]
    against = f"{format.listing(labels[1:], 3)} against {labels[0]}"
    sentences = {chapter.measured.sentence for chapter in chapters}
    return Page(
        against,
        sentences.pop() if len(sentences) == 1 else "",
        kicker=f"{len(views)} runs compared",
        statements=several.headlines(comparison),
        sections=tuple(several.compared(views, comparison)),
        chapters=tuple(chapters),
    )


def _fill(page: Page, engine: str) -> str:
    script = _package_text("page.js")
    return (
        _environment()
        .get_template("template.html")
        .render(
            page=page,
            specs=_specs(page),
            style=Markup(_package_text("style.css")),
            engine=Markup(engine),
            script=Markup(script),
            hashes=[_hash(engine), _hash(script)],
            severity=SEVERITY_WORDS,
            licences=licences(),
        )
    )


def embedded(value: Any) -> Markup:
    """Return JSON that is inert inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _specs(page: Page) -> Markup:
    panels = {
        f"{figure.key}-{index}": one_line(panel.spec)
        for figure in page.figures
        for index, panel in enumerate(figure.panels)
    }
    return embedded(panels)


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


def _package_text(name: str) -> str:
    return files("unruly.html").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode(
        "ascii"
    )
