"""The release files are whole, small, and of one version."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from release_house import DIST, MACHINE, REPOSITORY, release_file

BYTES_MAX = 20_000_000
VERSION = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
INTERPRETER = 3
"""The header of an ELF file that names the loader of shared libraries."""


def segments(program: Path) -> list[int]:
    """Return the kinds of the program headers of a 64-bit ELF file."""
    data = program.read_bytes()
    assert data[:5] == b"\x7fELF\x02", program
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    return [struct.unpack_from("<I", data, start + size * it)[0] for it in range(count)]


def test_the_checksums_are_those_of_all_files() -> None:
    lines = release_file("SHA256SUMS").read_text().splitlines()
    listed = dict(reversed(line.split("  ")) for line in lines)
    files = {path.name: path for path in DIST.iterdir() if path.name != "SHA256SUMS"}
    assert set(listed) == set(files)
    for name, path in files.items():
        assert listed[name] == hashlib.sha256(path.read_bytes()).hexdigest(), name


def test_every_release_file_has_the_version_of_the_workspace() -> None:
    names = {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
    assert {name for name in names if f"-{VERSION}" not in name} == set()
    bill = json.loads(release_file("unruly-*.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == VERSION
    for pattern in ("unruly-*_{architecture}.whl", "unruly_flurry-*_{architecture}.whl"):
        with zipfile.ZipFile(release_file(pattern)) as archive:
            (about,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
            assert str(Metadata.from_email(archive.read(about)).version) == VERSION


@pytest.mark.parametrize("architecture", MACHINE)
@pytest.mark.parametrize("name", ["unruly", "flurry"])
def test_a_program_is_static_small_and_for_its_processor(
    name: str, architecture: str, tmp_path: Path
) -> None:
    file = release_file(f"unruly-*-{architecture}-linux.tar.gz")
    subprocess.run(["tar", "-xzf", file, "-C", tmp_path], check=True)
    (program,) = tmp_path.glob(f"*/bin/{name}")
    assert INTERPRETER not in segments(program)
    assert struct.unpack_from("<H", program.read_bytes(), 18) == (MACHINE[architecture],)
    assert program.stat().st_size < BYTES_MAX


@pytest.mark.parametrize("name", ["unruly", "flurry"])
def test_a_program_is_of_the_version(unpacked: Path, name: str) -> None:
    program = unpacked / "bin" / name
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout == f"{name} {VERSION}\n"


def test_the_segments_of_a_dynamic_program_name_the_loader() -> None:
    assert INTERPRETER in segments(Path("/bin/sh").resolve())


@pytest.mark.parametrize("name", ["unruly", "flurry"])
def test_no_path_of_the_build_is_in_a_program(unpacked: Path, name: str) -> None:
    data = (unpacked / "bin" / name).read_bytes()
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    for place in (REPOSITORY, cargo):
        assert str(place).encode() not in data, place


def test_the_tarball_has_completions_man_pages_and_licences(unpacked: Path) -> None:
    share = unpacked / "share"
    assert "complete" in (share / "bash-completion/completions/unruly").read_text()
    assert (share / "zsh/site-functions/_unruly").read_text().startswith("#compdef unruly")
    assert (share / "fish/vendor_completions.d/unruly.fish").is_file()
    pages = {path.name for path in (share / "man/man1").iterdir()}
    assert {"unruly.1", "unruly-drive.1", "unruly-self.1"} <= pages
    for name in ("LICENSE", "THIRD-PARTY.txt"):
        there = (share / "doc/unruly" / name).read_bytes()
        assert there == (REPOSITORY / name).read_bytes()


def test_the_bill_of_materials_names_what_the_programs_contain() -> None:
    bill = json.loads(release_file("unruly-*.cdx.json").read_text())
    names = {it["name"] for it in bill["components"] if it["scope"] == "required"}
    lock = (REPOSITORY / "Cargo.lock").read_text()
    assert {"clap", "parquet", "rustls", "duckdb"} <= names
    assert len(names & set(re.findall(r'^name = "(.+)"$', lock, re.MULTILINE))) > 200


def test_the_c_library_is_the_one_that_the_notices_name() -> None:
    (header,) = (REPOSITORY / "target" / "zig").rglob("libc/musl/src/internal/version.h")
    (version,) = re.findall(r'VERSION "(.+)"', header.read_text())
    assert f"musl {version} (MIT)" in (REPOSITORY / "THIRD-PARTY.txt").read_text()
