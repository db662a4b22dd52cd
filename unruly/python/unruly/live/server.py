"""The listeners of a view: the page and its state, and the exposition for Prometheus.

They answer GET, bound what they read, how many they serve at once and for how long. They give the
page, and everything on loopback, only to a browser that asked for an address or for this host's own
name: another site's page cannot read it through a name of its own that leads here.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from unruly.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Route = tuple[str, Callable[[], str]]

CONNECTIONS_MOST: Final = 32
TIMEOUT_S: Final = 10.0
PORTS: Final = range(65_536)


def page() -> tuple[str, str]:
    """Return the page and its content security policy."""
    live, html = files("unruly.live"), files("unruly.html")
    script = "\n" + live.joinpath("page.js").read_text("utf-8") + "\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = live.joinpath("page.html").read_text("utf-8")
    text = text.replace("/*STYLE*/", html.joinpath("style.css").read_text("utf-8"))
    text = text.replace("\n/*SCRIPT*/\n", script)
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return text, policy


def address(flag: str, text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``.

    Raises
    ------
    ParameterError
        When it is none.

    Examples
    --------
    >>> address("--live", "[::1]:8000")
    ('::1', 8000)
    """
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isdecimal() or int(port) not in PORTS:
        raise ParameterError(flag, f"is {text!r}", "HOST:PORT", f"{flag}=127.0.0.1:8000")
    return host, int(port)


class Server(ThreadingHTTPServer):
    """Serves some paths on one address, each from a function that returns its text."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MOST

    def __init__(self, flag: str, where: str, routes: Mapping[str, Route], policy: str) -> None:
        self.routes, self.policy = routes, policy
        self.places = threading.BoundedSemaphore(CONNECTIONS_MOST)
        host, port = address(flag, where)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, TypeError, UnicodeError) as error:
            said = getattr(error, "strerror", None) or "the name is none"
            raise ParameterError(
                flag, f"cannot listen on {where}: {said}",
                "a free port of this host", f"{flag}=127.0.0.1:0",
            ) from error  # fmt: skip
        # as the name was resolved, not as it was written; a scraper may use any name of a host
        self.loopback = _is_loopback(str(self.server_address[0]))
        self.is_for_browsers = self.loopback or "/" in routes
        self.names = {host.lower(), socket.gethostname().lower()}

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if self.address_family == socket.AF_INET6 else host
        return f"http://{shown!s}:{port}"

    def start(self) -> None:
        """Serve on a thread of its own until the process ends."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_bind(self) -> None:
        """Bind, without asking the network what this host is called."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve on another thread, unless too many are served already."""
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve, and give the place back, also when a client sends a byte now and then."""
        try:
            cut = threading.Timer(TIMEOUT_S, _cut, (request,))
            cut.daemon = True
            cut.start()
            super().process_request_thread(request, client_address)
            cut.cancel()
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that broke off."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "unruly"
    sys_version = ""
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        if self.server.is_for_browsers and not self._is_addressed():
            told = "ask for an IP address of this host, or for its own name\n"
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", told)
            return
        route = self.server.routes.get(self.path.partition("?")[0])
        if route is None:
            known = ", ".join(self.server.routes)
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"known here: {known}\n")
            return
        kind, text = route
        self._answer(HTTPStatus.OK, kind, text())

    def _is_addressed(self) -> bool:
        name = _name_of(self.headers.get("Host", ""))
        if self.server.loopback:
            return name in self.server.names or _is_loopback(name)
        return name in self.server.names or _is_loopback(name) or _is_address(name)

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", self.server.policy)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal belongs to the run."""


def _cut(request: socket.socket) -> None:
    """End a connection whose time is over; its thread then reads its end."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _name_of(host: str) -> str:
    """Return the name in a header ``Host``, without a port."""
    name, colon, port = host.rpartition(":")
    bare = name if colon and port.isdecimal() else host
    return bare.strip("[]").rstrip(".").lower()


def json_text(document: dict[str, Any]) -> str:
    """Return a document as JSON that every browser reads."""
    return json.dumps(document, allow_nan=False)
