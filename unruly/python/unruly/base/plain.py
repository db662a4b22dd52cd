"""Values of an analysis as JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable


def plain(value: Any, key: Callable[[Any], str] = str) -> Any:
    """Return a value as JSON has it, by the rules that its schema is written by.

    Parameters
    ----------
    value : object
        A dataclass becomes an object with a key for each field, without the fields that
        `unruly.contract.LEFT_OUT` marks where all of them are empty. A frame becomes a list with an
        object for each row. NaN and infinity become None.
    key : callable
        Returns the text of a key of a dict.

    Returns
    -------
    object
        Of dicts, lists, str, int, float, bool and None.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(held, key) for name, held in _held(value)}
    if isinstance(value, pd.DataFrame):
        return plain(value.to_dict("records"), key)
    if isinstance(value, Mapping):
        return {key(name): plain(held, key) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [plain(held, key) for held in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def _held(value: Any) -> list[tuple[str, Any]]:
    """Return the fields of a dataclass that JSON has."""
    found = [(it, getattr(value, it.name)) for it in fields(value)]
    empty = not any(held for it, held in found if "left_out" in it.metadata)
    return [(it.name, held) for it, held in found if not (empty and "left_out" in it.metadata)]
