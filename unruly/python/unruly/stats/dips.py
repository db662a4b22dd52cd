"""Dips of seeded uniform samples that ship with the package, because drawing them takes long.

``dips.npz`` holds an array of 500 doubles for each of some sizes, named after the size. A test
compares them with new draws, and ``scripts/dips.py`` writes them.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME: Final = "dips.npz"


@lru_cache(maxsize=1)
def kept() -> dict[int, NDArray[np.float64]]:
    """Return the dips of each size that is kept: size to an array of shape (500,), unitless."""
    with files("unruly.stats").joinpath(NAME).open("rb") as file, np.load(file) as table:
        return {int(size): table[size] for size in table.files}
