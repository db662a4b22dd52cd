"""Servers of messages, and a name server."""

from __future__ import annotations

import shutil
import socketserver
import ssl
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from house import wait_for
from redis_house import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOST = "127.0.0.1"


@contextmanager
def lines(
    answer: Callable[[bytes], bytes | None], context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server that answers each line with another; without one it ends the connection."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                reply = answer(line.rstrip(b"\n"))
                if reply is None:
                    return
                self.wfile.write(reply + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64

    with Server((HOST, 0), Handler) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()


@contextmanager
def name_server(folder: Path, *more: str) -> Iterator[str]:
    """dnsmasq, which knows two names of example.org and refuses all others."""
    if shutil.which("dnsmasq") is None:
        pytest.skip("dnsmasq is not installed; hint: make tools")
    port = free_port(HOST)
    words = ["dnsmasq", "-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--user=root"]
    words += [f"--listen-address={HOST}", "--bind-interfaces", f"--port={port}", "--pid-file="]
    words += ["--host-record=www.example.org,192.0.2.1", "--host-record=mail.example.org,192.0.2.2"]
    with (folder / "dnsmasq.log").open("wb") as log:
        server = subprocess.Popen([*words, *more], stdout=log, stderr=log)
    try:
        wait_for(lambda: f":{port:04X}" in listening(), "dnsmasq")
        yield f"{HOST}:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def listening() -> str:
    """The kernel's table of sockets of TCP."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        return table.read()
