"""A shop that wants a login: who has no token and no cookie of it gets nothing."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from http_house import server

if TYPE_CHECKING:
    from pathlib import Path

    from http_house import Connection

SCENARIO = r"""
[[state]]
name = "login"
path = "/login"
headers = "Content-Type: application/json"
body = '{"user": "user-{sequence}"}'
capture = { token = "json:access_token" }

[[state]]
name = "browse"
path = "/items?page={random:1..9}"
headers = "Authorization: Bearer {captured.token}"
contains = "price"
capture = { item = 'regex:id="item-(\d+)"' }
then = { item = 0.6, browse = 0.2, end = 0.2 }

[[state]]
name = "item"
path = "/items/{captured.item}"
headers = "Authorization: Bearer {captured.token}"
then = "back"
"""


class Shop:
    """What each user who logged in asked for, in order, by its token."""

    def __init__(self, chunked: bool = False) -> None:
        self.lock = threading.Lock()
        self.chunked = chunked
        self.pause_s = 0.0
        self.asked: dict[str, list[str]] = defaultdict(list)
        self.item: dict[str, str] = {}
        self.wrong: list[str] = []

    def __call__(self, connection: Connection) -> None:
        while line := connection.request():
            method, path, _ = line.split(" ")
            with self.lock:
                time.sleep(self.pause_s)
                self.answer(connection, method, path)

    def reply(self, connection: Connection, body: str, head: str = "") -> None:
        if not self.chunked:
            return connection.reply(body, f"HTTP/1.1 200 OK{head}")
        pieces = [body[:3], body[3:]]
        chunks = "".join(f"{len(it):x}\r\n{it}\r\n" for it in pieces) + "0\r\n\r\n"
        head = f"HTTP/1.1 200 OK{head}\r\nTransfer-Encoding: chunked\r\n\r\n"
        return connection.stream.sendall((head + chunks).encode())

    def answer(self, connection: Connection, method: str, path: str) -> None:
        if path == "/public":
            return self.reply(connection, "for everybody")
        if path == "/login":
            known = method == "POST" and json.loads(connection.body)["user"].startswith("user-")
            # A new user has nothing of another one.
            if not known or "cookie" in connection.headers:
                self.wrong.append(str(connection.headers))
            token = f"token{len(self.asked)}"
            self.asked[token].append("login")
            cookie = f"\r\nSet-Cookie: sid={token}; Path=/"
            return self.reply(connection, json.dumps({"access_token": token}), cookie)
        token = connection.headers.get("authorization", "").removeprefix("Bearer ")
        if connection.headers.get("cookie") != f"sid={token}" or token not in self.asked:
            self.wrong.append(str(connection.headers))
            return connection.reply("who are you?", "HTTP/1.1 401 Unauthorized")
        if path.startswith("/items?"):
            self.asked[token].append("browse")
            self.item[token] = str(1000 + len(self.asked[token]))
            return self.reply(connection, f'<a id="item-{self.item[token]}">price 3</a>')
        if path != f"/items/{self.item[token]}":
            self.wrong.append(path)
        self.asked[token].append("item")
        return self.reply(connection, "an item")


@contextmanager
def shop(folder: Path, chunked: bool = False) -> Iterator[tuple[Shop, str, Path]]:
    """The shop, its URL, and a scenario of its users."""
    scenario = folder / "shop.toml"
    scenario.write_text(SCENARIO)
    made = Shop(chunked)
    with server(made) as url:
        yield made, url, scenario
