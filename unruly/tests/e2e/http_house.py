"""HTTP servers of this machine: nginx, Python's own, and one that does what a test says."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from house import REPOSITORY, wait_for
from redis_house import free_port

HOST = "127.0.0.1"
NGINX = """
daemon off;
{user}
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
    server {{
        {listen}
        root {folder}/site;
        {keepalive}
        {server}
    }}
}}
"""


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def site(folder: Path) -> Path:
    """A folder with one page."""
    made = folder / "site"
    made.mkdir()
    (made / "page.txt").write_text("a page\n" * 20)
    return made


@contextmanager
def process(words: list[str | Path], folder: Path, port: int) -> Iterator[str]:
    with (folder / "server.log").open("wb") as log:
        child = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)
        try:
            wait_for(lambda: answers(port), str(words[0]))
            yield f"http://{HOST}:{port}"
        finally:
            child.terminate()
            child.wait()


TLS = "ssl; ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;"


@contextmanager
def nginx(
    folder: Path,
    server: str = "",
    tls: bool = False,
    http2: bool = False,
    keepalive: str = "keepalive_requests 1000;",
) -> Iterator[str]:
    """nginx as Debian ships it, with a page and more lines for its server.

    By TLS it has the certificate of the folder. A connection serves 1,000 requests.
    """
    binary = shutil.which("nginx")
    assert binary, "nginx: not installed; hint: apt-get install nginx-light"
    site(folder)
    port = free_port(HOST)
    config = folder / "nginx.conf"
    # its workers must read what only we may read
    user = "" if os.geteuid() else f"user {getpass.getuser()};"
    listen = f"listen {HOST}:{port} {'http2 ' if http2 else ''}"
    listen += TLS.format(folder=folder) if tls else ";"
    lines = {"listen": listen, "server": server, "user": user, "keepalive": keepalive}
    config.write_text(NGINX.format(folder=folder, **lines))
    words: list[str | Path] = [binary, "-e", folder / "nginx.log", "-c", config, "-p", folder]
    with process(words, folder, port) as url:
        yield url.replace("http:", "https:") if tls else url


@contextmanager
def python_server(folder: Path) -> Iterator[str]:
    """Python's http.server, which speaks HTTP/1.0 and closes after each response."""
    port = free_port(HOST)
    words: list[str | Path] = [sys.executable, "-m", "http.server", str(port), "--bind", HOST]
    with process([*words, "--directory", site(folder)], folder, port) as url:
        yield url


class Connection:
    """A client's connection, as the server sees it."""

    def __init__(self, number: int, stream: socket.socket) -> None:
        self.number = number
        self.stream = stream
        self.reader = stream.makefile("rb")
        self.headers: dict[str, str] = {}
        """Of the last request, by names in small letters."""
        self.body = b""

    def request(self) -> str | None:
        """The first line of the next request, whose rest has been read; None at the end."""
        line = self.reader.readline().decode("latin-1").strip()
        if not line:
            return None
        self.headers = {}
        while header := self.reader.readline().decode("latin-1").strip():
            name, _, value = header.partition(":")
            self.headers[name.lower()] = value.strip()
        self.body = self.reader.read(int(self.headers.get("content-length", 0)))
        return line

    def more(self) -> bool:
        """Whether another request is there already."""
        self.stream.setblocking(False)
        try:
            return bool(self.reader.peek(1))
        except BlockingIOError:
            return False
        finally:
            self.stream.setblocking(True)

    def reply(self, body: str = "fine", head: str = "HTTP/1.1 200 OK") -> None:
        self.stream.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


def certificate(folder: Path) -> ssl.SSLContext:
    """What a server of TLS needs: ``cert.pem`` and ``key.pem``, which are made in the folder."""
    subprocess.run([REPOSITORY / "scripts" / "certificate.sh", folder, HOST], check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@contextmanager
def server(
    handle: Callable[[Connection], None], context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server with a thread for each connection, in which ``handle`` is called once.

    With a context its connections speak TLS.
    """
    with socket.create_server((HOST, 0), backlog=256) as listener:
        threads: list[threading.Thread] = []
        streams: list[socket.socket] = []

        def serve(number: int, stream: socket.socket) -> None:
            # the client may be gone, or may not like the certificate
            with stream, suppress(OSError):
                speaks = context.wrap_socket(stream, server_side=True) if context else stream
                connection = Connection(number, speaks)
                with speaks, connection.reader:
                    handle(connection)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    stream, _ = listener.accept()
                    streams.append(stream)
                    numbered = (len(streams) - 1, stream)
                    threads.append(threading.Thread(target=serve, args=numbered))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            scheme = "https" if context else "http"
            yield f"{scheme}://{HOST}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for stream in streams:
                with suppress(OSError):
                    stream.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
