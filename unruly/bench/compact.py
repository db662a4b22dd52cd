"""JSON that a reader can compare line by line: a line for each series and each record.

``python -m bench.compact FILE ...`` rewrites files in place, for example the ``summary.json`` of a
run that is kept beside the benchmarks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def text(value: Any) -> str:
    """Return JSON with a newline at its end.

    An array of numbers, of strings or of arrays is a series and stands on one line. In an array of
    objects each object is a record and stands on one line. An object outside of an array has a line
    for each of its members, unless all of them are scalars.

    Raises
    ------
    TypeError
        If a value is neither JSON nor can be read as a number.

    Examples
    --------
    >>> print(text({"a": [1, 2], "b": [{"c": [3]}, {"c": [4]}], "d": {"e": 5, "f": 6}}), end="")
    {
     "a": [1, 2],
     "b": [
      {"c": [3]},
      {"c": [4]}
     ],
     "d": {"e": 5, "f": 6}
    }
    """
    return _laid_out(value, "") + "\n"


def _laid_out(value: Any, indent: str) -> str:
    if isinstance(value, dict) and any(isinstance(it, dict | list) for it in value.values()):
        members = [f"{json.dumps(key)}: {_laid_out(it, indent + ' ')}" for key, it in value.items()]
        return _lines("{", members, "}", indent)
    if isinstance(value, list) and any(isinstance(it, dict) for it in value):
        return _lines("[", [_line(it) for it in value], "]", indent)
    return _line(value)


def _lines(opened: str, members: list[str], closed: str, indent: str) -> str:
    return f"{opened}\n{indent} " + f",\n{indent} ".join(members) + f"\n{indent}{closed}"


def _line(value: Any) -> str:
    return json.dumps(value, default=float)


def main() -> None:
    """Rewrite the named files."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(text(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
