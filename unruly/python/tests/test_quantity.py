"""One formatter: three significant digits, a unit from 1 to 1,000, and nobody else does it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unruly import quantity

SOURCE = Path(quantity.__file__).parent
GOLDEN = Path(__file__).resolve().parents[2] / "schema" / "golden" / "quantities.tsv"
DURATIONS = [
    (0.0, "0 s"), (0.4, "0.4 ns"), (1.0, "1 ns"), (999.4, "999 ns"), (999.6, "1 µs"),
    (1_000.0, "1 µs"), (12_345.0, "12.3 µs"), (598_000.0, "598 µs"), (999_400.0, "999 µs"),
    (999_600.0, "1 ms"), (1_304_000.0, "1.3 ms"), (20e6, "20 ms"), (999.6e6, "1 s"),
    (5.603e9, "5.6 s"), (59.94e9, "59.9 s"), (90e9, "90 s"), (119e9, "119 s"), (120e9, "2 min"),
    (1_800e9, "30 min"), (7_199e9, "120 min"), (7_200e9, "2 h"), (172_800e9, "2 d"),
    (None, "–"), (float("nan"), "–"), (float("inf"), "–"),
]  # fmt: skip
SHARES = [
    (0.0, "0 %"), (1e-7, "<0.001 %"), (0.00042, "0.042 %"), (0.0123, "1.23 %"), (0.5, "50 %"),
    (0.528, "52.8 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.99999, "99.999 %"),
    (0.999987, "99.9987 %"), (1.0, "100 %"), (None, "–"),
]  # fmt: skip
RATES = [(0.5, "0.5/s"), (12.34, "12.3/s"), (1_234.5, "1,230/s"), (2e6, "2,000,000/s")]
COUNTS = [(0, "0"), (1_234_567, "1,234,567"), (None, "–")]
SIZES = [(512, "512 B"), (50_000, "50 kB"), (2.5e9, "2.5 GB"), (-3e6, "−3 MB"), (None, "–")]
RATIOS = [(1.0, "1 ×"), (12.345, "12.3 ×"), (1234.5, "1,230 ×"), (None, "–")]


@pytest.mark.parametrize(("ns", "text"), DURATIONS)
def test_a_duration_has_three_digits_and_a_unit_that_fits(ns, text):
    assert quantity.duration(ns) == text


@pytest.mark.parametrize(
    ("write", "table"),
    [
        (quantity.percent, SHARES),
        (quantity.rate, RATES),
        (quantity.count, COUNTS),
        (quantity.size, SIZES),
        (quantity.times, RATIOS),
    ],
)
def test_other_quantities_read_like_durations(write, table):
    assert [write(value) for value, _ in table] == [text for _, text in table]


def test_numbers_look_as_those_of_the_doctor_and_of_the_progress():
    """The same table holds the Rust module to the same texts."""
    write = {
        it.__name__: it
        for it in (quantity.duration, quantity.size, quantity.percent, quantity.rate)
    }
    rows = [line.split("\t") for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    assert [write[kind](float(value)) for kind, value, _ in rows] == [text for *_, text in rows]
    assert {kind for kind, *_ in rows} == set(write)


@pytest.mark.parametrize("ns", [1.5 * 10.0**power for power in range(12)])
def test_a_number_lies_between_one_and_a_thousand(ns):
    number = float(quantity.duration(ns).split()[0])
    assert 1 <= number < 1_000


def test_no_other_module_writes_units_by_hand():
    unit = re.compile(r"(?:/ ?1(?:e|_000_000_?0*)\d*|:[,.]\d*[fg])[^}\"']*\} ?(?:ns|us|µs|ms|s)\b")
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "quantity.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if unit.search(line)
    ]
    assert found == []


def test_the_rule_about_units_sees_a_violation():
    unit = re.compile(r"(?:/ ?1(?:e|_000_000_?0*)\d*|:[,.]\d*[fg])[^}\"']*\} ?(?:ns|us|µs|ms|s)\b")
    assert unit.search('f"{ns / 1e6:.3f} ms"')
    assert unit.search('f"{ns / 1e3:+.0f} us"')
