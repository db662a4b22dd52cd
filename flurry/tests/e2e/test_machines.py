"""The page about three machines, typed as it stands; then each machine is lost in turn."""

from __future__ import annotations

import re
from pathlib import Path

from chaos import DEAF
from house import REPOSITORY, need_root, wait_for
from machines import Typist, run, typist

PAGE = REPOSITORY / "flurry" / "docs" / "machines.md"

BLOCK = re.compile(r"```sh\n# machine (\d)(, in the background)?\n(.*?)```", re.DOTALL)


def test_three_machines_serve_redis_clients_and_lose_any_one_as_the_page_says(
    tmp_path: Path,
) -> None:
    need_root("network namespaces")
    text = PAGE.read_text()
    blocks = [(int(where), back, line.strip()) for where, back, line in BLOCK.findall(text)]
    assert len(blocks) == text.count("```sh") >= 10, "a block without its machine"
    (status,) = [line for _, _, line in blocks if line.startswith("flurry status")]
    said = []
    with typist(tmp_path) as someone:
        for machine, background, line in blocks:
            if "still here" in line:
                someone.switch_off(1)
            if background:
                someone.leave_running(machine, line)
            else:
                # Servers join within a moment.
                if line == status:
                    wait_for(lambda: someone.type(2, status).count(" up ") == 3, "three servers")
                said.append(someone.type(machine, line))
        assert someone.type(3, "redis-cli get greeting") == "still here\n"
        start_again(someone, blocks, 1, status)
        for machine, reader in ((2, 3), (3, 2), (1, 2)):
            someone.switch_off(machine)
            serves(someone, reader, f"without-{machine}")
            start_again(someone, blocks, machine, status)
    assert said[0] == ""
    seen = re.sub(r"\d+ ms ago", "12 ms ago", said[1])
    assert seen in text, seen
    assert said[2:] == ["OK\n", "hello\n", "OK\n"]


def test_a_machine_that_hears_nothing_counts_as_lost_though_it_is_heard(tmp_path: Path) -> None:
    need_root("network namespaces")
    blocks = [(int(where), line.strip()) for where, back, line in BLOCK.findall(PAGE.read_text())]
    (status,) = [line for _, line in blocks if line.startswith("flurry status")]
    parts = ("flurry controller", "flurry server", "flurry gateway")
    with typist(tmp_path) as someone:
        for machine, line in blocks:
            if line.startswith("flurry key"):
                someone.type(machine, line)
            elif line == status:
                wait_for(lambda: someone.type(2, status).count(" up ") == 3, "three servers")
            elif line.startswith(parts):
                someone.leave_running(machine, line)
        serves(someone, 3, "before")
        # Its gateway goes on reporting that it lives, its server asking for leases.
        run(someone.pids[2], "nft", f"table ip trouble {{ {DEAF}; }}")
        serves(someone, 2, "without machine 3")
        run(someone.pids[2], "nft", "delete table ip trouble")
        wait_for(lambda: someone.try_to(2, status).stdout.count(" up ") == 3, "machine 3 again")
        assert someone.type(2, "redis-cli get greeting") == "without machine 3\n"


def serves(someone: Typist, machine: int, value: str) -> None:
    """Write and read on a machine as soon as a gateway serves there."""

    def answers() -> bool:
        return someone.type(machine, f"redis-cli set greeting '{value}'") == "OK\n"

    wait_for(answers, f"a gateway on machine {machine} that serves")
    assert someone.type(machine, "redis-cli get greeting") == f"{value}\n"


def start_again(
    someone: Typist, blocks: list[tuple[int, str, str]], machine: int, status: str
) -> None:
    """Start all parts of a machine again, and wait until they take part."""
    for where, background, line in blocks:
        if background and where == machine:
            someone.leave_running(machine, line)

    def whole() -> bool:
        # None of the controllers leads for a moment after the one that led is gone.
        told = someone.try_to(2, status).stdout
        up = len(re.findall(r"^\d +up ", told, re.M))
        return up == 3 and "changing" not in told and "silent" not in told

    wait_for(whole, f"machine {machine} to take part again")
