"""The parser of each verb, built from ``options.toml``.

The program ``unruly`` builds its help, completions and man pages from the same table.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TABLE: Final = Path(__file__).with_name("options.toml")
SHARED: Final = "shared"
_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str,
    "file": Path,
    "directory": str,
    "integer": int,
    "number": float,
}
_COUNTS: Final[Mapping[str, dict[str, Any]]] = {
    "some": {"nargs": "+"},
    "any": {"nargs": "*"},
    "repeat": {"action": "append"},
}


class Verbs:
    """A parser of all verbs in the table.

    Parameters
    ----------
    runs : mapping of str to callable
        The function that carries out each verb: it takes the options and returns the exit code.
    """

    def __init__(self, runs: Mapping[str, Callable[[argparse.Namespace], int]]) -> None:
        self._table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
        self._parser = argparse.ArgumentParser(prog="unruly", description="Analyse a run.")
        self._verbs = self._parser.add_subparsers(required=True, metavar="VERB")
        for name, run in runs.items():
            self._add(name).set_defaults(run=run)

    def parse(self, words: list[str] | None) -> argparse.Namespace:
        """Parse a command line; ends the process when it is wrong or asks for help."""
        return self._parser.parse_args(words)

    def _add(self, name: str) -> argparse.ArgumentParser:
        verb = self._table[name]
        examples = "".join(
            f"\n  {command}\n      {purpose}" for command, purpose in verb["examples"]
        )
        parser = self._verbs.add_parser(
            name,
            help=verb["about"],
            description=verb["about"],
            epilog=f"Exit codes: {verb['exit']}\n\nExamples:{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        groups: dict[str, Any] = {}
        for argument in self._arguments(verb):
            group = argument.get("group")
            if group and group not in groups:
                groups[group] = parser.add_mutually_exclusive_group(required=True)
            _declare(groups[group] if group else parser, argument)
        return parser

    def _arguments(self, verb: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        yield from verb.get("argument", [])
        for name in verb["shared"]:
            yield {"name": name, **self._table[SHARED][name]}


def _declare(parser: argparse._ActionsContainer, argument: Mapping[str, Any]) -> None:
    """Declare one argument of a verb."""
    options: dict[str, Any] = {"help": argument["help"].replace("%", "%%")}
    if "default" in argument:
        options["help"] += f" [default: {argument['default']}]"
    many = argument.get("many")
    if "value" not in argument:
        options["action"] = "store_true"
    else:
        options["metavar"] = argument["value"]
        options["type"] = _TYPES[argument.get("kind", "text")]
        options["default"] = argument.get("default", [] if many else None)
        options |= _COUNTS.get(str(many), {})
    name = argument["name"]
    if argument.get("place"):
        parser.add_argument(name, **options)
        return
    if argument.get("required"):
        options["required"] = True
    letters = [f"-{argument['short']}"] if "short" in argument else []
    parser.add_argument(*letters, f"--{name.replace('_', '-')}", **options)
