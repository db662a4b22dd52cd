"""Three machines in one: network namespaces without a name, joined by a bridge in a fourth."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NETWORK = "10.77.0"


@contextmanager
def _namespace() -> Iterator[int]:
    """A network namespace that lives as long as the process that holds it."""
    words = ["unshare", "--net", "--kill-child", "sh", "-c", "echo ready; exec sleep 3600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            yield holder.pid
        finally:
            holder.kill()


def within(pid: int, *words: str | Path) -> list[str | Path]:
    """The words of a command, run inside a namespace."""
    return ["nsenter", "--target", str(pid), "--net", "--", *words]


def run(pid: int, *words: str) -> None:
    done = subprocess.run(within(pid, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


@contextmanager
def machines(count: int) -> Iterator[list[int]]:
    """Machines 10.77.0.1, 10.77.0.2, ...: the processes that hold their namespaces."""
    with ExitStack() as stack:
        middle = stack.enter_context(_namespace())
        run(middle, "ip", "link", "add", "bridge", "type", "bridge")
        run(middle, "ip", "link", "set", "bridge", "up")
        pids = []
        for number in range(1, count + 1):
            pid = stack.enter_context(_namespace())
            port = f"port{number}"
            peer = ["peer", "name", "eth0", "netns", str(pid)]
            run(middle, "ip", "link", "add", port, "type", "veth", *peer)
            run(middle, "ip", "link", "set", port, "master", "bridge", "up")
            run(pid, "ip", "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            run(pid, "ip", "link", "set", "eth0", "up")
            run(pid, "ip", "link", "set", "lo", "up")
            pids.append(pid)
        yield pids
