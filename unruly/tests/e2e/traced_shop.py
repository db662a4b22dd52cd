"""Two services with OpenTelemetry, as somebody else might write them: a front and its stock.

Run by the Python that has OpenTelemetry: ``traced_shop.py front PORT STOCK_PORT [trouble]`` or
``traced_shop.py stock PORT [trouble]``. A trouble is real: a pool that others hold, work that takes
long, too few workers, a call that is made again and again. It happens to about one request in 50.
"""

from __future__ import annotations

import http.client
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

from opentelemetry import propagate, trace

SLOW_S = 0.2
EVERY = 50
CONNECTIONS = 4
ROLE, PORT = sys.argv[1], int(sys.argv[2])
STOCK_PORT = int(sys.argv[3]) if ROLE == "front" else 0
TROUBLE = (sys.argv[4:] if ROLE == "front" else sys.argv[3:] or [""])[:1] or [""]
COUNT = iter(range(1, 1 << 60))

about = {"service.name": ROLE, "process.command_line": "shop --password=s3cr3t"}
provider = TracerProvider(resource=Resource.create(about))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")
pool = threading.Semaphore(CONNECTIONS)


def troubled(name: str) -> bool:
    """Whether this trouble happens to this request."""
    return [name] == TROUBLE and next(COUNT) % EVERY == 0


def hold_the_pool() -> None:
    """Take all connections now and then, as a long report would."""
    while True:
        time.sleep(2.5)
        for _ in range(CONNECTIONS):
            pool.acquire()
        time.sleep(SLOW_S)
        pool.release(CONNECTIONS)


def burn(seconds: float) -> None:
    """Work."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(100))


class Handler(BaseHTTPRequestHandler):
    """Answers within a span that continues the caller's trace."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer."""
        # this wait has no span: the queue of a service with too few workers
        if troubled("queue"):
            time.sleep(SLOW_S)
        context = propagate.extract(dict(self.headers))
        with tracer.start_as_current_span(f"GET {self.path}", context, SpanKind.SERVER):
            view() if ROLE == "front" else look_up()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def view() -> None:
    """Take a connection of the pool, ask the stock, and make a page."""
    with tracer.start_as_current_span("pool.get"):
        pool.acquire()
    try:
        for _ in range(60 if troubled("calls") else 1):
            ask()
    finally:
        pool.release()
    with tracer.start_as_current_span("render"):
        burn(0.0005)


def ask() -> None:
    """Ask the stock, over a connection that this thread keeps."""
    with tracer.start_as_current_span("GET /stock", kind=SpanKind.CLIENT):
        headers: dict[str, str] = {}
        propagate.inject(headers)
        if not hasattr(kept, "link"):
            kept.link = http.client.HTTPConnection("127.0.0.1", STOCK_PORT)
        kept.link.request("GET", "/stock", headers=headers)
        kept.link.getresponse().read()


kept = threading.local()


def look_up() -> None:
    """Find something."""
    with tracer.start_as_current_span("lookup"):
        time.sleep(SLOW_S if troubled("lookup") else 0.001)


if __name__ == "__main__":
    if TROUBLE == ["pool"]:
        threading.Thread(target=hold_the_pool, daemon=True).start()
    socketserver.TCPServer.request_queue_size = 64
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
