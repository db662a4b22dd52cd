"""A run that ends when it knows enough: the program asks the analysis while it measures."""

from __future__ import annotations

from pathlib import Path

from house import Measured, call

# Longer than the first look at what there is, which is after 30 s.
LONGEST_S = 180


def test_a_run_ends_when_its_interval_is_narrow_enough(tmp_path: Path) -> None:
    until = ["--until", "p50 within 90%", "-d", f"{LONGEST_S}s", "-w", "500ms"]
    said = call("drive", "null:", "-r", "200", "-c", "2", "--processes", "2", *until,
                "-o", tmp_path / "out", timeout=LONGEST_S + 60)  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "until: p50 after 3" in said.stderr, said.stderr
    run = Measured(tmp_path / "out")
    ((kind, detail),) = run.rows("select kind, detail from events where kind like 'until%'")
    assert kind == "until reached", detail
    measured_s = run.verdict()["measured_ns"] / 1e9
    assert 29 < measured_s < 0.9 * LONGEST_S
