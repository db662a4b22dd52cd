"""Write a wheel from a Python package and programs that are built already.

maturin would compile the programs again, against the C library of this host. The wheel has the
same files and metadata as maturin's; a rule compares the two.
"""

from __future__ import annotations

import base64
import hashlib
import io
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any

from packaging.metadata import Metadata, RawMetadata

from releasing.archive import RUN, File

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

METADATA_VERSION = "2.4"
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the archive: the first that the format knows."""


def tag(architecture: str) -> str:
    """Return the platforms of a static program: any Linux of the architecture."""
    return f"py3-none-manylinux_2_17_{architecture}.musllinux_1_1_{architecture}"


def project(path: Path) -> dict[str, Any]:
    """Return the project that a ``pyproject.toml`` describes."""
    found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return found


def metadata(about: Mapping[str, Any], version: str) -> bytes:
    """Return the metadata of a wheel, as pip reads it.

    Parameters
    ----------
    about : mapping
        The project of ``pyproject.toml``.
    version : str
        Its version, which stands in ``Cargo.toml``.

    Returns
    -------
    bytes
        The file ``METADATA``.
    """
    extras: dict[str, list[str]] = about.get("optional-dependencies", {})
    needed = [f'{it}; extra == "{name}"' for name, lines in extras.items() for it in lines]
    raw: RawMetadata = {
        "metadata_version": METADATA_VERSION,
        "name": about["name"],
        "version": version,
        "summary": about["description"],
        "keywords": about["keywords"],
        "classifiers": about["classifiers"],
        "requires_dist": [*about.get("dependencies", []), *needed],
        "provides_extra": list(extras),
        "requires_python": about["requires-python"],
        "license_expression": about["license"],
        "license_files": about["license-files"],
    }
    return Metadata.from_raw(raw).as_rfc822().as_bytes()


def wheel(
    about: Mapping[str, Any],
    version: str,
    architecture: str,
    package: Mapping[str, bytes],
    programs: Mapping[str, bytes],
    licences: Mapping[str, bytes],
) -> tuple[str, bytes]:
    """Return the name of a wheel and its bytes.

    Parameters
    ----------
    about : mapping
        The project of ``pyproject.toml``.
    version : str
        The version.
    architecture : str
        The processor of the programs, such as ``x86_64``.
    package : mapping of str to bytes
        The files of the Python package, by the paths that they get; none for programs alone.
    programs : mapping of str to bytes
        The static programs by their names.
    licences : mapping of str to bytes
        The files of ``license-files`` by their names.

    Returns
    -------
    tuple of str and bytes
        The file name, and the same bytes for the same arguments.
    """
    name = f"{about['name'].replace('-', '_')}-{version}"
    info = f"{name}.dist-info"
    files = {path: File(data) for path, data in package.items()}
    for program, data in programs.items():
        files[f"{name}.data/scripts/{program}"] = File(data, RUN)
    for path, data in licences.items():
        files[f"{info}/licenses/{path}"] = File(data)
    files[f"{info}/METADATA"] = File(metadata(about, version))
    files[f"{info}/WHEEL"] = File(described(tag(architecture)))
    files[f"{info}/RECORD"] = File(record(files, f"{info}/RECORD"))
    return f"{name}-{tag(architecture)}.whl", zipped(files)


def described(tags: str) -> bytes:
    """Return the file ``WHEEL``, which names each platform in a line."""
    kind, _, platforms = tags.rpartition("-")
    lines = [f"Tag: {kind}-{platform}" for platform in platforms.split(".")]
    head = ["Wheel-Version: 1.0", "Generator: unruly", "Root-Is-Purelib: false"]
    return ("\n".join([*head, *lines]) + "\n").encode()


def record(files: Mapping[str, File], own: str) -> bytes:
    """Return the file ``RECORD``: the hash and the length of every other file."""
    lines = [f"{path},{hashed(file.data)},{len(file.data)}" for path, file in sorted(files.items())]
    return "\n".join([*lines, f"{own},,\n"]).encode()


def hashed(data: bytes) -> str:
    """Return a hash as wheels write it."""
    code = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={code.rstrip(b'=').decode()}"


def zipped(files: Mapping[str, File]) -> bytes:
    """Return a zip archive of files in their order, which ends with the metadata."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, file in files.items():
            entry = zipfile.ZipInfo(path, EARLIEST)
            entry.external_attr = (0o100000 | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.data)
    return buffer.getvalue()
