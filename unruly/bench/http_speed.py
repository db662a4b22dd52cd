"""HTTP at full speed against wrk, oha and h2load, which keep no row of a request.

wrk2 has no package: it is wrk with a schedule, and slower than wrk at full speed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.program import ROOT
from bench.speed import CLIENT_CORE, SERVER_CORE, Speed, compared, pinned
from bench.speed import ours as reached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.result import Result

SECONDS = 4
PORT = 21_112
BODY_BYTES = 1024
CLIENTS, STREAMS = 8, 32

NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port} {listen};
        ssl_certificate {folder}/cert.pem;
        ssl_certificate_key {folder}/key.pem;
        root {folder};
        {more}
    }}
}}
"""

PLAN = """
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "{seconds}s"
warmup = "500ms"
[drive]
url = "{url}"
clients = {clients}
connections = {connections}
arrivals = "closed"
timeout = "5s"
{more}
[probe]
period = "500ms"
[pin]
"drive-0" = [{core}]
"""


@dataclass(frozen=True)
class Case:
    """A kind of HTTP, and the peer that speaks it."""

    name: str
    what: str
    listen: str
    scheme: str
    peer: tuple[str, ...]
    clients: int
    connections: int
    more: str = ""


WRK = ("wrk", "-t1", f"-c{CLIENTS}", f"-d{SECONDS}s")
OHA = ("oha", f"-c{CLIENTS}", f"-z{SECONDS}s", "--no-tui", "--output-format=json", "--insecure")
H2LOAD = ("h2load", "-t1", "-c1", f"-m{STREAMS}", f"-D{SECONDS}", "--warm-up-time=1")
CASES = (
    Case("http1", f"HTTP/1.1, {CLIENTS} connections, to wrk", "", "http", WRK, CLIENTS, CLIENTS),
    Case(
        "https", f"HTTPS, {CLIENTS} connections, to wrk", "ssl", "https", WRK, CLIENTS, CLIENTS,
        "insecure = true",
    ),
    Case(
        "http1-oha", f"HTTP/1.1, {CLIENTS} connections, to oha", "", "http", OHA, CLIENTS, CLIENTS,
    ),
    Case(
        "https-oha", f"HTTPS, {CLIENTS} connections, to oha", "ssl", "https", OHA, CLIENTS, CLIENTS,
        "insecure = true",
    ),
    Case(
        "http2", f"HTTP/2 by TLS, {STREAMS} streams of a connection, to h2load", "ssl http2",
        "https", H2LOAD, STREAMS, 1, "insecure = true\nhttp2 = true",
    ),
)  # fmt: skip


@contextmanager
def nginx(case: Case, more: str = "") -> Iterator[str]:
    """A server of one worker on its core, with a page; yields the page's URL."""
    binary = shutil.which("nginx")
    if binary is None:
        raise RuntimeError("nginx: not installed; hint: apt-get install nginx-light")
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as text:
        folder = Path(text)
        folder.chmod(0o755)
        subprocess.run([ROOT / "scripts" / "certificate.sh", folder, "127.0.0.1"], check=True)
        (folder / "page").write_text("x" * BODY_BYTES)
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=PORT, listen=case.listen, more=more))
        kept = ["taskset", "-c", str(SERVER_CORE), binary]
        server = subprocess.Popen([*kept, "-e", folder / "nginx.log", "-c", config])
        try:
            _until_bound()
            yield f"{case.scheme}://127.0.0.1:{PORT}/page"
        finally:
            server.terminate()
            server.wait(timeout=10)


def _until_bound() -> None:
    # a socket that listens: the port may also be that of a connection which has ended
    wanted, until = f":{PORT:04X} 00000000:0000 0A ", time.monotonic() + 10
    while time.monotonic() < until:
        if any(wanted in line for line in Path("/proc/net/tcp").read_text().splitlines()):
            return
        time.sleep(0.02)
    raise RuntimeError(f"nginx: did not bind port {PORT} within 10 s")


def theirs(case: Case, url: str) -> Speed:
    """What the peer reaches, and its CPU time by the kernel's account."""
    if shutil.which(case.peer[0]) is None:
        hint = "apt-get install wrk nghttp2-client; cargo install oha"
        raise RuntimeError(f"{case.peer[0]}: not installed; hint: {hint}")
    said, cpu_s = pinned([*case.peer, url])
    if case.peer is OHA:
        found = json.loads(said)
        requests = int(found["statusCodeDistribution"]["200"])
        return Speed(float(found["summary"]["requestsPerSec"]), 1e6 * cpu_s / requests, requests)
    rate = re.search(r"Requests/sec:\s+([0-9.]+)|([0-9.]+) req/s", said)
    count = re.search(
        r"([0-9]+) requests in|requests: [0-9]+ total, [0-9]+ started, ([0-9]+)", said
    )
    if rate is None or count is None:
        raise RuntimeError(f"{case.peer[0]}: no rate in what it said: {said}")
    requests = int(count[1] or count[2])
    top = float(rate[1] or rate[2])
    # h2load does not count the requests of its warm-up, whose CPU time is in the kernel's account
    share = requests / (top * (SECONDS + 1)) if case.peer is H2LOAD else 1.0
    return Speed(top, 1e6 * cpu_s * share / requests, requests)


def ours(case: Case, url: str) -> Speed:
    """What unruly reaches with a row for each request, and the CPU time of its generator."""
    plan = PLAN.format(
        seconds=SECONDS, url=url, clients=case.clients, connections=case.connections,
        more=case.more, core=CLIENT_CORE,
    )  # fmt: skip
    return reached(plan)


def run() -> list[Result]:
    """Measure every kind."""
    return [result for case in CASES for result in _of(case)]


def _of(case: Case) -> list[Result]:
    unequal = "unruly records a row for each request; nginx on core 0, both generators on core 1"
    with nginx(case) as url:
        return compared(
            f"http-{case.name}", case.what, unequal,
            lambda: ours(case, url), lambda: theirs(case, url),
        )  # fmt: skip
