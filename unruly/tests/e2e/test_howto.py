"""Each how-to of the documents works as it is written, only shorter and on local services."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from grpc_house import ITEM_PROTO, PROTO, Shop, grpc_server
from hosts_house import HERE, ssh_hosts
from house import PROGRAMS, REPOSITORY, call, need_root, wait_for
from http_house import nginx
from llm_house import Model, llm
from message_house import lines, name_server
from redis_house import free_port, redis_server
from spans_house import traced_shop
from sql_house import ACCOUNTS, PASSWORD, postgres
from users_house import shop

from pages import COMMANDS, blocks, follow, indented, missing

DOCS = REPOSITORY / "unruly" / "docs"
HOST = "127.0.0.1"
SHORT = {r"-d 60s\b": "-d 3s", r"-w 5s\b": "-w 1s", r"seq 10\b": "seq 2"}
"""Shorter lengths, for a page that shows those that a user would take."""

VERBS = r"^ *unruly (drive|run|watch|import|verdict)\b"
MEASURES = re.compile(VERBS + r"(?:[^|\\\n]|\\\n|\\.)*$", re.MULTILINE)
"""A command whose exit code is its verdict; that of a pipe is its last program's."""

Setting = tuple[dict[str, str], dict[str, str]]
"""Patterns to replace in a page, and more variables."""


@contextmanager
def redis(folder: Path) -> Iterator[Setting]:
    """A Redis server where the page has one."""
    with redis_server(folder, HOST) as (host, port):
        yield {**SHORT, "127.0.0.1:6379": f"{host}:{port}"}, {}


class Cart(BaseHTTPRequestHandler):
    """A service that wants a token."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request that has the token and a body of JSON."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert json.loads(body)["item"] in {7, 9}
        assert self.headers["Content-Type"] == "application/json"
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a request that has the token."""
        known = self.headers["Authorization"] == "Bearer secret"
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@contextmanager
def https(folder: Path) -> Iterator[Setting]:
    """A service over TLS, with a certificate of its own."""
    subprocess.run([REPOSITORY / "scripts" / "certificate.sh", folder, HOST], check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with ThreadingHTTPServer((HOST, 0), Cart) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield (
                {**SHORT, "localhost:8443": f"{HOST}:{server.server_port}", r"=\.\.\.": "=secret"},
                {"SSL_CERT_FILE": str(folder / "cert.pem")},
            )
        finally:
            server.shutdown()


@contextmanager
def model(_: Path) -> Iterator[Setting]:
    """A language model with a token each 2 ms."""
    with llm(Model()) as place:
        yield {**SHORT, "localhost:8000": place}, {}


@contextmanager
def users(folder: Path) -> Iterator[Setting]:
    """A shop that wants a login."""
    with shop(folder) as (_, url, _):
        yield {**SHORT, "http://localhost:8080": url}, {}


@contextmanager
def orders(folder: Path) -> Iterator[Setting]:
    """A gRPC server that describes itself, and the file of its service."""
    (folder / "home" / "orders.proto").write_text(PROTO)
    (folder / "home" / "item.proto").write_text(ITEM_PROTO)
    with grpc_server(Shop(pause=lambda *_: 0.002)) as place:
        yield {**SHORT, "localhost:50051": place}, {}


@contextmanager
def bank(_: Path) -> Iterator[Setting]:
    """PostgreSQL with a table of accounts."""
    with postgres() as server:
        server.psql(ACCOUNTS)
        yield {**SHORT, "localhost:5432": f"{HOST}:{server.port}", r"=\.\.\.": f"={PASSWORD}"}, {}


@contextmanager
def messages(folder: Path) -> Iterator[Setting]:
    """A server of lines, Redis, and a name server."""
    with (
        lines(lambda _: b"ok") as place,
        redis_server(folder, HOST) as (host, port),
        name_server(folder) as names,
    ):
        own = {"localhost:7000": place, "localhost:6379": f"{host}:{port}"}
        yield {**SHORT, **own, "localhost:5353": names}, {}


@contextmanager
def watched(folder: Path) -> Iterator[Setting]:
    """Redis that somebody asks all the time, and a capture of its packets by tcpdump."""
    need_root("a tap")
    with redis_server(folder, HOST) as (host, port):
        file = folder / "home" / "capture.pcap"
        words = ["tcpdump", "-i", "lo", "-s", "96", "-U", "-Z", "root", "--immediate-mode"]
        words += ["-w", str(file), f"tcp port {port}"]
        flags = ["-c", "4", "-r", "200", "-d", "100s", "-w", "0s", "-q", "-o", folder / "load"]
        load: list[str | Path] = [PROGRAMS / "unruly", "drive", f"redis://{host}:{port}", *flags]
        asking = subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        capturing = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: file.exists() and file.stat().st_size > 100_000, "a capture")
            capturing.terminate()
            capturing.wait()
            yield {**SHORT, "localhost:6379": f"{host}:{port}"}, {}
        finally:
            for process in (capturing, asking):
                process.kill()
                process.wait()


