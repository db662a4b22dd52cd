"""How a value looks in a notebook: one short line, or a small HTML table.

A result holds thousands of numbers, and Python prints the last line of every notebook cell. A class
that inherits from `Shown` says in `_sheet` what a reader wants to see of it; by default its fields,
of a table or a list only the length.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LINE_MAX: Final = 160
ROWS_MAX: Final = 12


@dataclass(frozen=True)
class Sheet:
    """What is shown of a value: a line, and perhaps a table with a note below it."""

    line: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    note: str = ""


class Shown:
    """A value with a short ``repr`` and a small table in a notebook."""

    def _sheet(self) -> Sheet:
        """Return what a reader wants to see of this value: by default, its fields in brief."""
        rows = [
            (it.name, _brief(getattr(self, it.name)))
            for it in fields(self)  # type: ignore[arg-type]
        ]
        told = [(name, text) for name, text in rows if text]
        line = ", ".join(f"{name}: {text}" for name, text in told)
        return Sheet(line, ("field", "value"), told)

    def __repr__(self) -> str:
        line = " ".join(self._sheet().line.split())
        short = line if len(line) <= LINE_MAX else line[: LINE_MAX - 3] + "..."
        return f"<{type(self).__name__} {short}>"

    def _repr_html_(self) -> str:
        """Return the value as a small HTML table, with all text escaped."""
        return html_of(self._sheet())


def html_of(sheet: Sheet) -> str:
    """Return a sheet as HTML; every text in it is escaped.

    It has no style of its own, so it takes the notebook's colours, light or dark.

    Examples
    --------
    >>> html_of(Sheet("<b> & co", note="one"))
    '<div><p><strong>&lt;b&gt; &amp; co</strong></p><p>one</p></div>'
    """
    parts = [f"<p><strong>{escape(sheet.line)}</strong></p>"]
    if sheet.rows:
        head = _row("th", sheet.columns)
        body = "".join(_row("td", row) for row in sheet.rows[:ROWS_MAX])
        parts.append(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")
    rest = len(sheet.rows) - ROWS_MAX
    notes = [f"and {rest:,} more rows"] if rest > 0 else []
    parts += [f"<p>{escape(text)}</p>" for text in [*notes, sheet.note] if text]
    return f"<div>{''.join(parts)}</div>"


def _brief(value: object) -> str:
    """A number or text as it is, the length of a table or a list; empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sized) and not isinstance(value, str):
        return f"{len(value):,}"
    return str(value)


def _row(tag: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>"
