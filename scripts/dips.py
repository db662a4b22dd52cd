"""Write the table of dips of uniform samples, ``unruly/stats/dips.npz``.

Run ``PYTHONPATH=unruly/python python scripts/dips.py`` when the dip, the seed or the number of
draws changes. A test compares the table with new draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from unruly.stats import dip, dips

SIZES: Final = (500, 1000)
"""The sizes that a verdict asks for most: of the cells of a matrix, and of a thinned sample."""

if __name__ == "__main__":
    place = Path(dips.__file__).with_name(dips.NAME)
    np.savez(place, **{str(size): dip.draw(size) for size in SIZES})
