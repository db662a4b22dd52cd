"""The release files hold what they should, and the same input gives the same bytes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from repository import ROOT

from releasing import programs
from releasing.__main__ import save, sums
from releasing.archive import File, tar
from releasing.files import COMPLETIONS, in_image, manuals, tarball
from releasing.image import digest, image
from releasing.wheel import hashed, project, wheel

PROGRAM = b"#!/bin/sh\necho hello\n"
LICENCES = {"LICENSE": b"free", "THIRD-PARTY.txt": b"others"}
TIME_S = 1_700_000_000
# A program that writes completions and man pages as ours does.
WRITER = """#!/bin/sh
case $1 in
completions) echo "complete $2" ;;
man) echo ".TH x" > "$2/unruly.1" ;;
esac
"""


def files_of(data: bytes) -> dict[str, tuple[bytes, tarfile.TarInfo]]:
    """Return the files of a tar archive by their names."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entries = [entry for entry in archive if entry.isfile()]
        return {it.name: (archive.extractfile(it).read(), it) for it in entries}


def a_wheel() -> tuple[str, bytes]:
    """Return a wheel of a package with one module, and of a program."""
    about = project(ROOT / "pyproject.toml")
    package = {"unruly/__init__.py": b'"""A package."""\n'}
    return wheel(about, "1.2.3", "x86_64", package, {"unruly": PROGRAM}, LICENCES)


def test_pip_installs_the_wheel_and_its_program_runs(tmp_path: Path) -> None:
    name, data = a_wheel()
    (tmp_path / name).write_bytes(data)
    words = ["install", "--quiet", "--no-index", "--no-deps", "--target", tmp_path / "there"]
    subprocess.run([sys.executable, "-m", "pip", *words, tmp_path / name], check=True)
    program = tmp_path / "there" / "bin" / "unruly"
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"hello\n"
    assert (tmp_path / "there" / "unruly" / "__init__.py").is_file()
    (info,) = (tmp_path / "there").glob("*.dist-info")
    assert (info / "licenses" / "LICENSE").read_bytes() == b"free"


def test_the_record_of_the_wheel_has_the_hash_of_every_file() -> None:
    name, data = a_wheel()
    assert name == "unruly-1.2.3-py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        inside = {path: archive.read(path) for path in archive.namelist()}
    (record,) = [path for path in inside if path.endswith("/RECORD")]
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(inside[record].decode()))}
    assert rows == {
        path: ["", ""] if path == record else [hashed(body), str(len(body))]
        for path, body in inside.items()
    }


def test_the_image_is_a_chain_of_hashes_that_ends_at_the_program() -> None:
    inside = in_image({"unruly": PROGRAM, "flurry": PROGRAM})
    found = files_of(image(inside, "unruly", "1.2.3", "amd64", TIME_S))
    blobs = {name.rpartition("/")[2]: body for name, (body, _) in found.items() if "sha256" in name}
    assert {f"sha256:{name}" for name in blobs} == {digest(body) for body in blobs.values()}

    def blob(descriptor: dict[str, str]) -> bytes:
        return blobs[descriptor["digest"].partition(":")[2]]

    (entry,) = json.loads(found["index.json"][0])["manifests"]
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    (layer,) = (gzip.decompress(blob(it)) for it in manifest["layers"])
    assert config["rootfs"]["diff_ids"] == [digest(layer)]
    assert config["architecture"] == "amd64"
    files = files_of(layer)
    (program,) = config["config"]["Entrypoint"]
    body, about = files[program.removeprefix("/")]
    assert (body, about.mode) == (PROGRAM, 0o755)
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "localhost/unruly:1.2.3"


def test_the_tarball_has_programs_manuals_and_licences(tmp_path: Path) -> None:
    writer = tmp_path / "unruly"
    writer.write_text(WRITER)
    writer.chmod(0o755)
    found = files_of(tarball("top", {"unruly": PROGRAM}, manuals(writer), TIME_S))
    assert {name.removeprefix("top/") for name in found} == {
        "bin/unruly",
        "share/man/man1/unruly.1",
        "share/doc/unruly/LICENSE",
        "share/doc/unruly/THIRD-PARTY.txt",
        *COMPLETIONS.values(),
    }
    assert found["top/bin/unruly"][1].mode == 0o755
    assert {(it.uid, it.gid, it.mtime) for _, it in found.values()} == {(0, 0, TIME_S)}
    assert found[f"top/{COMPLETIONS['zsh']}"][0] == b"complete zsh\n"


def test_the_same_input_gives_the_same_bytes() -> None:
    def everything() -> list[bytes]:
        programs_ = {"unruly": PROGRAM}
        files = {"b": File(b"2"), "a": File(b"1")}
        return [
            a_wheel()[1],
            image(in_image(programs_), "unruly", "1.2.3", "amd64", TIME_S),
            tarball("top", programs_, {}, TIME_S),
            tar(files, TIME_S),
        ]

    assert everything() == everything()
    assert tar({"a": File(b"1"), "b": File(b"2")}, TIME_S) == everything()[-1]


def test_sha256sum_accepts_the_checksums(tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    save({"one": b"1", "two": b"2"}, folder)
    words = ["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"]
    subprocess.run(words, cwd=folder, check=True)
    (folder / "two").write_bytes(b"3")
    assert subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 1
    assert sums({"b": b"", "a": b""}).decode().splitlines()[0].endswith("  a")


def test_the_release_build_selects_the_shipped_packages_alone() -> None:
    """With the whole workspace the core would have the planted bugs of the simulation."""
    words = programs.command("x86_64")
    assert [words[at + 1] for at, word in enumerate(words) if word == "--package"] == [
        "unruly",
        "flurry-cli",
    ]
    assert not {"--workspace", "--all", "--features", "--all-features"} & set(words)


def test_the_version_stands_in_one_place() -> None:
    for name in ("pyproject.toml", "scripts/releasing/flurry.toml"):
        about = project(ROOT / name)
        assert "version" not in about
        assert about["dynamic"] == ["version"]
    for manifest in ROOT.glob("*/crates/*/Cargo.toml"):
        assert re.search(r"^version\.workspace = true$", manifest.read_text(), re.MULTILINE)
