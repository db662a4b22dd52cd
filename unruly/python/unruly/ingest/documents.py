"""A whole JSON document, for tools that write one small one; bounded, and read exactly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import IngestError

if TYPE_CHECKING:
    from unruly.ingest.source import Source

BYTES_MAX: Final = 64 << 20
"""Python's objects take ten to thirty times as much."""
INFLATION_MAX: Final = 50
INFLATED_FREE: Final = 1 << 20
"""A compressed document that is more times as long, beyond the first MiB, is made to harm."""


def document(source: Source) -> dict[str, Any]:
    """Return the object that the file holds.

    Raises
    ------
    IngestError
        As `parsed`, and if the file holds no JSON object.
    """
    found = parsed(source)
    if not isinstance(found, dict):
        raise IngestError(source.where, "is no JSON object", "one JSON object", "look at it")
    return found


def parsed(source: Source) -> Any:
    """Return the JSON value that the file holds.

    Raises
    ------
    IngestError
        If the file holds no JSON, if it is over 64 MiB (a summary is smaller), or if it inflates to
        much more than its compressed size.
    """
    data = bytearray()
    for chunk in source.chunks():
        data += chunk
        if len(data) > BYTES_MAX:
            raise IngestError(
                source.where, f"is over {BYTES_MAX >> 20} MiB", "one summary", "split it"
            )
        if len(data) > INFLATED_FREE + INFLATION_MAX * source.size:
            raise IngestError(
                source.where,
                f"inflates to more than {INFLATION_MAX} times its size",
                "one summary",
                "look at it: a tool's file does not compress so well",
            )
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise IngestError(
            source.where, f"is no JSON: {error}", "one JSON object", "copy it again, whole"
        ) from error
