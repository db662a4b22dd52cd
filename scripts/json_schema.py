"""JSON Schema (draft 2020-12) of frozen classes, as `unruly.base.plain` writes their values.

A dataclass is an object with a key for each field, and has its own entry in ``$defs``. A key is
required unless the field is marked with `unruly.contract.LEFT_OUT`. Descriptions come from the
docstrings of classes and fields. The metadata of ``Annotated`` adds keywords, or names the class of
the rows of a frame.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from unruly.contract import Keywords

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
Arguments = tuple[Any, ...]
Known = Mapping[Any, Any]
"""The argument of each type variable."""
NOTHING: Final[Known] = types.MappingProxyType({})
PLAIN: Final[dict[Any, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    types.NoneType: "null",
}
JSON: Final = {"None": "null", "True": "true", "False": "false"}
SECTION: Final = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)
"""The heading of a part of a docstring in numpy's manner."""
ATTRIBUTE: Final = re.compile(r"^(\w+(?:, \w+)*)(?: : [^\n]*)?\n((?: {4}[^\n]*\n?)*)", re.MULTILINE)


class Schema:
    """The schema of one document, with an entry in ``$defs`` for each class that it meets."""

    def __init__(self, *, closed: bool) -> None:
        """Make an empty schema. Objects below the top refuse unknown keys if it is `closed`."""
        self.closed = closed
        self.defs: dict[str, Any] = {}
        self._named: dict[str, Any] = {}
        self._writers: dict[Any, Callable[[Arguments, Known], Any]] = {
            Annotated: self._annotated,
            Literal: self._literal,
            Union: self._union,
            types.UnionType: self._union,
            list: self._array,
            tuple: self._array,
            dict: self._mapping,
            Mapping: self._mapping,
        }

    def document(self, top: type, *more: type, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of an object with the fields of all these classes.

        Parameters
        ----------
        top : type
            A dataclass. The first line of its docstring is the title, the rest the description.
        more : type
            Other dataclasses. `top` overrides a field of theirs that has the same name.
        parts : mapping of str to type
            Other keys, each with the type of its value.
        """
        title, _, text = _class_text(top).partition(". ")
        properties: dict[str, Any] = {}
        required: list[str] = []
        for kind in (top, *more):
            found = self._object(kind, NOTHING, but=frozenset(properties))
            properties |= found["properties"]
            required += found["required"]
        properties |= {name: self.of(kind) for name, kind in parts.items()}
        return {
            "$schema": DRAFT,
            "title": title.removesuffix("."),
            "description": text,
            "type": "object",
            "properties": properties,
            "required": [*required, *parts],
            "$defs": dict(sorted(self.defs.items())),
        }

    def of(self, kind: Any, known: Known = NOTHING) -> Any:
        """Return the schema of a type.

        Parameters
        ----------
        kind : object
            A type as `typing.get_type_hints` gives it.
        known : mapping of TypeVar to type
            The arguments of the generic class that it stands in.

        Raises
        ------
        TypeError
            JSON has no such type.
        """
        origin = get_origin(kind)
        if isinstance(kind, TypeVar):
            return self.of(known[kind], known)
        if kind in (Any, object):
            return {}
        if kind in PLAIN:
            return {"type": PLAIN[kind]}
        if origin in self._writers:
            return self._writers[origin](get_args(kind), known)
        if is_dataclass(origin or kind):
            return self._reference(kind, known)
        raise TypeError(f"{kind}: JSON has no such type; hint: write a field that JSON has")

    def _annotated(self, arguments: Arguments, known: Known) -> Any:
        kind, *extras = arguments
        rows = [it for it in extras if is_dataclass(it)]
        found = {"type": "array", "items": self.of(rows[0])} if rows else self.of(kind, known)
        for extra in extras:
            if isinstance(extra, Keywords):
                found = {**found, **extra.of}
        return found

    def _literal(self, values: Arguments, _: Known) -> Any:
        return {"const": values[0]} if len(values) == 1 else {"enum": list(values)}

    def _union(self, kinds: Arguments, known: Known) -> Any:
        """Return the schema of one type or null; other unions have no place in a contract."""
        others = [it for it in kinds if it is not types.NoneType]
        if len(others) != 1 or len(kinds) != 2:
            raise TypeError(f"{kinds}: a value of several types; hint: write one type, or None")
        found = self.of(others[0], known)
        if isinstance(found.get("type"), str):
            return {**found, "type": [found["type"], "null"]}
        if "enum" in found:
            return {**found, "enum": [*found["enum"], None]}
        return {"anyOf": [found, {"type": "null"}]}

    def _array(self, kinds: Arguments, known: Known) -> Any:
        found = {"type": "array", "items": self.of(kinds[0], known)}
        if len(kinds) == 1 or Ellipsis in kinds:
            return found
        if len(set(kinds)) != 1:
            raise TypeError(f"{kinds}: a tuple of several types; hint: write a class")
        return {**found, "minItems": len(kinds), "maxItems": len(kinds)}

    def _mapping(self, kinds: Arguments, known: Known) -> Any:
        values = self.of(kinds[1], known)
        return {"type": "object", **({"additionalProperties": values} if values else {})}

    def _reference(self, kind: Any, known: Known) -> dict[str, Any]:
        """Return a reference to the entry of a class, which is written when it is first met."""
        origin = get_origin(kind) or kind
        arguments = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=True))
        of = "".join(f"_of_{_snake(it.__name__)}" for it in arguments.values())
        name = f"{_snake(origin.__name__)}{of}"
        if self._named.setdefault(name, kind) != kind:
            raise TypeError(f"{name}: {kind} and {self._named[name]}; hint: rename one of them")
        if name not in self.defs:
            self.defs[name] = {}
            self.defs[name] = self._object(origin, {**known, **arguments})
        return {"$ref": f"#/$defs/{name}"}

    def _object(
        self, kind: type, known: Known, *, but: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        hints = get_type_hints(kind, localns=_imports(kind), include_extras=True)
        said = _field_texts(kind)
        properties, required = {}, []
        for it in fields(kind):
            if it.name in but:
                continue
            required += [] if "left_out" in it.metadata else [it.name]
            found = self.of(hints[it.name], known)
            text = {"description": said[it.name]} if it.name in said else {}
            properties[it.name] = {**found, **text}
        return {
            "description": _class_text(kind),
            "type": "object",
            "properties": properties,
            "required": required,
            **({"additionalProperties": False} if self.closed else {}),
        }


def returned(function: Callable[..., Any]) -> Any:
    """Return the type that a function says it returns.

    Raises
    ------
    TypeError
        It does not say so.
    """
    names = _names(sys.modules[function.__module__], frozenset(_annotations(function)))
    hints = get_type_hints(function, localns=names, include_extras=True)
    if "return" not in hints:
        raise TypeError(f"{function}: no return type; hint: write the class that it returns")
    return hints["return"]


def _annotations(of: Any) -> Iterator[str]:
    """Return every name in the annotations of a class or function."""
    for text in inspect.get_annotations(of).values():
        yield from re.findall(r"\w+", text if isinstance(text, str) else "")


def _imports(kind: type) -> dict[str, Any]:
    """Return what the annotations of a class name, and its module imports for type checks only."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        found = _names(sys.modules[base.__module__], frozenset(_annotations(base))) | found
    return found


@cache
def _names(module: types.ModuleType, wanted: frozenset[str]) -> dict[str, Any]:
    if not wanted:
        return {}
    found = {}
    for block in ast.parse(inspect.getsource(module)).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for it in block.body:
                for name in it.names if isinstance(it, ast.Import | ast.ImportFrom) else ():
                    shown = name.asname or name.name
                    if shown in wanted and isinstance(it, ast.ImportFrom):
                        found[shown] = getattr(import_module(str(it.module)), name.name)
                    elif shown in wanted:
                        found[shown] = import_module(name.name)
    return found


def _class_text(kind: type) -> str:
    """Return the docstring of a class without its sections.

    Raises
    ------
    TypeError
        It has none.
    """
    node = _source(kind)
    text = ast.get_docstring(node) if node else None
    if not text:
        raise TypeError(f"{kind}: no docstring; hint: say what the object is")
    return _words(SECTION.split(f"{text}\n")[0])


def _field_texts(kind: type) -> dict[str, str]:
    """Return the docstring of each field that has one, also in a section "Attributes"."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        node = _source(base)
        for before, it in zip(node.body, node.body[1:], strict=False) if node else ():
            if isinstance(before, ast.AnnAssign) and isinstance(it, ast.Expr):
                assert isinstance(before.target, ast.Name)
                found[before.target.id] = _words(ast.literal_eval(it.value))
        pieces = SECTION.split(f"{ast.get_docstring(node) or ''}\n" if node else "")
        for title, text in zip(pieces[1::2], pieces[2::2], strict=True):
            for names, said in ATTRIBUTE.findall(text) if title == "Attributes" else ():
                found |= {name: _words(said) for name in names.split(", ") if said.strip()}
    return found


def _source(kind: type) -> ast.ClassDef | None:
    """Return the class as it is written; None for one of Python's own, or another's."""
    if not is_dataclass(kind):
        return None
    (node,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    return node


def _words(text: str) -> str:
    """Write a docstring for readers of JSON: on one line, with JSON's names of values."""
    text = " ".join(text.replace("``", "`").split())
    text = re.sub(r"(^|\. )(None|True|False)\b", lambda it: it[1] + JSON[it[2]].title(), text)
    return re.sub(r"\b(None|True|False)\b", lambda it: JSON[it[1]], text)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
