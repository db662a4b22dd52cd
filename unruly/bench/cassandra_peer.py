"""Writes to Cassandra as fast as it answers, by the Python driver of its makers."""

from __future__ import annotations

import re
import sys
import time
from threading import Event, Lock
from typing import Any

WARMUP_S = 1.0
CONSISTENCY = "QUORUM"


def main(library: str, url: str, clients: int, seconds: float, keys: int, value_bytes: int) -> None:
    """Print the operations in the measured time, all operations, and the measured seconds."""
    sys.path.insert(0, library)
    from cassandra import ConsistencyLevel  # noqa: PLC0415
    from cassandra.cluster import Cluster  # noqa: PLC0415

    places = re.findall(r"([0-9.]+):([0-9]+)", url)
    session = Cluster([host for host, _ in places], port=int(places[0][1])).connect("unruly")
    write = session.prepare("insert into store (key, value) values (?, ?)")
    write.consistency_level = getattr(ConsistencyLevel, CONSISTENCY)
    value = "x" * value_bytes
    lock, over = Lock(), Event()
    began = time.monotonic()
    counts = {"asked": 0, "measured": 0, "open": clients}

    def ask(number: int) -> None:
        future = session.execute_async(write, (f"unruly:{number % keys:012}", value))
        future.add_callbacks(done, failed)

    def done(_: Any) -> None:
        since = time.monotonic() - began
        with lock:
            counts["asked"] += 1
            counts["measured"] += WARMUP_S <= since < WARMUP_S + seconds
            number = counts["asked"] + clients
            if since >= WARMUP_S + seconds:
                counts["open"] -= 1
                if counts["open"] == 0:
                    over.set()
                return
        ask(number)

    def failed(error: Exception) -> None:
        print(error, file=sys.stderr)
        over.set()

    for number in range(clients):
        ask(number)
    over.wait(timeout=60 + seconds)
    print(counts["measured"], counts["asked"], seconds)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:7]))
