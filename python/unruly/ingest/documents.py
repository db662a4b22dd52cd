"""A whole JSON document, for tools that write one small one; bounded, and read exactly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import IngestError

if TYPE_CHECKING:
    from unruly.ingest.source import Source

BYTES_MAX: Final = 256 << 20


def document(source: Source) -> dict[str, Any]:
    """Return the object that the file holds.

    Raises
    ------
    IngestError
        When it is no JSON object, or over 256 MiB: what is written so is a summary.
    """
    data = bytearray()
    for chunk in source.chunks():
        data += chunk
        if len(data) > BYTES_MAX:
            raise IngestError(
                source.where, f"is over {BYTES_MAX >> 20} MiB", "one summary", "split it"
            )
    try:
        found = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise IngestError(
            source.where, f"is no JSON: {error}", "one JSON object", "copy it again, whole"
        ) from error
    if not isinstance(found, dict):
        raise IngestError(source.where, "is no JSON object", "one JSON object", "look at it")
    return found
