"""Redis and memcached by TLS: the same options and refusals as an HTTPS server."""

from __future__ import annotations

import os
import pwd
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from house import Measured, wait_for
from http_house import answers, certificate
from redis_house import free_port
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"


@contextmanager
def served(words: list[str | Path], port: int, folder: Path) -> Iterator[str]:
    """A server on this port, ended in the end; yields its address."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)
    try:
        wait_for(lambda: answers(port), str(words[0]))
        yield f"{HOST}:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def redis(folder: Path, *more: str) -> Iterator[str]:
    """Redis that speaks TLS alone, with the certificate of the folder."""
    certificate(folder)
    port = free_port(HOST)
    words: list[str | Path] = ["redis-server", "--port", "0", "--tls-port", str(port)]
    words += ["--bind", HOST, "--save", "", "--tls-auth-clients", "no"]
    words += ["--tls-cert-file", folder / "cert.pem", "--tls-key-file", folder / "key.pem"]
    words += ["--tls-ca-cert-file", folder / "cert.pem", *more]
    with served(words, port, folder) as place:
        yield f"rediss://{place}"


@contextmanager
def memcached(folder: Path) -> Iterator[str]:
    """memcached that speaks TLS."""
    certificate(folder)
    port = free_port(HOST)
    files = f"ssl_chain_cert={folder / 'cert.pem'},ssl_key={folder / 'key.pem'}"
    user = pwd.getpwuid(os.geteuid()).pw_name
    words: list[str | Path] = ["memcached", "-u", user, "-l", HOST, "-p", str(port), "-Z"]
    with served([*words, "-o", files], port, folder) as place:
        yield f"memcacheds://{place}"


def all_right(run: Measured, requests: int) -> None:
    assert statuses(run) == {("ok", None): requests}
    (kernel, distinct) = run.rows(
        "select count(kernel_received_ns), count(distinct request) from requests"
    )[0]
    assert (kernel, distinct) == (requests, requests)
    ((handshakes,),) = run.rows("select count(*) from spans where layer = 'tls'")
    assert handshakes >= 1


@pytest.mark.smoke
def test_redis_by_tls_is_measured_and_its_values_are_checked(tmp_path: Path) -> None:
    with redis(tmp_path) as url:
        flags = ["--ca-cert", tmp_path / "cert.pem", "-c", "4", "--keys", "50", "--pipeline", "4"]
        run = drive(tmp_path, url, "-n", "2000", *flags)
        stranger = refused(tmp_path, url)
        clear = refused(tmp_path, url.replace("rediss:", "redis:"))
    all_right(run, 2000)
    assert dict(run.rows("select op, count(*) from requests group by 1"))["read"] > 900
    assert "its certificate is not accepted" in stranger
    assert "and without TLS?" in clear


def test_memcached_by_tls_is_measured(tmp_path: Path) -> None:
    with memcached(tmp_path) as url:
        run = drive(tmp_path, url, "-n", "500", "-c", "2", "--keys", "20", "-k")
    all_right(run, 500)
    assert "the certificate is not checked" in run.manifest["target"]


def test_a_password_goes_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNRULY_PASSWORD", "s3cr3t")
    with redis(tmp_path, "--requirepass", "s3cr3t") as url:
        run = drive(tmp_path, url, "-n", "100", "-k", "--keys", "10")
        monkeypatch.setenv("UNRULY_PASSWORD", "wrong")
        said = refused(tmp_path, url, "-k")
    all_right(run, 100)
    assert "WRONGPASS" in said


def test_a_server_without_tls_and_flags_without_tls_are_named(tmp_path: Path) -> None:
    port = free_port(HOST)
    words: list[str | Path] = ["redis-server", "--port", str(port), "--bind", HOST, "--save", ""]
    with served(words, port, tmp_path) as place:
        said = refused(tmp_path, f"rediss://{place}", "-k")
    assert "leave out the s of the scheme" in said
    said = refused(tmp_path, f"redis://{HOST}:1", "-k")
    assert "--insecure: " in said
    assert "another one by TLS" in said
    said = refused(tmp_path, f"memcacheds://{HOST}:1", "--transport", "udp")
    assert "memcacheds is not spoken over udp" in said