@contextmanager
def traced(_: Path) -> Iterator[Setting]:
    """Two services that export spans, where the page has one."""
    port = free_port(HOST)
    with traced_shop(port, front="pool") as url:
        place = url.removeprefix("http://").removesuffix("/view")
        longer = {r"-d 60s\b": "-d 8s", "localhost:8080": place, "-c 8\\b": "-c 64"}
        yield {**longer, "127.0.0.1:4318": f"{HOST}:{port}"}, {}


@contextmanager
def slow_node(folder: Path) -> Iterator[Setting]:
    """Two Redis servers, and a matrix of seven nodes with a slow one."""
    need_root("a CPU quota")
    rows = [[0 if to == source else 9 if to == 3 else 1 for to in range(7)] for source in range(7)]
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (folder / "home" / "matrix.csv").write_text(text)
    more = folder / "second"
    more.mkdir()
    with redis_server(folder, HOST) as (_, first), redis_server(more, HOST) as (_, second):
        yield (
            {
                **SHORT,
                '"40s"': '"8s"',
                '"3s"': '"1s"',
                "10.0.0.1:6379": f"{HOST}:{first}",
                "10.0.0.2:6379": f"{HOST}:{second}",
            },
            {},
        )


@contextmanager
def a_run(folder: Path) -> Iterator[Setting]:
    """A finished run where the page has one; its operation is another one."""
    said = call("run", "echo", "-d", "2s", "-w", "0s", "-q", "-o", folder / "home/runs/checkout")
    assert said.returncode == 0, said.stderr
    yield {'op = "null"': 'op = "echo"'}, {}


@contextmanager
def old_and_new(folder: Path) -> Iterator[Setting]:
    """Runs under the names of the page, a plan, and a command that switches versions."""
    home = folder / "home"
    sweep = home / "runs" / "sweep"
    said = call("run", "echo", "-d", "2s", "-w", "0s", "-q", "-o", sweep)
    assert said.returncode == 0, said.stderr
    for name in ("runs/monday", "runs/tuesday", "A", "B", "C"):
        shutil.copytree(sweep, home / name)
    for side in ("old", "new"):
        shutil.copytree(sweep, home / "runs" / side / "before")
    plan = (REPOSITORY / "unruly/plans/echo.toml").read_text().replace('"10s"', '"1s"')
    (home / "plan.toml").write_text(plan.replace('warmup = "1s"', 'warmup = "0s"'))
    switch = home / "switch-to"
    switch.write_text("#!/bin/sh\ncase $1 in old | new) ;; *) exit 1 ;; esac\n")
    switch.chmod(0o755)
    yield SHORT, {}


