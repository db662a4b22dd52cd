"""The stall oracle for each target: a real server is stopped for a second of ten.

The benchmark stops the server itself, with all its processes, so the instants of the stop come from
the operating system and not from the program that is measured. A name server is not among them: it
loses the datagrams of a second that its socket has no room for.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flurry.bench.processes import until

from bench import grpc_speed, http_speed, sql_speed, stores
from bench.program import measured
from bench.result import Result
from bench.speed import CLIENT_CORE, SERVER_CORE
from bench.stall import BAR, RUN_S, STALL_S, of_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

RATE: Final = 10_000
SLOWER: Final = 4_000
"""The rate of a database, which cannot answer 10,000 statements a second on one core here."""
AT_S: Final = 8.0
"""When the server is stopped, from the start of the program: 3 to 6 s into the measured time."""
MARIADB_PORT: Final = 21_115

PLAN: Final = """
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "{seconds:.0f}s"
warmup = "2s"
[drive]
clients = 16
rate = "{rate}/s"
in_flight = 100000
timeout = "5s"
{drive}
[probe]
enabled = false
[pin]
"drive-0" = [{core}]
"""

REPLY: Final = (
    '{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
    '"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}'
)


@dataclass(frozen=True)
class Target:
    """A server, which yields the lines of ``[drive]`` that ask it."""

    name: str
    what: str
    start: Callable[[], AbstractContextManager[str]]
    rate: int = RATE


@contextmanager
def _http(name: str) -> Iterator[str]:
    case = next(case for case in http_speed.CASES if case.name == name)
    with http_speed.nginx(case) as url:
        yield f'url = "{url}"\nconnections = {16 if case.connections > 1 else 2}\n{case.more}'


@contextmanager
def _openai() -> Iterator[str]:
    case = next(case for case in http_speed.CASES if case.name == "http1")
    place = f"location /v1/ {{ default_type application/json; return 200 '{REPLY}'; }}"
    with http_speed.nginx(case, place):
        url = f"openai://127.0.0.1:{http_speed.PORT}/v1?stream=false"
        yield f'url = "{url}"\nprompt = "hello"\nconnections = 16'


@contextmanager
def _grpc() -> Iterator[str]:
    with grpc_speed.greeter() as folder:
        url = f"grpc://127.0.0.1:{grpc_speed.PORT}/helloworld.Greeter/SayHello"
        proto = folder / "hello.proto"
        body = '{"name": "bench"}'
        yield f'url = "{url}"\nproto = "{proto}"\nbody = \'{body}\'\nconnections = 4'


@contextmanager
def _postgres() -> Iterator[str]:
    with sql_speed.postgres():
        url = f"postgres://{sql_speed.USER}@127.0.0.1:{sql_speed.PORT}/postgres"
        yield f'url = "{url}"\nsql = "{sql_speed.SELECT}"'


@contextmanager
def _mysql() -> Iterator[str]:
    if shutil.which("mariadbd") is None:
        raise RuntimeError("mariadbd: not installed; hint: apt-get install mariadb-server-core")
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as text:
        folder = Path(text)
        user = ["--user=root"] if not os.geteuid() else []
        own: list[str | Path] = ["--no-defaults", f"--datadir={folder / 'data'}", *user]
        made = ["mariadb-install-db", *own, "--auth-root-authentication-method=normal"]
        subprocess.run([*made, "--skip-test-db"], check=True, capture_output=True, cwd=folder)
        start = folder / "start.sql"
        start.write_text(
            "CREATE USER bench@'%' IDENTIFIED BY '';\nGRANT ALL ON *.* TO bench@'%';\n"
        )
        words = ["taskset", "-c", str(SERVER_CORE), "mariadbd", *own, f"--init-file={start}"]
        words += ["--skip-name-resolve", f"--socket={folder / 'socket'}", f"--port={MARIADB_PORT}"]
        words += ["--bind-address=127.0.0.1", f"--pid-file={folder / 'pid'}"]
        with _process(words, MARIADB_PORT):
            yield f'url = "mysql://bench@127.0.0.1:{MARIADB_PORT}/mysql"\nsql = "SELECT 1"'


@contextmanager
def _redis_commands() -> Iterator[str]:
    with stores.server(stores.redis_words) as it:
        yield f'url = "tcp://127.0.0.1:{it.port}?framing=resp"\nmessage = "INCR hits"'


@contextmanager
def _memcached() -> Iterator[str]:
    with stores.server(stores.memcached_words) as it:
        yield f'url = "memcached://127.0.0.1:{it.port}"\nkeys = 1000\nvalue = "100B"'


@contextmanager
def _process(words: list[str | Path], port: int) -> Iterator[None]:
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(f"{words[3]} listens", lambda: stores.listens(port))
        yield
    finally:
        server.terminate()
        server.wait(timeout=60)


def children(pid: int) -> list[int]:
    """Every process that a process has started, and their own."""
    found: list[int] = []
    # It may end meanwhile.
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            own = [int(it) for it in (thread / "children").read_text().split()]
            found += own + [it for child in own for it in children(child)]
    return found


def _stop(server: list[int], stopped: list[float]) -> None:
    """Stop processes and those that they have started; appends the instants of stop and end."""
    server = sorted({*server, *(child for pid in server for child in children(pid))})
    _signal(server, signal.SIGSTOP)
    # The rows have the wall clock, too.
    stopped.append(time.clock_gettime(time.CLOCK_REALTIME))
    time.sleep(STALL_S)
    stopped.append(time.clock_gettime(time.CLOCK_REALTIME))
    _signal(server, signal.SIGCONT)


def _signal(server: list[int], number: signal.Signals) -> None:
    for pid in server:
        # A helper that started the server may have ended meanwhile.
        with suppress(ProcessLookupError):
            os.kill(pid, number)


TARGETS: Final = (
    Target("http", "nginx by HTTP/1.1", lambda: _http("http1")),
    Target("https", "nginx by HTTPS", lambda: _http("https")),
    Target("http2", "nginx by HTTP/2 and TLS", lambda: _http("http2")),
    Target("openai", "nginx as a language model without a stream", _openai),
    Target("grpc", "the greeter of grpc-go", _grpc, SLOWER),
    Target("postgres", "PostgreSQL", _postgres, SLOWER),
    Target("mysql", "MariaDB", _mysql, SLOWER),
    Target("memcached", "memcached", _memcached),
    Target("tcp", "commands of Redis over tcp://", _redis_commands),
)


def run() -> list[Result]:
    """Stop each server once."""
    return [stall(target) for target in TARGETS]


def stall(target: Target) -> Result:
    """One run with one stop of the server."""
    before = children(os.getpid())
    with target.start() as lines:
        server = [pid for pid in children(os.getpid()) if pid not in before]
        plan = PLAN.format(seconds=RUN_S, rate=target.rate, drive=lines, core=CLIENT_CORE)
        stopped: list[float] = []
        timer = threading.Timer(AT_S, _stop, (server, stopped))
        timer.start()
        with measured(plan) as trace:
            timer.join()
            found = of_stop(trace, *stopped)
    whole = found.all_ok and found.rows == target.rate * RUN_S
    return Result(
        name=f"stall-target-{target.name}",
        what=f"stall oracle on {target.what}, stopped 1 s in 10 s at {target.rate:,}/s",
        bar="p99 within 2 % of the analytic value",
        measured=f"{100 * found.error:+.2f} % (p99 {found.p99_s:.4f} s,"
        f" analytic {found.analytic_s:.4f} s)",
        met=abs(found.error) <= BAR and whole,
        raw=vars(found),
    )
