"""``python -m unruly.live --page HOST:PORT --metrics HOST:PORT --otlp URL``: the runner's view.

It reads the lines of the runner from standard input and first writes ``ready`` and lines
for the user, with tabs between them, or an error.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from unruly.errors import UnrulyError
from unruly.live.otlp import PERIOD_S, Exporter
from unruly.live.prometheus import CONTENT_TYPE, exposition
from unruly.live.server import Server, json_text, page
from unruly.live.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

LAST_EXPORT_S = 4.0
NICER = 10
"""The load generator and its target go first."""


class View:
    """A state that lines change and listeners read."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.state, self.lock = State(), threading.Lock()
        self.over = threading.Event()
        self.documents: queue.Queue[dict[str, Any]] = queue.Queue()
        self.exporting: threading.Thread | None = None
        self.exporter = Exporter(options.otlp) if options.otlp else None
        self.servers = self._servers(options)

    def _servers(self, options: argparse.Namespace) -> list[tuple[str, Server]]:
        html, policy = page()
        text = {
            "/": ("text/html; charset=utf-8", lambda: html),
            "/state.json": (
                "application/json",
                self._locked(lambda: json_text(self.state.document())),
            ),
        }
        numbers = {"/metrics": (CONTENT_TYPE, self._locked(lambda: exposition(self.state)))}
        asked = (
            ("--live", "live", options.page, text),
            ("--metrics", "metrics", options.metrics, numbers),
        )
        return [
            (name, Server(flag, where, routes, policy))
            for flag, name, where, routes in asked
            if where
        ]

    def _locked(self, read: Callable[[], str]) -> Callable[[], str]:
        def locked() -> str:
            with self.lock:
                return read()

        return locked

    def start(self) -> list[str]:
        """Serve; return lines for the user."""
        told = []
        for name, server in self.servers:
            server.start()
            told.append(f"{name}: {server.url}/{'metrics' if name == 'metrics' else ''}")
        if self.exporter:
            told.append(f"otlp: {self.exporter.url} every {PERIOD_S:g} s")
            self.exporting = threading.Thread(target=self._export, daemon=True)
            self.exporting.start()
        return told

    def hear(self, line: str) -> None:
        """Take a line of the runner; one that is none is left out."""
        with self.lock:
            try:
                read = json.loads(line)
                if self.exporter and "trial" in read and self.state.trial:
                    # the last figures of the trial before
                    self.documents.put(self.exporter.document(self.state))
                self.state.hear(read)
            except (ValueError, LookupError, TypeError):
                self.state.refused += 1

    def _export(self) -> None:
        assert self.exporter is not None
        while not (self.over.is_set() and self.documents.empty()):
            try:
                document = self.documents.get(timeout=PERIOD_S)
            except queue.Empty:
                with self.lock:
                    document = self.exporter.document(self.state)
            before = self.exporter.trouble
            self.exporter.send(document)
            trouble = self.exporter.trouble
            if trouble and not before:
                sys.stderr.write(f"--otlp: {trouble}; the run goes on\n")

    def end(self) -> None:
        """Send the last figures; the exporter ends after them."""
        if self.exporter and not self.over.is_set():
            with self.lock:
                self.documents.put(self.exporter.document(self.state))
        self.over.set()


def main() -> int:
    """Serve until standard input ends."""
    # a signal ends the run, and the run ends this
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog="unruly.live")
    for flag in ("--page", "--metrics", "--otlp"):
        parser.add_argument(flag)
    with suppress(OSError):
        os.nice(NICER)
    try:
        view = View(parser.parse_args())
    except UnrulyError as error:
        sys.stdout.write(f"{error}\n")
        return 2
    sys.stdout.write("\t".join(["ready", *view.start()]) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        view.hear(line)
        if view.state.ended:
            view.end()
    view.end()
    if view.exporting:
        view.exporting.join(LAST_EXPORT_S)
    sys.stderr.flush()
    # a receiver that never answers, or a client that never reads, must not hold this process
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
