"""Throws files that are nearly right at the program, through the door that a user takes.

``python tests/fuzz/files.py COUNT [SEED] [CASE]`` changes a file of ``corpus/``, one for each
format, and imports it; or it changes the limits, the manifest or a segment of a small run and asks
for the gate's or the verdict's opinion. Each case is a process of its own with bounded memory and
processor time. It fails when a case ends in anything but a result or an error in words: another
exit code, an error that nobody foresaw, a breached bound, or rows that nobody accounts for. A case
is replayed by its seed and number.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from unruly.__main__ import main as unruly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

HERE = Path(__file__).parent


class Dice:
    """Chance that replays."""

    def __init__(self, *seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def below(self, most: int) -> int:
        """0 to ``most`` - 1."""
        return int(self.random.integers(most))

    def between(self, least: int, most: int) -> int:
        """``least`` to ``most``."""
        return int(self.random.integers(least, most + 1))

    def share(self) -> float:
        """0 to 1."""
        return float(self.random.random())

    def choice(self, of: Sequence[T]) -> T:
        """One of these."""
        return of[self.below(len(of))]


CORPUS = sorted(path for path in (HERE / "corpus").iterdir() if path.suffix != ".toml")
LIMITS = HERE / "corpus" / "limits.toml"
GROWTH_BYTES = 1 << 30
"""Memory that a case may take beyond what the libraries have."""
CPU_SECONDS = 60
PATTERN = r"^(?P<time>\S+) (?P<op>\w+) took (?P<value>[0-9.]+) ms, (?P<status>\w+)"
RESULTS = {"import": {0, 2}, "gate": {0, 1, 2, 3}, "verdict": {0, 1, 2}}
UNFORESEEN = "the whole error is in"
OTHERS = (
    "null", "true", "-1", "0", "1e999", "NaN", '"x"', "[]", "{}", "[[[[[[]]]]]]", "9" * 40,
    '"2024-13-45T99:99:99Z"', '"\\u0000\\u001b[2J"', "1e-320", "-9223372036854775809",
)  # fmt: skip


def bent_bytes(data: bytes, dice: Dice) -> bytes:
    """Flip, drop, double or insert bytes."""
    out = bytearray(data)
    for _ in range(dice.between(1, 6)):
        at = dice.below(len(out) + 1)
        match dice.below(4):
            case 0 if out:
                out[at % len(out)] ^= 1 << dice.below(8)
            case 1:
                del out[at : at + dice.between(1, 30)]
            case 2:
                out[at:at] = out[at : at + dice.between(1, 60)]
            case _:
                out[at:at] = dice.choice([b'"', b",", b"\n", b"\0", b"\xff", b"-", b"1e999", b";"])
    return bytes(out)


def bent_lines(data: bytes, dice: Dice) -> bytes:
    """Drop, double, swap or cut whole lines, or one field of a line."""
    lines = data.split(b"\n")
    for _ in range(dice.between(1, 4)):
        at = dice.below(len(lines))
        match dice.below(4):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines[at:at] = [lines[at]] * dice.between(1, 50)
            case 2:
                other = dice.below(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                mark = dice.choice([b",", b";", b" ", b"\t"])
                fields = lines[at].split(mark)
                fields[dice.below(len(fields))] = dice.choice(OTHERS).encode()
                lines[at] = mark.join(fields)
    return b"\n".join(lines)


def bent_json(data: bytes, dice: Dice) -> bytes:
    """Put another value in the place of one, anywhere in a document or in one of its lines."""
    lines = data.split(b"\n")
    at = dice.below(len(lines))
    whole = _json(data)
    told = whole if whole is not None else _json(lines[at])
    if told is None:
        return bent_lines(data, dice)
    places = list(_places(told))
    if not places:
        return bent_bytes(data, dice)
    holder, key = dice.choice(places)
    holder[key] = "\ue000"
    text = json.dumps(told).replace('"\\ue000"', dice.choice(OTHERS)).encode()
    if whole is not None:
        return text
    lines[at] = text
    return b"\n".join(lines)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _places(told: Any) -> Iterator[tuple[Any, Any]]:
    items = (
        told.items()
        if isinstance(told, dict)
        else enumerate(told)
        if isinstance(told, list)
        else ()
    )
    for key, value in list(items):
        yield told, key
        yield from _places(value)


CHANGES = (bent_bytes, bent_lines, bent_json)


def changed(path: Path, dice: Dice) -> bytes:
    """The bytes of a file, changed."""
    return dice.choice(CHANGES)(path.read_bytes(), dice)


def case(number: int, seed: int, folder: Path, run: Path) -> tuple[str, list[str]]:
    """Write what a case needs; its kind and the words of its command."""
    dice = Dice(seed, number)
    if number % 5:
        path = dice.choice(CORPUS)
        file = folder / path.name
        file.write_bytes(changed(path, dice))
        unit = ["--unit", "ns"] if path.name in ("hlog", "hgrm") else []
        if path.name == "regex":
            unit = ["--regex", PATTERN, "--unit", "ms"]
        named = ["--format", path.name] if dice.share() < 0.3 else []
        return path.name, ["import", str(file), "-o", str(folder / "run"), *unit, *named]
    kind = dice.choice(["limits", "manifest", "segment"])
    copy = folder / "copy"
    shutil.copytree(run, copy)
    limits = folder / "limits.toml"
    limits.write_bytes(LIMITS.read_bytes())
    target = {
        "limits": limits,
        "manifest": copy / "manifest.json",
        "segment": next((copy / "requests").glob("*.parquet")),
    }[kind]
    change = bent_bytes if kind == "segment" else dice.choice(CHANGES)
    target.write_bytes(change(target.read_bytes(), dice))
    if dice.share() < 0.7:
        return kind, ["gate", str(copy), str(limits)]
    return kind, ["verdict", str(copy), "--json"]


def attempt(words: list[str]) -> tuple[int, str]:
    """Run the command in this process; return its exit code and its output."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = unruly(words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 2
    return code, said.getvalue()


