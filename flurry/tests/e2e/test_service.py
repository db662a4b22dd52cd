"""A service of one's own on Flurry: phones whose network loses a replica again and again."""

from __future__ import annotations

import re
import subprocess

from house import EXAMPLES

CITY = EXAMPLES / "mme"

# Longer than the phones need; only reached by a failure.
LIMIT_S = 120.0


def test_no_conversation_is_lost_while_replicas_are_killed() -> None:
    """Each phone knows what the network should say, so one signal lost or doubled would show."""
    said = subprocess.run(
        [CITY, "--handsets", "8", "--signals", "100000", "--kill-every", "1"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    head, share, tail = said.stdout.splitlines()
    assert head.startswith("100000 signals of 8 phones")
    killed = re.search(r"(\d+) replicas killed", head)
    assert killed
    assert int(killed[1]) >= 1
    assert re.match(r"within 500 ms: [\d.]+ % \[[\d.]+, [\d.]+\]", share)
    assert tail == "failed 0, conversations lost 0"
