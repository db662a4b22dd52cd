"""Has `unruly drive` ask a SQLite database: a driver in Python, on standard input and output.

    unruly drive "program:python3 unruly/examples/sqlite_driver.py /tmp/store.db" -c 4 -d 10s

The lines are those of unruly/docs/drivers.md. Requests are carried out one after the other, as
SQLite does; a driver that has several connections may answer in any order.
"""

from __future__ import annotations

import sqlite3
import sys
import time


def serve(database: sqlite3.Connection) -> None:
    """Answer each line until there are no more."""
    for line in sys.stdin:
        word, *rest = line.rstrip("\n").split(" ")
        if word == "unruly":
            answer = "unruly 1"
        else:
            request, _client, key, *value = rest
            sent_ns = time.monotonic_ns()
            try:
                done = write(database, key, value[0]) if value else read(database, key)
            except sqlite3.Error as error:
                done = ("failed", f" store {error}")
            answer = f"{done[0]} {request} {sent_ns} {time.monotonic_ns()}{done[1]}"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def write(database: sqlite3.Connection, key: str, value: str) -> tuple[str, str]:
    """Give a key a value, on disk when this returns."""
    with database:
        database.execute("insert or replace into store values (?, ?)", (key, value))
    return "done", ""


def read(database: sqlite3.Connection, key: str) -> tuple[str, str]:
    """Look a key up."""
    found = database.execute("select value from store where key = ?", (key,)).fetchone()
    return ("found", f" {found[0]}") if found else ("missing", "")


if __name__ == "__main__":
    store = sqlite3.connect(sys.argv[1])
    store.execute("create table if not exists store (key text primary key, value text)")
    serve(store)
