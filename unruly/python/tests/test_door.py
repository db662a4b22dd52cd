"""Every verb ends with 0, 1 or 2 and one line; no name brings control characters to a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

from synthetic import write_run
from unruly.door import enter
from unruly.terminal import plain

NASTY = "re\x1b[2Jad\x1b]0;owned\x07\x9bx\u202e"


def call(*words: str | Path, **changes: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unruly", *words],
        capture_output="stdout" not in changes,
        text=True,
        check=False,
        timeout=120,
        **changes,
    )


def one_line(said: subprocess.CompletedProcess[str]) -> str:
    *stages, line = said.stderr.splitlines()
    # On a slow machine it says what it is at.
    assert all(re.fullmatch(r"unruly: [a-z -]+", stage) for stage in stages), said.stderr
    assert line.startswith("unruly: ")
    return line


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("door") / "run", agents=2, duration_s=2, rate_hz=20)


def test_an_error_that_nobody_foresaw_is_two_and_one_line_and_a_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def breaks() -> int:
        raise KeyError("interval")

    assert enter(breaks) == 2
    line = capsys.readouterr().err
    assert line.startswith("unruly: KeyError: 'interval'; hint: the whole error is in ")
    (log,) = tmp_path.glob("unruly-*.log")
    assert "in breaks" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_library_that_shows_all_warnings_shows_no_deprecation_to_a_user(monkeypatch):
    seen = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: seen.append(str(message)))

    def warns() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("of a library", DeprecationWarning, stacklevel=1)
            warnings.warn("of the data", UserWarning, stacklevel=1)
        return 0

    assert enter(warns) == 0
    assert seen == ["of the data"]


def test_the_memory_of_an_engine_that_is_full_is_said_and_two(capsys):
    class OutOfMemoryException(Exception):
        pass

    def verb():
        raise OutOfMemoryException("Allocation failure")

    assert enter(verb) == 2
    assert capsys.readouterr().err.startswith("unruly: out of memory; hint: ")


def test_out_of_memory_is_said_and_two(capsys):
    def eats() -> int:
        raise MemoryError

    assert enter(eats) == 2
    assert capsys.readouterr().err.startswith("unruly: out of memory; hint: ")


def test_a_full_output_is_an_error_and_no_finding(small):
    with Path("/dev/full").open("w") as full:
        said = call("verdict", small, stdout=full, stderr=subprocess.PIPE)
    assert said.returncode == 2
    assert "No space left on device" in one_line(said)


def test_ctrl_c_ends_a_verb_with_one_line(small):
    process = subprocess.Popen(
        [sys.executable, "-c",
         "import os, signal, sys\n"
         "from unruly.door import enter\n"
         "sys.exit(enter(lambda: os.kill(os.getpid(), signal.SIGINT) or 0))"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (128 + signal.SIGINT, "unruly: stopped\n")


@pytest.mark.parametrize(
    ("environment", "more", "told"),
    [
        ({"UNRULY_THREADS": "abc"}, (), "UNRULY_THREADS: is 'abc'; a number from 1"),
        ({"UNRULY_THREADS": "0"}, (), "UNRULY_THREADS: is '0'; a number from 1"),
        ({}, ("--memory", "1KB"), "--memory: is too little; 100MB at least"),
    ],
)
def test_a_wrong_setting_is_named(small, environment, more, told):
    said = call("verdict", small, *more, env={**os.environ, **environment})
    assert said.returncode == 2
    assert told in one_line(said)


@pytest.mark.slow
def test_a_plan_that_is_not_utf_8_is_as_good_as_none(small):
    plan = small / "plan.toml"
    plan.write_bytes(b'name = "\xff"\n')
    try:
        assert call("verdict", small).returncode in {0, 1}
    finally:
        plan.unlink()


def test_a_path_that_is_not_utf_8_is_named(tmp_path):
    said = call("verdict", os.fsdecode(bytes(tmp_path) + b"/r\xff"))
    assert said.returncode == 2
    assert "no such directory" in one_line(said)


def nasty_run(folder: Path) -> Path:
    """A run of another tool whose names would forge lines, with our colours and ends of lines."""
    name = f"{NASTY}\nunruly gate: 9 held, 0 broken\x1b[32m"
    hits = (
        {
            "attack": name, "seq": number, "code": 200, "bytes_out": 0, "bytes_in": 0, "error": "",
            "body": None, "method": "GET", "url": "http://a/", "headers": {},
            "latency": 10_000_000 + number,
            "timestamp": f"2026-01-01T00:00:{number // 10:02}.{number % 10}Z",
        }
        for number in range(500)
    )  # fmt: skip
    file = folder / "hits.json"
    file.write_text("\n".join(json.dumps(it) for it in hits))
    said = call("import", file, "-o", folder / "run")
    assert said.returncode == 0, said.stderr
    return folder / "run"


@pytest.mark.slow
def test_names_reach_a_terminal_without_control_characters(tmp_path):
    run = nasty_run(tmp_path)
    for verb in ("verdict", "advise"):
        said = call(verb, run)
        assert said.returncode in {0, 1}, said.stderr
        assert not re.search("^unruly gate: 9 held", said.stdout, re.MULTILINE)
        assert not set(said.stdout) & set("\x1b\x07\x9b\u202e")


@pytest.mark.slow
def test_a_run_whose_names_hold_control_characters_is_refused_in_one_line(tmp_path):
    run = write_run(tmp_path / "run", agents=2, duration_s=2, rate_hz=20, ops=(NASTY,))
    for verb in ("verdict", "advise"):
        said = call(verb, run)
        assert said.returncode == 2
        assert "holds a control character" in one_line(said)
        assert "\x1b" not in said.stderr


@pytest.mark.slow
def test_a_gate_of_nasty_names_writes_xml_that_parsers_take(tmp_path):
    run = nasty_run(tmp_path)
    limits, junit = tmp_path / "limits.toml", tmp_path / "gate.xml"
    limits.write_text('[[limit]]\nstatistic = "p50"\nat_most = "1min"\n')
    call("gate", run, limits, "--junit", junit)
    names = [it.get("name") for it in ElementTree.parse(junit).iter("testcase")]
    assert any(plain(NASTY) in str(name) for name in names), names


@pytest.mark.slow
def test_a_reader_that_goes_away_changes_no_exit_code(small, tmp_path):
    limits = tmp_path / "limits.toml"
    limits.write_text('[[limit]]\nstatistic = "p50"\nat_most = "1ns"\n')
    heard = call("gate", small, limits)
    assert heard.returncode != 0
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        said = call("gate", small, limits, stdout=nobody, stderr=subprocess.PIPE)
    assert said.returncode == heard.returncode, said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_a_report_replaces_no_link_pipe_or_device(small, tmp_path, kind):
    output, kept = tmp_path / "out.html", tmp_path / "kept"
    kept.write_text("kept")
    match kind:
        case "link":
            output.symlink_to(kept)
        case "pipe":
            os.mkfifo(output)
        case _:
            output = Path("/dev/null")
    before = output.lstat()
    said = call("report", small, "-o", output)
    assert said.returncode == 2
    assert "a new or a regular file" in one_line(said)
    assert output.lstat() == before
    assert kept.read_text() == "kept"
