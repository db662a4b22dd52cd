"""gRPC at full speed against ghz, which keeps a row of each call as well."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.speed import CLIENT_CORE, SERVER_CORE, Speed, compared, ours, pinned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.result import Result

SECONDS = 4
PORT = 21_114
GREETER: Final = "google.golang.org/grpc/examples/helloworld/greeter_server"
GHZ: Final = "github.com/bojand/ghz/cmd/ghz"

PROTO: Final = """
syntax = "proto3";
package helloworld;
service Greeter { rpc SayHello (HelloRequest) returns (HelloReply) {} }
message HelloRequest { string name = 1; }
message HelloReply { string message = 1; }
"""

PLAN: Final = """
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "{seconds}s"
warmup = "500ms"
[drive]
url = "grpc://127.0.0.1:{port}/helloworld.Greeter/SayHello"
proto = "{proto}"
body = '{{"name": "bench"}}'
clients = {clients}
connections = 1
arrivals = "closed"
timeout = "5s"
[probe]
period = "500ms"
[pin]
"drive-0" = [{core}]
"""


@dataclass(frozen=True)
class Case:
    """So many calls at once over one connection."""

    name: str
    clients: int


CASES: Final = (Case("serial", 1), Case("many", 16))


def _program(package: str) -> str:
    """The path of a program of Go."""
    name = package.rsplit("/", 1)[-1]
    home = Path(os.environ.get("GOPATH", Path.home() / "go")) / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(home))
    if found is None:
        raise RuntimeError(
            f"{name}: not installed; hint: in an empty folder, go mod init m && go get"
            f" {package}@latest && go build -o ~/go/bin/{name} {package}"
        )
    return found


@contextmanager
def greeter() -> Iterator[Path]:
    """The server of gRPC's own examples on its core; yields a folder with its `.proto` file."""
    words = ["taskset", "-c", str(SERVER_CORE), _program(GREETER), "-port", str(PORT)]
    with tempfile.TemporaryDirectory(prefix="unruly-bench-") as text:
        folder = Path(text)
        (folder / "hello.proto").write_text(PROTO)
        # It writes a line for each call.
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until_bound()
            yield folder
        finally:
            server.terminate()
            server.wait(timeout=10)


def _until_bound() -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", PORT), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"greeter_server: did not bind port {PORT} within 10 s")


def theirs(case: Case, folder: Path) -> Speed:
    """What ghz reaches, and its CPU time by the kernel's account."""
    words = [_program(GHZ), "--insecure", "--proto", str(folder / "hello.proto"), "-O", "json"]
    words += ["--call", "helloworld.Greeter/SayHello", "-d", '{"name": "bench"}']
    words += ["-c", str(case.clients), "--connections", "1", "-z", f"{SECONDS}s"]
    # Go would start a thread for each core of the machine.
    said, cpu_s = pinned([*words, f"127.0.0.1:{PORT}"], {**os.environ, "GOMAXPROCS": "1"})
    found = json.loads(said)
    done = int(found["statusCodeDistribution"].get("OK", 0))
    if not done:
        raise RuntimeError(f"ghz: no call was answered: {found['statusCodeDistribution']}")
    return Speed(float(found["rps"]), 1e6 * cpu_s / int(found["count"]), done)


def run() -> list[Result]:
    """Measure each number of calls at once."""
    with greeter() as folder:
        return [result for case in CASES for result in _of(case, folder)]


def _of(case: Case, folder: Path) -> list[Result]:
    plan = PLAN.format(
        seconds=SECONDS, port=PORT, proto=folder / "hello.proto", clients=case.clients,
        core=CLIENT_CORE,
    )  # fmt: skip
    return compared(
        f"grpc-{case.name}",
        f"{case.clients} unary calls at once over one connection, to ghz",
        "the greeter of grpc-go on core 0, both generators on core 1",
        lambda: ours(plan), lambda: theirs(case, folder),
    )  # fmt: skip
