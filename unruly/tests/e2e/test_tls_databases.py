"""Databases by TLS: a connection begins in the clear, and both sides agree to go on encrypted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from sql_house import ACCOUNTS, MIX, PASSWORD, MariaDb, Postgres, mariadb, postgres
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEW = ("-n", "200", "-c", "4")
ONE = ("--sql", "SELECT 1")


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password of the servers' user."""
    monkeypatch.setenv("UNRULY_PASSWORD", PASSWORD)


@pytest.fixture(scope="module", params=["postgres", "mysql"])
def secure(request: pytest.FixtureRequest) -> Iterator[Postgres | MariaDb]:
    """A server that lets nobody in without TLS."""
    if request.param == "mysql":
        with mariadb(tls=True) as server:
            yield server
    else:
        with postgres(tls=True) as database:
            database.psql(ACCOUNTS)
            yield database


@pytest.mark.smoke
def test_statements_are_measured_by_tls(tmp_path: Path, secure: Postgres | MariaDb) -> None:
    (tmp_path / "bank.sql").write_text(MIX)
    authority = tmp_path / "ca.pem"
    shutil.copy(secure.folder / "cert.pem", authority)
    flags = ("--sql-file", tmp_path / "bank.sql", "--ca-cert", authority)
    run = drive(tmp_path, f"{secure.url}?tls=true", *flags, *FEW)
    assert statuses(run) == {("ok", None): 200}
    layers = dict(run.rows("select layer, count(*) from spans group by 1"))
    # Each connection has its handshake in the run, besides the one before it.
    assert layers["connect"] == layers["tls"] == 4


def test_a_certificate_that_nobody_vouches_for_is_refused_unless_any_is_accepted(
    tmp_path: Path, secure: Postgres | MariaDb
) -> None:
    url = f"{secure.url}?tls=true"
    said = refused(tmp_path, url, *ONE)
    assert "its certificate is not accepted" in said
    assert "--insecure" in said
    assert statuses(drive(tmp_path, url, *ONE, "-k", *FEW)) == {("ok", None): 200}


def test_a_server_that_wants_tls_refuses_a_client_without_it(
    tmp_path: Path, secure: Postgres | MariaDb
) -> None:
    said = refused(tmp_path, secure.url, *ONE)
    assert "no encryption" in said or "Access denied" in said


def test_a_server_without_tls_is_named_before_the_run(tmp_path: Path) -> None:
    with postgres() as server:
        said = refused(tmp_path, f"{server.url}?tls=true", *ONE, "-k")
    assert "it does not speak TLS: leave out tls=true" in said


@pytest.mark.parametrize(
    ("url", "flags", "wrong"),
    [
        ("postgres://u@127.0.0.1/d?tls=yes", [], 'tls is "yes"; wanted true or false'),
        ("postgres://u@127.0.0.1/d", ["-k"], "only an https:// URL, or another one by TLS, has it"),
        ("mysql://u@127.0.0.1/d?tls=true", ["--ca-cert", "none.pem"], "none.pem"),
    ],
)
def test_what_tls_cannot_use_is_refused(
    tmp_path: Path, url: str, flags: list[str], wrong: str
) -> None:
    assert wrong in refused(tmp_path, url, *ONE, *flags)
