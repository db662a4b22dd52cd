"""The promises of JSON beyond the types of Python: bounds, patterns, and keys that may be missing.

``make pages`` writes the schemas in ``unruly/schema`` from the frozen classes of an analysis. A
class is a JSON object, and its fields are the keys. The docstrings become descriptions. What a type
cannot say is the second part of an ``Annotated`` type. It is `Keywords`, or the class of the rows
of a frame.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal


class Keywords:
    """Keywords of JSON Schema, for the second part of an ``Annotated`` type."""

    def __init__(self, **of: object) -> None:
        """Take each keyword with its value, such as ``minimum=0``."""
        self.of: Final = of


Count = Annotated[int, Keywords(minimum=0)]
Positive = Annotated[int, Keywords(minimum=1)]
Share = Annotated[float, Keywords(minimum=0, maximum=1)]
Level = Annotated[float, Keywords(exclusiveMinimum=0, exclusiveMaximum=1)]
NotBelowZero = Annotated[float, Keywords(minimum=0)]
OrNull = Annotated[float, Keywords(type=["number", "null"])]
"""A number that may be NaN or infinite. JSON has neither: there it is null."""
Sentence = Annotated[str, Keywords(minLength=1)]
Absent = Annotated[
    dict[str, str], Keywords(description="Name of a null field (or field.high) to the reason.")
]
Latency = Literal["response", "service"]
Refusal = Literal["A1", "A2a", "A2b", "short"]
"""Why a percentile has no interval."""

LEFT_OUT: Final = {"left_out": True}
"""Metadata of a field. JSON omits the marked fields of a value where all of them are empty."""
