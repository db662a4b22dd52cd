"""Two services with OpenTelemetry, which export their spans."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from house import REPOSITORY, wait_for
from redis_house import free_port

HOST: Final = "127.0.0.1"
PYTHON: Final = REPOSITORY / "target" / "opentelemetry" / "bin" / "python"
"""As `make opentelemetry` installs it."""
SHOP: Final = Path(__file__).parent / "traced_shop.py"


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def traced_shop(spans: int, front: str = "", stock: str = "") -> Iterator[str]:
    """The two services, which export their spans to a port; each with its trouble."""
    ports = free_port(HOST), free_port(HOST)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{spans}", "OTEL_LOG_LEVEL": "error"}
    roles = (
        ["stock", str(ports[1]), *([stock] if stock else [])],
        ["front", str(ports[0]), str(ports[1]), *([front] if front else [])],
    )
    with ExitStack() as stack:
        for words in roles:
            process = subprocess.Popen(
                [PYTHON, SHOP, *words],
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        wait_for(lambda: all(map(listens, ports)), "the shop")
        yield f"http://{HOST}:{ports[0]}/view"
