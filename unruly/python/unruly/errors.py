"""What can go wrong, as one tree.

::

    UnrulyError            exit code 2, message `<where>: <what>; <wanted>; hint: <next step>`
    ├── RunError           the directory is not there, or is not a run
    ├── TraceError         the files do not hold what they say (schema, truncation, conservation)
    ├── RecoveryError      the run was cut off and could not be recovered
    ├── IngestError        another tool's output cannot be imported
    ├── ExportError        a run cannot be written in another tool's form
    ├── PaperError         a claim of a paper cannot be judged
    ├── ComparisonError    runs cannot be compared
    ├── PlotError          a figure has nothing to draw, or cannot be written
    ├── UnknownNameError   no operation or cell has this name (also a KeyError)
    ├── EngineError        the engine is unknown, or what it needs is not installed
    └── ParameterError     an argument is out of its range
"""

from __future__ import annotations

__all__ = [
    "ComparisonError",
    "EngineError",
    "ExportError",
    "IngestError",
    "PaperError",
    "ParameterError",
    "PlotError",
    "RecoveryError",
    "RunError",
    "TraceError",
    "UnknownNameError",
    "UnrulyError",
]


class UnrulyError(Exception):
    """The root of every error that this package raises on purpose.

    Parameters
    ----------
    where : str
        A file, a directory, or the name of an argument.
    what : str
        What is wrong, with the value.
    wanted : str
        What was wanted instead.
    hint : str
        The next step.
    """

    def __init__(self, where: object, what: str, wanted: str = "", hint: str = "") -> None:
        self.where, self.what, self.wanted, self.hint = str(where), what, wanted, hint
        parts = [f"{where}: {what}"]
        if wanted:
            parts.append(wanted)
        if hint:
            parts.append(f"hint: {hint}")
        super().__init__("; ".join(parts))


class RunError(UnrulyError):
    """The directory is not there, or is not a run."""


class TraceError(UnrulyError):
    """The files of the run do not hold what they say."""


class RecoveryError(UnrulyError):
    """The run was cut off and could not be recovered."""


class IngestError(UnrulyError):
    """Another tool's output cannot be imported."""


class ExportError(UnrulyError):
    """A run cannot be written in another tool's form."""


class PaperError(UnrulyError):
    """A claim of a paper cannot be judged."""


class ComparisonError(UnrulyError):
    """Runs cannot be compared."""


class EngineError(UnrulyError):
    """The engine is unknown, or what it needs is not installed."""


class ParameterError(UnrulyError, ValueError):
    """An argument is out of its range."""


class PlotError(UnrulyError):
    """A figure has nothing to draw, or cannot be written in this form."""


class UnknownNameError(UnrulyError, KeyError):
    """No operation, cell or latency of the run has this name."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would print the message in quotes
