"""Cookies: a client is known to its server again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from http_house import certificate, nginx, server
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from pathlib import Path

    from http_house import Connection

LOGIN = """
location / {
    if ($cookie_sid) { return 204; }
    add_header Set-Cookie "sid=$request_id; Path=/" always;
    return 401;
}
"""
"""Whoever has no session gets one, and is let in with the next request."""


@pytest.mark.parametrize("flags", [[], ["--http2"]], ids=["http1", "http2"])
def test_each_client_is_let_in_after_its_first_request(tmp_path: Path, flags: list[str]) -> None:
    certificate(tmp_path)
    with nginx(tmp_path, LOGIN, tls=True, http2=True) as url:
        words = ["-k", "-n", "200", "-c", "5", *flags]
        kept = drive(tmp_path, url, "--cookies", *words)
        none = drive(tmp_path, url, *words)
    assert statuses(kept) == {("error:401", 401): 5, ("ok", 204): 195}
    assert statuses(none) == {("error:401", 401): 200}
    assert "each client with its cookies" in kept.manifest["target"]


def test_clients_that_share_connections_keep_their_cookies_apart(tmp_path: Path) -> None:
    seen: list[str] = []

    def counts(connection: Connection) -> None:
        while connection.request():
            seen.append(connection.headers.get("cookie", ""))
            header = "" if seen[-1] else f"\r\nSet-Cookie: client={len(seen)}; Path=/"
            connection.reply("ok", f"HTTP/1.1 200 OK{header}")

    with server(counts) as url:
        drive(tmp_path, url, "-n", "90", "-c", "6", "--connections", "2", "--cookies")
    assert seen.count("") == 6
    assert len(set(seen)) == 7


def test_a_server_that_has_no_cookies_is_named(tmp_path: Path) -> None:
    assert "only an http://" in refused(tmp_path, "redis://127.0.0.1:1", "--cookies")
    said = refused(tmp_path, "grpc://127.0.0.1:1/a.B/C", "--cookies")
    assert "only an http:// or https:// URL has it" in said
