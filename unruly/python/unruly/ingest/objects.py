"""JSON objects from a file: one a line, several on a line, pretty-printed, or in arrays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import ijson

from unruly.errors import IngestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unruly.ingest.source import Sample, Source

_DECODER = json.JSONDecoder()
PARTS_MAX: Final = 1_000_000
"""Keys, values and brackets of one object: an object for each request has a few dozen."""


def first_objects(sample: Sample, most: int = 50) -> list[dict[str, Any]]:
    """Objects at the beginning of a file, whether separated or not; [] when it is no JSON."""
    found: list[dict[str, Any]] = []
    text, place = sample.text.lstrip(), 0
    while place < len(text) and len(found) < most:
        while place < len(text) and text[place] in "[], \t\n":
            place += 1
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict):
            found.append(value)
    return found


def objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object of the file, with the line on which it begins.

    Where objects stand on lines of their own, one that is broken is refused and the next is read.
    Where they span lines, the line is that of the file's beginning plus its number, and a broken
    one ends the import, since nothing says where the next begins.

    Raises
    ------
    IngestError
        When objects that span lines are broken or cut off.
    """
    if _on_lines(source.sample):
        yield from _from_lines(source)
    else:
        yield from _from_stream(source)


def _on_lines(sample: Sample) -> bool:
    text = sample.text.lstrip()
    if not text.startswith("{"):
        return False
    line = text.split("\n", 1)[0]
    try:
        _DECODER.raw_decode(line)
    except (ValueError, RecursionError):
        return "\n" not in text  # a single line that is longer than the sample
    return True


def _from_lines(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in source.lines():
        text, place = line.strip(), 0
        while place < len(text):
            source.complaints.lines += 1
            try:
                value, place = _DECODER.raw_decode(text, place)
            except (ValueError, RecursionError) as error:
                source.complaints.refuse(number, f"no JSON: {_said(error)}")
                break
            if isinstance(value, dict):
                yield number, value
            else:
                source.complaints.refuse(number, "no JSON object")
            while place < len(text) and text[place] in " ,\t":
                place += 1


def _from_stream(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects at the top, in an array, or in arrays of arrays."""
    stream, number = source.stream(), 0
    events = ijson.basic_parse(stream, multiple_values=True, use_float=True)
    depth = parts = 0
    builder: Any = None
    try:
        for event, value in events:
            if builder is None:
                if event != "start_map":
                    continue
                builder, depth, parts = ijson.ObjectBuilder(), 0, 0
            parts += 1
            if parts > PARTS_MAX:
                raise IngestError(
                    source.where,
                    f"object {number + 1:,} has more than {PARTS_MAX:,} values",
                    "an object for each request",
                    "look at it: it is not one that this tool writes",
                )
            builder.event(event, value)
            depth += (event in ("start_map", "start_array")) - (event in ("end_map", "end_array"))
            if depth == 0:
                number += 1
                source.complaints.lines += 1
                yield number, builder.value
                builder = None
    except ijson.JSONError as error:
        raise IngestError(
            source.where,
            f"the JSON is broken or cut off after object {number:,}: {_said(error)}",
            "whole JSON values",
            "copy it again, or cut it after the last whole object",
        ) from error


def _said(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n")[0].strip()
