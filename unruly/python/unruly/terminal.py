"""What may reach a terminal or a document of names that come from files and servers.

A terminal gets no control characters but the ends of lines and our own colours, so that a name
cannot clear the screen or hide a line.
"""

from __future__ import annotations

import re
from typing import Any, Final

SHOWN: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for what may not be shown."""
_CONTROL: Final = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
"""Also marks of direction, which reorder a line, ends of lines that only some know, and what XML
forbids."""
_OURS: Final = re.compile(rf"(\x1b\[(?:[01]|3[0-7])?m|[\n\t])|{_CONTROL}")
_ANY: Final = re.compile(_CONTROL)


def printable(text: str) -> str:
    r"""Return the text with a mark for each control character but ends of lines, tabs and colours.

    Examples
    --------
    >>> printable("a\x1b[2Jb\x1b[31mred\x1b[0m\n")
    'a�[2Jb\x1b[31mred\x1b[0m\n'
    """
    return _OURS.sub(lambda found: found[1] or SHOWN, text)


def plain(text: str) -> str:
    r"""Return one line without any control character: a name, or a text of an XML document.

    Examples
    --------
    >>> plain("read\nheld\x1b[0m")
    'read�held�[0m'
    """
    return _ANY.sub(SHOWN, text)


def plain_all(value: Any) -> Any:
    """Return a document of JSON or TOML in which each text, keys included, is :func:`plain`."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [plain_all(it) for it in value]
    if isinstance(value, dict):
        return {plain_all(key): plain_all(it) for key, it in value.items()}
    return value
