"""Whether two documents say the same: every value of one against every value of the other."""

from __future__ import annotations

import math


def leaves(value, place=""):
    """Yield every value of a document with its place; of a list also its length."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield from leaves(held, f"{place}.{key}")
    elif isinstance(value, list):
        yield f"{place}.length", len(value)
        for number, held in enumerate(value):
            yield from leaves(held, f"{place}[{number}]")
    else:
        yield place, value


def differences(one, other):
    """Where two documents differ by more than the order of a sum explains."""
    one, other = dict(leaves(one)), dict(leaves(other))
    found = [(place, one.get(place), other.get(place)) for place in one.keys() ^ other.keys()]
    for place in one.keys() & other.keys():
        a, b = one[place], other[place]
        if isinstance(a, float) and isinstance(b, float):
            same = math.isclose(a, b, rel_tol=1e-9)
        else:
            same = a == b and type(a) is type(b)
        if not same:
            found.append((place, a, b))
    return sorted(found, key=str)
