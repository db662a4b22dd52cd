"""A server of language models that somebody else wrote: the mock server of guidellm."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from house import REPOSITORY, Measured, call, wait_for
from redis_house import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
GUIDELLM = REPOSITORY / "target" / "guidellm" / "bin" / "guidellm"
FIRST_MS, GAP_MS, TOKENS = 60, 15, 12


@contextmanager
def mock_server(folder: Path, *flags: str) -> Iterator[str]:
    """The server with replies of a known number of tokens; yields its address."""
    if not GUIDELLM.exists():
        if os.environ.get("CI") == "true":
            pytest.fail("guidellm is not installed, and under CI nothing may be skipped")
        pytest.skip("guidellm is not installed; hint: make guidellm")
    port = free_port(HOST)
    words = [
        GUIDELLM, "mock-server", "--host", HOST, "--port", str(port), "--workers", "1",
        "--model", "mock", "--ttft-ms", str(FIRST_MS), "--itl-ms", str(GAP_MS),
        "--output-tokens", str(TOKENS), *flags,
    ]  # fmt: skip
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    log = folder / "guidellm.log"
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=environment, cwd=folder)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as asking:
            return asking.connect_ex((HOST, port)) == 0

    try:
        wait_for(answers, "the mock server", 120)
        yield f"{HOST}:{port}"
    finally:
        process.terminate()
        process.wait(30)


def drive(folder: Path, place: str, *flags: str) -> Measured:
    out = folder / f"run-{len(list(folder.iterdir()))}"
    url = f"openai://{place}/v1?model=mock&max_tokens={TOKENS}"
    words = ["--prompt", "Describe {words:20}", "-n", "24", "-c", "2", "--timeout", "30s", *flags]
    said = call("drive", url, "-d", "60s", "-w", "0s", "-q", "-o", out, *words)
    assert said.returncode in (0, 1), said.stderr
    return Measured(out)


def test_the_tokens_of_a_server_that_somebody_else_wrote_are_counted_and_timed(
    tmp_path: Path,
) -> None:
    """Its own timing drifts on a busy machine, so a lower limit is all that can be known."""
    with mock_server(tmp_path) as place:
        run = drive(tmp_path, place)
    assert run.rows("select status, code, count(*) from requests group by 1, 2") == [
        ("ok", 200, 24)
    ]
    counts = Counter(
        layer
        for (layer,) in run.rows("select layer from spans where layer in ('first token', 'token')")
    )
    # The last event has no text: it is no token, and neither is the one with the counts of tokens.
    assert counts == {"first token": 24, "token": 24 * (TOKENS - 1)}
    first, gap = (
        run.rows(f"select median(ended_ns - started_ns) from spans where layer = '{layer}'")[0][0]
        for layer in ("first token", "token")
    )
    assert first > FIRST_MS * 0.9e6
    assert gap > GAP_MS * 0.9e6


def test_a_server_that_begins_to_fail_is_seen_with_its_code(tmp_path: Path) -> None:
    with mock_server(tmp_path, "--fail-after-requests", "10") as place:
        run = drive(tmp_path, place)
    found = dict(run.rows("select (status, code), count(*) from requests group by 1"))
    assert sum(found.values()) == 24
    assert found.pop(("ok", 200)) == 10
    assert found == {("error:500", 500): 14}
