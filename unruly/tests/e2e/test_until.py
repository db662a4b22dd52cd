"""A run that ends when it knows enough: the program asks the analysis while it measures."""

from __future__ import annotations

import re
from pathlib import Path

from house import Measured, call

# The first look is after 30 s, which is enough on a quiet machine. On a busy one the load generator
# is late by turns, and its lateness drifts: there the run needs minutes.
FIRST_LOOK_S = 30
LONGEST_S = 400
# The analysis of a look takes seconds on a busy machine, and the run goes on meanwhile.
SLACK_S = 20
LOOK = re.compile(r"until: p50 after (\d+) s: echo (within|not yet known)")

# Each datagram is late by a random time, which is far more than the delay by any neighbour of this
# machine. So the median is soon known, and does not drift.
PLAN = f"""
name = "until"
[run]
duration = "{LONGEST_S}s"
warmup = "500ms"
until = "p50 within 10%"
[drive]
transport = "udp"
rate = "200/s"
clients = 4
processes = 2
[[fault]]
kind = "network"
process = "echo-0"
at = "0s"
duration = "{LONGEST_S}s"
jitter = "20ms"
"""


def test_a_run_ends_when_its_interval_is_narrow_enough(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(PLAN)
    said = call("run", plan, "-o", out, timeout=LONGEST_S + 60)
    # 1 where this machine is too busy for its run to be trusted.
    assert said.returncode in (0, 1), said.stderr
    looks = LOOK.findall(said.stderr)
    assert looks, said.stderr
    # It looks again until it knows, and ends at the first look that does.
    *before, (known_s, known) = looks
    assert {it for _, it in before} <= {"not yet known"}, looks
    assert known == "within", looks
    assert int(looks[0][0]) == FIRST_LOOK_S
    run = Measured(out)
    ((kind, detail),) = run.rows("select kind, detail from events where kind like 'until%'")
    assert kind == "until reached", detail
    verdict = run.verdict()
    assert int(known_s) - 1 <= verdict["measured_ns"] / 1e9 < int(known_s) + SLACK_S
    # It was right to end: the final interval is as narrow.
    (median,) = (
        it["p50"] for it in verdict["cells"] if (it["op"], it["latency"]) == ("echo", "response")
    )
    assert 18e6 < median < 24e6
