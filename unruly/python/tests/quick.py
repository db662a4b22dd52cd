"""An analysis of the numbers alone, in half the time."""

from __future__ import annotations

import unruly


def numbers(path, **options):
    """Analyse a run without causes and without what only a report shows."""
    return unruly.analyse(unruly.open_run(path), **{"causes": False, "pictures": False, **options})
