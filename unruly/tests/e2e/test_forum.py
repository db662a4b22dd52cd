"""An application that nobody here wrote, as it is: visitors, the tap at each port, and its spans.

Each trouble is one that its owner could have: a lock of its database, a limit of its web server,
and too few threads. The report names the tier and the layer of the slow requests.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import pytest
from forum_house import READERS, Forum, forum
from house import need_root
from redis_house import free_port
from sql_house import PASSWORD
from test_https import drive, statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from house import Measured

HOST = "127.0.0.1"
FORM = "Content-Type: application/x-www-form-urlencoded"
TOKEN = 'regex:csrfmiddlewaretoken" value="(\\w+)"'
NAME = f"reader{{random:0..{READERS - 1}}}"
VISITORS = f"""
[[state]]
name = "home"
path = "/"
capture = {{ topic = 'regex:href="/(topic/\\d+/[\\w-]+/)"' }}
then = {{ topic = 0.6, category = 0.2, login = 0.2 }}

[[state]]
name = "category"
path = "/category/3/talk/"
contains = "Topic"
then = "home"

[[state]]
name = "login"
path = "/user/login/"
capture = {{ token = '{TOKEN}' }}

[[state]]
name = "enter"
path = "/user/login/"
body = "csrfmiddlewaretoken={{captured.token}}&username={NAME}&password=w0rds"
headers = "{FORM}"
expect = "302"

[[state]]
name = "read"
path = "/{{captured.topic}}"
contains = "Log out"
capture = {{ publish = 'regex:action="/(comment/\\d+/publish/)', token = '{TOKEN}' }}

[[state]]
name = "write"
path = "/{{captured.publish}}"
body = "csrfmiddlewaretoken={{captured.token}}&comment=about+{{uuid}}"
headers = "{FORM}"
expect = "302"
then = "end"

[[state]]
name = "topic"
path = "/{{captured.topic}}"
contains = "Topic"
then = {{ home = 0.8, end = 0.2 }}
"""


@contextmanager
def locks(app: Forum) -> Iterator[None]:
    """Lock the table of topics now and then, as a migration does."""
    over = threading.Event()

    def lock() -> None:
        while not over.wait(2.5):
            app.database.psql("BEGIN; LOCK TABLE spirit_topic_topic; SELECT pg_sleep(1); COMMIT")

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measured(
    folder: Path,
    *,
    clients: int = 6,
    threads: int = 8,
    limit: str = "",
    trouble: Callable[[Forum], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Measured:
    need_root("a tap")
    scenario = folder / "visitors.toml"
    scenario.write_text(VISITORS)
    port = free_port(HOST)
    with forum(folder, port, threads=threads, limit=limit) as app, trouble(app):
        taps = [f"--tap={place}" for place in app.places]
        pace = ["-c", str(clients), "--think", "500ms", "-w", "5s", "-d", "40s"]
        spans = ["--spans", f"{HOST}:{port}"]
        return drive(folder, app.url, "--scenario", scenario, *pace, *spans, *taps)


TROUBLES = {
    "lock": ("db", ("forum", "SELECT", "call"), {"trouble": locks}),
    "threads": ("app", ("", "", "outside"), {"threads": 1}),
    "limit": ("web", ("", "", "outside"), {"clients": 12, "limit": "limit_req zone=all burst=50;"}),
}
"""The tier and the layer (service, span, role) of each trouble: a queue before it has no span."""


@pytest.mark.parametrize("name", TROUBLES)
def test_the_tier_and_the_layer_of_a_trouble_are_named(tmp_path: Path, name: str) -> None:
    tier, layer, trouble = TROUBLES[name]
    run = measured(tmp_path, **trouble)
    assert statuses(run).keys() == {("ok", 200), ("ok", 302)}
    verdict = run.verdict()
    rows = {it["tier"]: it["chain"] for it in verdict["tiers"]["rows"]}
    shares = {name: it["slow_share"]["estimate"] for name, it in rows.items()}
    assert max(shares, key=shares.__getitem__) == tier
    assert shares[tier] > 0.5
    # on a busy machine the intervals may be too wide for a finding
    found = [it for it in verdict["findings"] if it["code"] == "slow-tier"]
    assert {it["evidence"]["tier"] for it in found} <= {tier}
    home = next(it for it in verdict["layers"]["rows"] if it["op"] == "home")
    first = home["layers"][0]
    assert (first["service"], first["name"], first["role"]) == layer
    raised = [it["evidence"] for it in verdict["findings"] if it["code"] == "slow-layer"]
    assert {(it["service"], it["layer"], it["role"]) for it in raised} <= {layer}
    assert {name: it["asked_by"] for name, it in rows.items()} == {
        "web": [], "app": ["web"], "db": ["app"],
    }  # fmt: skip
    (check,) = verdict["tiers"]["checks"]
    assert check["seen"] == pytest.approx(check["sent"], abs=6)
    # the spans that came hold the statements and the program's words; neither is kept
    words = run.rows("select distinct service, layer, process from spans")
    kept = {str(it) for row in words for it in row}
    assert "SELECT" in kept
    assert not [it for it in kept if "spirit_" in it or "gthread" in it or PASSWORD in it]
