"""The metrics of the parts, and that the dashboard and the runbook know them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from house import FLURRY, REPOSITORY, started, wait_for
from redis_house import Wire

HOST = "127.58.0.1"
DOCS = REPOSITORY / "flurry" / "docs"

# A number of Prometheus's text format, with its name and its labels.
LINE = re.compile(r'^([a-z_]+)(\{(?:[a-z_]+="[^"]*",?)*\})? (-?[0-9.e+-]+|\+Inf)$')


def page_of(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = page.read().decode()
    numbers = {}
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.match(r"# (HELP|TYPE) flurry_[a-z_]+ ", line), line
            continue
        found = LINE.match(line)
        assert found, line
        numbers[found[1] + (found[2] or "")] = float(found[3])
    return numbers


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A watched cluster of processes: the address of each metrics page, and the gateway."""
    folder = tmp_path_factory.mktemp("metrics")
    controller = f"{HOST}:7700"
    watched = ["--metrics", "127.0.0.1:0"]
    said: dict[str, list[str]] = {}
    with ExitStack() as stack:

        def start(name: str, *words: str | Path) -> None:
            log = folder / f"{name}.log"
            part = started([FLURRY, *words, *watched], "ready", log)
            said[name] = stack.enter_context(part)

        start("controller", "controller", "--listen", controller, "--dir", folder / "state")
        for number in range(1, 4):
            disk = ("--disk", folder / "records") if number == 3 else ()
            start(
                f"server-{number}", "server", "--id", str(number), "--controller", controller, *disk
            )
        start("gateway", "gateway", "--listen", f"{HOST}:0", "--controller", controller)
        pages = {
            name: re.match(r"metrics http://(.*)/metrics$", lines[0]).group(1)  # type: ignore[union-attr]
            for name, lines in said.items()
        }
        yield {**pages, "clients": said["gateway"][1].split()[1]}


def test_numbers_follow_what_is_done(parts: dict[str, str]) -> None:
    host, _, port = parts["clients"].rpartition(":")
    with closing(Wire((host, int(port)))) as wire:
        wire.ask_all([("SET", f"k{number}", "v") for number in range(100)])
        wire.ask_all([("GET", f"k{number}") for number in range(50)])
        wire.ask("FLURRY", "LEVEL", "QUORUM")
        wire.ask("INCR", "counter")

        def counted() -> bool:
            page = page_of(parts["gateway"])
            done = 'flurry_operations_total{part="gateway",level="%s",outcome="done"}'
            return page.get(done % "first", 0) >= 150 and page.get(done % "quorum", 0) >= 1

        wait_for(counted, "operations to be counted")
        page = page_of(parts["gateway"])
        assert page['flurry_gateway_clients{part="gateway"}'] == 1
        first = 'flurry_operation_seconds_count{part="gateway",level="first"}'
        assert page[first] >= 150
        bucket = 'flurry_operation_seconds_bucket{part="gateway",level="first",le="+Inf"}'
        assert page[bucket] == page[first]
        assert page['flurry_exposure_seconds_count{part="gateway"}'] >= 101
    wait_for(
        lambda: page_of(parts["server-1"])['flurry_records{part="server-1.0"}'] >= 101,
        "records to be counted",
    )
    server = page_of(parts["server-1"])
    assert server['flurry_member{part="server-1.0"}'] == 1
    assert 0 < server['flurry_memory_bytes{part="server-1.0"}'] < 1_000_000
    controller = page_of(parts["controller"])
    assert controller['flurry_servers{part="controller",state="up"}'] == 3


def test_the_dashboard_and_the_runbook_ask_for_what_there_is(parts: dict[str, str]) -> None:
    pages = [address for name, address in parts.items() if name != "clients"]
    told = {line.partition("{")[0] for address in pages for line in page_of(address)}
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in told}
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    queries = " ".join(
        target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
    )
    asked = set(re.findall(r"flurry_[a-z_]+", queries))
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= names
    runbook = set(re.findall(r"`?(flurry_[a-z_]+)", (DOCS / "operations.md").read_text()))
    assert runbook - {"flurry_memory"} <= names
    # The dashboard uses every metric, but for these.
    known = {"flurry_configuration", "flurry_sessions", "flurry_member", "flurry_incarnation_info"}
    assert names - known - {re.sub(r"_bucket$", "", name) for name in asked} <= {
        "flurry_states_installed_total",
        "flurry_replies_late_total",
        "flurry_replies_divergent_total",
        "flurry_gateway_ended_values_total",
    }
