"""A server of a language model that writes down when it sent each token."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"


@dataclass
class Model:
    """How it answers, and what it saw.

    ``pause`` says how long it waits before a token: the number of the request, that of the token.
    """

    tokens: int = 8
    pause: Callable[[int, int], float] = lambda *_: 0.002
    cut_after: int | None = None
    """It closes the connection after this number of tokens."""
    error_after: int | None = None
    """It reports an error in the stream after this number of tokens."""
    stream: str | None = None
    """What its stream has instead of tokens, an event a line."""
    whole: str = json.dumps({"choices": [{"message": {"content": "a whole reply"}}]})
    """Its reply to a request without a stream, or where it sends none."""
    streams: bool = True
    bodies: list[dict[str, object]] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    authorizations: set[str] = field(default_factory=set)
    sent_ns: list[list[int]] = field(default_factory=list)
    """When each token of each reply was sent, monotonic."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def event(handler: BaseHTTPRequestHandler, data: str) -> None:
    line = f"data: {data}\n\n".encode()
    handler.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
    handler.wfile.flush()


def token(number: int, chat: bool) -> str:
    word = f"word{number} "
    choice = {"delta": {"content": word}} if chat else {"text": word}
    return json.dumps({"choices": [{"index": 0, "finish_reason": None, **choice}]})


def handler_of(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with model.lock:
                number = len(model.bodies)
                model.bodies.append(body)
                model.paths.add(self.path)
                model.authorizations.add(self.headers.get("Authorization", ""))
                model.sent_ns.append([])
            if body.get("stream") and model.streams:
                self.stream(number)
            else:
                self.whole()

        def whole(self) -> None:
            reply = model.whole.encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def stream(self, number: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if model.stream is not None:
                for line in model.stream.splitlines():
                    event(self, line)
                self.wfile.write(b"0\r\n\r\n")
                self.wfile.flush()
                return
            event(self, json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
            for place in range(model.tokens):
                if place == model.cut_after:
                    self.close_connection = True
                    return
                if place == model.error_after:
                    event(self, json.dumps({"error": {"message": "out of memory"}}))
                    break
                time.sleep(model.pause(number, place))
                model.sent_ns[number].append(time.monotonic_ns())
                event(self, token(place, self.path.endswith("/chat/completions")))
            event(self, json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
            event(self, "[DONE]")
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def llm(model: Model) -> Iterator[str]:
    """The server; yields its address."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is no error of the server."""

    with Server((HOST, 0), handler_of(model)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"{HOST}:{server.server_port}"
        finally:
            with suppress(OSError):
                server.shutdown()
            serving.join()
