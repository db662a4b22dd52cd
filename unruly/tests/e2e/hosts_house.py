"""Hosts that tests reach by ssh: network namespaces with an sshd each, joined by a bridge."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from house import need_root, wait_for

NETWORK = "10.88.0"
HERE = f"{NETWORK}.254"
"""This host's address on the bridge."""

SSHD = """
ListenAddress {address}
HostKey {folder}/host-key
AuthorizedKeysFile {folder}/user-key.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
"""
SSH = """
Host node-*
    User root
    IdentityFile {folder}/user-key
    UserKnownHostsFile {folder}/known-hosts
    StrictHostKeyChecking yes
    LogLevel ERROR
"""


@dataclass
class Hosts:
    """Hosts `node-1` and on, as far as this folder's `ssh` knows them."""

    folder: Path
    count: int

    @property
    def environment(self) -> dict[str, str]:
        """An environment in which `ssh node-1` reaches the first host."""
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def names(self, scheme: str = "ssh:") -> str:
        return ",".join(f"{scheme}node-{number}" for number in range(1, self.count + 1))

    @contextmanager
    def cut_off(self, number: int) -> Iterator[None]:
        """Take a host off the network; its connections stay open, and silent."""
        run("ip", "link", "set", f"ut-port{number}", "down")
        try:
            yield
        finally:
            run("ip", "link", "set", f"ut-port{number}", "up")

    def forget(self) -> None:
        """Forget the keys of all hosts, as on a machine that never reached them."""
        (self.folder / "known-hosts").write_text("")


def address(number: int) -> str:
    """The address of a host on the bridge."""
    return f"{NETWORK}.{number}"


def run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=30)


@contextmanager
def ssh_hosts(folder: Path, count: int) -> Iterator[Hosts]:
    """Namespaces that an sshd each listens in. They share this machine's clock and files."""
    need_root("a network namespace")
    folder.mkdir()
    # The bridge and its addresses are there once on a machine.
    lock = Path(tempfile.gettempdir()) / "unruly-test-hosts.lock"
    with lock.open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        with joined(folder, count) as hosts:
            yield hosts


@contextmanager
def joined(folder: Path, count: int) -> Iterator[Hosts]:
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host-key", "user-key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key)
    public = (folder / "host-key.pub").read_text().split()[:2]
    lines = [SSH.format(folder=folder)]
    known = []
    with ExitStack() as stack:
        bridge(stack)
        for number in range(1, count + 1):
            place = address(number)
            namespace(stack, number, place)
            sshd(stack, folder, number, place)
            lines.append(f"Host node-{number}\n    HostName {place}\n")
            known.append(" ".join([place, *public]))
        (folder / "known-hosts").write_text("\n".join(known) + "\n")
        (folder / "config").write_text("\n".join(lines))
        wrapper = folder / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
        wrapper.chmod(0o755)
        hosts = Hosts(folder, count)
        for number in range(1, count + 1):
            wait_for(lambda number=number: answers(hosts, number), f"sshd of node-{number}")
        yield hosts


def answers(hosts: Hosts, number: int) -> bool:
    words = ["ssh", "-o", "BatchMode=yes", f"node-{number}", "true"]
    done = subprocess.run(words, env=hosts.environment, capture_output=True, check=False)
    return done.returncode == 0


def bridge(stack: ExitStack) -> None:
    run("ip", "link", "add", "ut-bridge", "type", "bridge")
    stack.callback(run, "ip", "link", "del", "ut-bridge")
    run("ip", "addr", "add", f"{HERE}/24", "dev", "ut-bridge")
    run("ip", "link", "set", "ut-bridge", "up")


def namespace(stack: ExitStack, number: int, address: str) -> None:
    name, port = f"ut-node-{number}", f"ut-port{number}"
    run("ip", "netns", "add", name)
    stack.callback(run, "ip", "netns", "del", name)
    run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    # The kernel removes what a namespace holds some time after it.
    stack.callback(run, "ip", "link", "del", port)
    run("ip", "link", "set", port, "master", "ut-bridge", "up")
    inside = ("ip", "netns", "exec", name, "ip")
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
    run(*inside, "link", "set", "eth0", "up")


def sshd(stack: ExitStack, folder: Path, number: int, address: str) -> None:
    config = folder / f"sshd-{number}.conf"
    config.write_text(SSHD.format(folder=folder, address=address))
    log = stack.enter_context((folder / f"sshd-{number}.log").open("wb"))
    # Not `ip netns exec`, which hides the control groups of the machine.
    words = ["nsenter", f"--net=/run/netns/ut-node-{number}", "/usr/sbin/sshd", "-D", "-e"]
    process = subprocess.Popen([*words, "-f", str(config)], stderr=log)

    def end() -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait()

    stack.callback(end)


def left_over() -> list[Path]:
    """Folders of processes on hosts, and the processes that write there."""
    folders = list(Path(tempfile.gettempdir()).glob("unruly-host-*"))
    of_hosts = [
        entry
        for entry in Path("/proc").glob("[0-9]*")
        if b"unruly-host-" in words_of(entry) or words_of(entry).endswith(b"unruly\0host\0")
    ]
    return [*folders, *of_hosts]


def words_of(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
