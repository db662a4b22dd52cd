"""PostgreSQL and MariaDB as Debian ships them, private to a test."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from house import REPOSITORY, wait_for
from redis_house import free_port

HOST: Final = "127.0.0.1"
USER: Final = "app"
PASSWORD: Final = "s3cr3t"
ACCOUNTS: Final = (
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance bigint NOT NULL);"
    "INSERT INTO accounts SELECT i, 'user-' || i, 100 FROM generate_series(1, 1000) i"
)
"""A thousand accounts, each with 100."""

READ: Final = "SELECT balance FROM accounts WHERE id = {random:1..1000}"
MIX: Final = f"""
-- A bank.
-- operation: look 80%
{READ};

-- operation: pay 20%
BEGIN;
UPDATE accounts SET balance = balance - 1 WHERE id = {{random:1..500}};
UPDATE accounts SET balance = balance + 1 WHERE id = {{random:501..1000}};
COMMIT;
"""


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    port: int
    folder: Path
    server: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Its URL with the user, and without the password."""
        return f"postgres://{USER}@{HOST}:{self.port}/postgres"

    def psql(self, statement: str) -> str:
        """What `psql` prints for a statement, without decoration."""
        words = ["psql", "-qAtX", "-h", HOST, "-p", str(self.port), "-U", USER, "postgres"]
        said = subprocess.run(
            [*words, "-v", "ON_ERROR_STOP=1", "-c", statement],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()

    def processes(self) -> list[int]:
        """The server's processes."""
        own = self.server.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        return [own, *map(int, children)]


def binaries() -> Path:
    """The folder of the server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    assert found, "postgres: not installed; hint: apt-get install postgresql"
    return found[-1].parent


def as_postgres(words: Sequence[str | Path]) -> list[str | Path]:
    """The words as the user that the server runs as: it refuses root."""
    if os.geteuid():
        return list(words)
    return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", *words]


def keys(folder: Path, user: str | None) -> tuple[Path, Path]:
    """A certificate for this host and its key, which a server of this user can read."""
    subprocess.run([REPOSITORY / "scripts" / "certificate.sh", folder, HOST], check=True)
    for file in (folder / "cert.pem", folder / "key.pem"):
        file.chmod(0o600)
        if user and not os.geteuid():
            shutil.chown(file, user, user)
    return folder / "cert.pem", folder / "key.pem"


@contextmanager
def postgres(login: str = "scram-sha-256", tls: bool = False) -> Iterator[Postgres]:
    """The server, which lets its user in by this method; with `tls` by TLS alone.

    Its folder is not below `tmp_path`, which its user may not search.
    """
    folder = Path(tempfile.mkdtemp(prefix="unruly-postgres-"))
    try:
        if not os.geteuid():
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o644)
        own = binaries()
        words = [own / "initdb", "-D", folder / "data", "-U", USER, "-A", login, "--no-sync"]
        words += [f"--pwfile={folder / 'password'}", "--locale=C", "-E", "UTF8"]
        made = subprocess.run(as_postgres(words), capture_output=True, check=False, cwd=folder)
        assert made.returncode == 0, made.stderr.decode()
        port = free_port(HOST)
        words = [own / "postgres", "-D", folder / "data", "-k", folder, "-p", str(port)]
        settings = [f"listen_addresses={HOST}", "fsync=off", "shared_buffers=32MB"]
        if tls:
            certificate, key = keys(folder, "postgres")
            settings += ["ssl=on", f"ssl_cert_file={certificate}", f"ssl_key_file={key}"]
            rules = folder / "data" / "pg_hba.conf"
            rules.write_text(re.sub(r"(?m)^host\b", "hostssl", rules.read_text()))
        for setting in settings:
            words += ["-c", setting]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(as_postgres(words), stderr=log, stdout=log, cwd=folder)
        try:
            ready = [own / "pg_isready", "-q", "-h", HOST, "-p", str(port)]
            wait_for(lambda: subprocess.run(ready, check=False).returncode == 0, "postgres")
            yield Postgres(port, folder, server)
        finally:
            # A stopped child would keep the server from ending.
            for process in Postgres(port, folder, server).processes():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
            server.send_signal(signal.SIGQUIT)
            server.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """One server for the tests of a file, with a table of 1,000 accounts."""
    with postgres() as server:
        server.psql(ACCOUNTS)
        server.psql("CREATE TABLE notes (id uuid PRIMARY KEY, text text, account int)")
        yield server


@dataclass(frozen=True)
class MariaDb:
    """A running server."""

    port: int
    folder: Path
    server: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Its URL with the user, and without the password."""
        return f"mysql://{USER}@{HOST}:{self.port}/bank"

    def sql(self, statement: str) -> str:
        """What the client prints for a statement, as the server's own user."""
        words: list[str | Path] = ["mariadb", "--no-defaults", "-N", "-B"]
        words += [f"--socket={self.folder / 'socket'}", "-u", "root", "-e", statement]
        said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()


@contextmanager
def mariadb(tls: bool = False) -> Iterator[MariaDb]:
    """The server, with a database `bank` and a table of accounts; with `tls` by TLS alone."""
    assert shutil.which("mariadbd"), "mariadbd: not installed; hint: apt-get install mariadb-server"
    folder = Path(tempfile.mkdtemp(prefix="unruly-mariadb-"))
    # it refuses root unless root is named
    user = [f"--user={pwd.getpwuid(os.geteuid()).pw_name}"]
    own = ["--no-defaults", f"--datadir={folder / 'data'}", *user]
    try:
        words = ["mariadb-install-db", *own, "--auth-root-authentication-method=normal"]
        made = subprocess.run(
            [*words, "--skip-test-db"], capture_output=True, check=False, cwd=folder
        )
        assert made.returncode == 0, made.stderr.decode()
        port = free_port(HOST)
        words = ["mariadbd", *own, f"--socket={folder / 'socket'}", f"--port={port}"]
        words += [f"--bind-address={HOST}", f"--pid-file={folder / 'pid'}"]
        words += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"]
        if tls:
            certificate, key = keys(folder, None)
            words += [f"--ssl-cert={certificate}", f"--ssl-key={key}"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(words, stderr=log, stdout=log, cwd=folder)
        try:
            wait_for((folder / "socket").exists, "mariadbd")
            found = MariaDb(port, folder, server)
            accounts = ACCOUNTS.replace("'user-' || i", "concat('user-', seq)")
            accounts = accounts.replace("SELECT i,", "SELECT seq,")
            accounts = accounts.replace("generate_series(1, 1000) i", "seq_1_to_1000")
            found.sql(
                f"CREATE DATABASE bank; USE bank; {accounts};"
                "CREATE TABLE notes (id varchar(36) PRIMARY KEY, text text, account int);"
                f"CREATE USER {USER}@'{HOST}' IDENTIFIED BY '{PASSWORD}'"
                f"{' REQUIRE SSL' if tls else ''};"
                f"GRANT ALL ON bank.* TO {USER}@'{HOST}'; GRANT SUPER ON *.* TO {USER}@'{HOST}'"
            )
            yield found
        finally:
            server.send_signal(signal.SIGCONT)
            server.terminate()
            server.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def maria() -> Iterator[MariaDb]:
    """One server for the tests of a file."""
    with mariadb() as server:
        yield server
