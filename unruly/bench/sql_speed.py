"""PostgreSQL at full speed against pgbench, which keeps no row of an operation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.speed import CLIENT_CORE, SERVER_CORE, Speed, compared, ours, pinned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.result import Result

SECONDS = 4
PORT = 21_113
CLIENTS = 4
ACCOUNTS = 100_000
USER = "bench"

SELECT: Final = f"SELECT abalance FROM pgbench_accounts WHERE aid = {{random:1..{ACCOUNTS}}};"
TRANSFER: Final = f"""
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = {{random:1..{ACCOUNTS}}};
SELECT abalance FROM pgbench_accounts WHERE aid = {{random:1..{ACCOUNTS}}};
UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = {{random:1..10}};
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
VALUES ({{random:1..10}}, 1, {{random:1..{ACCOUNTS}}}, 1, CURRENT_TIMESTAMP);
END;
"""
"""What pgbench calls TPC-B-like, at its smallest scale."""

PLAN: Final = """
name = "bench"
seed = 1
tag = "bench"
[run]
duration = "{seconds}s"
warmup = "500ms"
[drive]
url = "postgres://{user}@127.0.0.1:{port}/postgres"
clients = {clients}
arrivals = "closed"
timeout = "5s"
sql = \"\"\"{sql}\"\"\"
[probe]
period = "500ms"
[pin]
"drive-0" = [{core}]
"""


@dataclass(frozen=True)
class Case:
    """Operations, as unruly and as pgbench are asked for them."""

    name: str
    what: str
    sql: str
    flags: tuple[str, ...]


CASES: Final = (
    Case("select", "a prepared SELECT by its key", SELECT, ("-S",)),
    Case("transfer", "a transaction of seven statements", TRANSFER, ()),
)


def _as_server(words: Sequence[str | Path]) -> list[str | Path]:
    """The words on the server's core, as a user that PostgreSQL accepts."""
    user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    return ["taskset", "-c", str(SERVER_CORE), *([] if os.geteuid() else user), *words]


@contextmanager
def postgres() -> Iterator[Path]:
    """A server on its core with pgbench's tables; yields the folder of its programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise RuntimeError("postgres: not installed; hint: apt-get install postgresql")
    own = found[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="unruly-bench-"))
    try:
        if not os.geteuid():
            shutil.chown(folder, "postgres", "postgres")
        data = folder / "data"
        init: list[str | Path] = [own / "initdb", "-D", data, "-U", USER, "-A", "trust", "-N"]
        subprocess.run(_as_server(init), check=True, capture_output=True, cwd=folder)
        words: list[str | Path] = [own / "postgres", "-D", data, "-k", folder, "-p", str(PORT)]
        for setting in ("listen_addresses=127.0.0.1", "fsync=off", "max_wal_size=4GB"):
            words += ["-c", setting]
        server = subprocess.Popen(
            _as_server(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
        )
        try:
            _until_ready(own)
            tables = [str(own / "pgbench"), *_place(), "-i", "-q", "postgres"]
            subprocess.run(tables, check=True, capture_output=True)
            yield own
        finally:
            server.terminate()
            server.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _place() -> list[str]:
    return ["-h", "127.0.0.1", "-p", str(PORT), "-U", USER]


def _until_ready(own: Path) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        ready: list[str | Path] = [own / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(PORT)]
        if subprocess.run(ready, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise RuntimeError("postgres: did not answer within 30 s")


def theirs(case: Case, own: Path) -> Speed:
    """What pgbench reaches with as many connections, and its CPU time."""
    flags = ["-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-T", str(SECONDS)]
    said, cpu_s = pinned([str(own / "pgbench"), *_place(), *flags, *case.flags, "postgres"])
    count = re.search(r"transactions actually processed: ([0-9]+)", said)
    rate = re.search(r"tps = ([0-9.]+)", said)
    if count is None or rate is None:
        raise RuntimeError(f"pgbench: no rate in what it said: {said}")
    return Speed(float(rate[1]), 1e6 * cpu_s / int(count[1]), int(count[1]))


def run() -> list[Result]:
    """Measure each kind of operation."""
    with postgres() as own:
        return [result for case in CASES for result in _of(case, own)]


def _of(case: Case, own: Path) -> list[Result]:
    plan = PLAN.format(
        seconds=SECONDS, user=USER, port=PORT, clients=CLIENTS, sql=case.sql, core=CLIENT_CORE
    )
    unequal = (
        f"{CLIENTS} connections; unruly records a row for each operation; PostgreSQL on core 0, "
        "both generators on core 1"
    )
    return compared(
        f"sql-{case.name}", f"{case.what}, to pgbench", unequal,
        lambda: ours(plan), lambda: theirs(case, own),
    )  # fmt: skip