@contextmanager
def others(folder: Path) -> Iterator[Setting]:
    """Files of other tools under the names of the pages."""
    home, corpus = folder / "home", REPOSITORY / "tests" / "fuzz" / "corpus"
    for name, sample in (
        ("results.csv", "k6-csv"),
        ("results.jtl", "jmeter-csv"),
        ("wrk2.txt", "hgrm"),
    ):
        shutil.copy(corpus / sample, home / name)
    rng = np.random.default_rng(1)
    rows, lines_ = [], []
    for number in range(30_000):
        at_ms = 10 * number
        # a stall of 400 ms now and then
        wait_ms = 400 - at_ms % 400 if (at_ms // 400) % 37 == 0 else 0
        took_ms = 3 + 4 * rng.random() + wait_ms
        rows.append(f"{at_ms},{took_ms:.3f}")
        ended = 1_795_900_000 + (at_ms + took_ms) / 1_000
        lines_.append(
            f'10.0.0.1 - - [29/Nov/2026:01:46:40 +0000] "GET /a HTTP/1.1" 200 512 '
            f"rt={took_ms / 1_000:.3f} msec={ended:.3f}"
        )
    (home / "took.csv").write_text("\n".join(["time_ms,latency_ms", *rows]) + "\n")
    (home / "access.log").write_text("\n".join(lines_) + "\n")
    yield {}, {}


@contextmanager
def other_hosts(folder: Path) -> Iterator[Setting]:
    """Two hosts with an sshd, and a web server that they reach."""
    port, place = 8087, folder / "nginx"
    place.mkdir()
    with ssh_hosts(folder / "ssh", 2) as hosts, nginx(place, f"listen {HERE}:{port};"):
        program = PROGRAMS / "unruly"
        yield (
            {
                **SHORT,
                "192.0.2.10": f"{HERE}:{port}",
                "ssh:node-2": f"ssh:node-2 --from-program {program}",
            },
            {"PATH": f"{hosts.folder}:{PROGRAMS}:{hosts.environment['PATH']}"},
        )


@contextmanager
def months(folder: Path) -> Iterator[Setting]:
    """A web server, hours of two seconds, and an agent on this host instead of two others."""
    (folder / "nginx").mkdir()
    with nginx(folder / "nginx") as url:
        ends = (
            "timeout -s INT 9 unruly standing plan.toml --every 2s -o agent --tag cluster-a || true"
        )
        yield (
            {
                "http://192.0.2.10": url,
                "unruly standing plan.toml -o agent --tag cluster-a": ends,
                "ssh:node-1,ssh:node-2 --dir /var/lib/unruly": "command:env --dir $PWD/agent",
            },
            {},
        )


@contextmanager
def nothing(folder: Path) -> Iterator[Setting]:
    """Nothing: every block of the page says why no test runs it."""
    assert folder
    yield {}, {}


@contextmanager
def alone(folder: Path) -> Iterator[Setting]:
    """Nothing beside the page: its run starts what it measures."""
    assert folder
    yield {**SHORT}, {}


PAGES: dict[str, Callable[[Path], AbstractContextManager[Setting]]] = {
    "install.md": redis,
    "promise.md": redis,
    "https.md": https,
    "llm.md": model,
    "scenarios.md": users,
    "grpc.md": orders,
    "sql.md": bank,
    "messages.md": messages,
    "watch.md": watched,
    "spans.md": traced,
    "find-the-slow-node.md": slow_node,
    "write-a-plan.md": redis,
    "gate.md": a_run,
    "compare.md": old_and_new,
    "ci.md": nothing,
    "audit.md": others,
    "access-log.md": others,
    "other-tools.md": others,
    "middleware.md": alone,
    "three-tier.md": alone,
    "history.md": redis,
    "hosts.md": other_hosts,
    "clusters.md": nothing,
    "standing.md": months,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_how_to_works_as_it_is_written(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    text = (DOCS / name).read_text(encoding="utf-8")
    places = [str(PROGRAMS), str(Path(sys.executable).parent), os.environ["PATH"]]
    with PAGES[name](tmp_path) as (changes, env):
        follow(text, home, changes, {"PATH": os.pathsep.join(places), **env})


def test_every_how_to_of_the_index_is_followed() -> None:
    index = (REPOSITORY / "docs" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(\.\./unruly/docs/([\w-]+\.md)\)", index))
    titles = {name: (DOCS / name).read_text(encoding="utf-8").partition("\n")[0] for name in linked}
    assert {name for name, title in titles.items() if title.startswith("# How to ")} == {
        "install.md",
        "promise.md",
        "https.md",
        "llm.md",
        "grpc.md",
        "scenarios.md",
        "sql.md",
        "messages.md",
        "watch.md",
        "spans.md",
        "find-the-slow-node.md",
        "write-a-plan.md",
        "audit.md",
        "access-log.md",
        "other-tools.md",
        "middleware.md",
        "three-tier.md",
        "history.md",
        "hosts.md",
        "clusters.md",
        "standing.md",
    }
    assert set(PAGES) <= linked


def test_every_command_of_a_how_to_is_run_or_says_why_not() -> None:
    reasons = []
    for name in PAGES:
        text = (DOCS / name).read_text(encoding="utf-8")
        assert indented(text) == [], f"{name}: a command without a fence is not run"
        found = [block for block in blocks(text) if block.language in COMMANDS]
        assert found, name
        for block in found:
            # other work on the machine spoils a run, which is exit code 1
            measures = "not run" not in block.marks and MEASURES.search(block.text)
            assert block.codes >= {1} or block.codes == {2} or not measures
            assert block.language == "sh" or "not run" in block.marks, f"{name}\n{block.text}"
            reasons += [(name, why) for mark, why in block.marks.items() if mark == "not run"]
    assert reasons == [
        ("install.md", "it compiles for minutes; make test-release tests what it makes"),
        ("install.md", "make test-release installs the wheel and measures with it"),
        ("install.md", "make test-release runs the programs of the tarball"),
        ("install.md", "make test-release runs the image with podman"),
        ("ci.md", "GitHub runs it; the tests of the action run action/run.sh"),
        ("ci.md", "GitLab runs it; the tests of the action run action/run.sh"),
        ("history.md", "it needs an account of an object store; a test reads one of Garage's"),
        ("hosts.md", "three hosts are needed"),
        ("hosts.md", "two hosts are needed"),
        (
            "clusters.md",
            "it needs a cluster; tests validate the manifest and measure from its Pod with podman",
        ),
        (
            "clusters.md",
            "it needs a cluster; a test runs the script with Slurm's two commands replaced",
        ),
    ]


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("```sh\necho a\nfalse\n```\n", "ended with 1"),
        ("```sh\necho a\n```\n\n```text\nb\n```\n", "not printed: b"),
        ("```sh\necho a; echo b\n```\n\n```text\nb\na\n```\n", "not printed: a"),
        ("<!-- exit: 0 1 -->\n```sh\nexit 3\n```\n", "ended with 3"),
        ("<!-- exit: 0 1 -->\n```sh\nbash -c 'exit 3'\ntrue\n```\n", "ended with 3"),
        ("```sh\necho p: no\n```\n\n<!-- or: p: none -->\n```text\np: 9 s\n```\n", "not printed"),
        ("<!-- file: a -->\n```toml\nx\n```\n\n```sh\ngrep y a\n```\n", "ended with 1"),
    ],
)
def test_a_page_that_does_not_work_is_found(tmp_path: Path, page: str, fault: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(AssertionError, match=fault):
        follow(page, home, {}, {})


@pytest.mark.parametrize(
    ("shown", "screen"),
    [
        ("p: 99 % within 301 µs, in all", "p: 95 % within 1.5 ms, in all"),
        ("a-3 is slow: all\n         windows", "a-3 is slow: all windows"),
        ("one\n...\ntwo", "zero\none\nand\ntwo"),
    ],
)
def test_a_line_with_other_numbers_is_the_same_line(shown: str, screen: str) -> None:
    (block,) = blocks(f"```text\n{shown}\n```\n")
    assert missing(block, screen) == ""


@pytest.mark.parametrize(
    ("shown", "screen"), [("a-3 is slow", "a-4 is slow"), ("p99 is 3 s", "p50 is 3 s")]
)
def test_a_line_with_another_name_is_another_line(shown: str, screen: str) -> None:
    (block,) = blocks(f"```text\n{shown}\n```\n")
    assert missing(block, screen) == shown


def test_what_a_page_exports_lasts_until_its_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    page = "```sh\nexport A=b\n```\n\n```sh\necho $A; false; true\n```\n\n```text\nb\n```\n"
    page = page.replace("```sh\necho", "<!-- exit: 0 1 -->\n```sh\necho")
    follow(page, home, {}, {})