def judge(words: list[str], code: int, said: str) -> str | None:
    """What is wrong with how a case ended."""
    if code not in RESULTS[words[0]]:
        return f"exit {code}"
    if UNFORESEEN in said or "Traceback" in said:
        return "an error that nobody foresaw"
    if code == 2 and not said.strip():
        return "an error without a word"
    return None


def child(number: int, seed: int, run: Path, told: int) -> None:
    """One case, whose process ends with it."""
    held = resource.getrlimit(resource.RLIMIT_DATA)[1]
    size = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (size + GROWTH_BYTES, held))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    with tempfile.TemporaryDirectory(prefix="unruly-fuzz-") as folder:
        kind, words = case(number, seed, Path(folder), run)
        code, said = attempt(words)
        wrong = judge(words, code, said)
        report = {"kind": kind, "code": code, "wrong": wrong, "said": said[-600:]}
        os.write(told, json.dumps(report).encode())


def outcome(number: int, seed: int, run: Path) -> dict[str, object]:
    """Run a case in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            child(number, seed, run, writer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if data:
        return json.loads(data)
    what = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no word"
    return {"kind": "?", "code": -1, "wrong": f"ended by {what}", "said": ""}


def main(words: list[str]) -> int:
    """Try them all; 1 when a case ended badly."""
    count, seed = int(words[0]), int(words[1]) if len(words) > 1 else 1
    numbers = [int(words[2])] if len(words) > 2 else range(count)
    results: Counter[tuple[object, object]] = Counter()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="unruly-fuzz-run-") as folder:
        run = Path(folder) / "run"
        code, said = attempt(["import", str(HERE / "corpus" / "vegeta-csv"), "-o", str(run)])
        assert code == 0, said
        for number in numbers:
            found = outcome(number, seed, run)
            results[found["kind"], found["code"]] += 1
            if found["wrong"]:
                bad += 1
                sys.stdout.write(f"case {number} of seed {seed}: {json.dumps(found)}\n")
                sys.stdout.flush()
    for (kind, code), times in sorted(results.items(), key=str):
        sys.stdout.write(f"{kind}: exit {code}: {times}\n")
    sys.stdout.write(f"{len(numbers)} cases, {bad} ended badly\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
