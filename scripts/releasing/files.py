"""Say what each release file holds."""

from __future__ import annotations

import platform
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from releasing.archive import RUN, File, gzipped, tar
from releasing.image import image
from releasing.programs import PLATFORMS
from releasing.wheel import project, wheel
from third_party.components import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

LICENCES = ("LICENSE", "THIRD-PARTY.txt")
PACKAGE = ROOT / "unruly" / "python"
COMPLETIONS = {
    "bash": "share/bash-completion/completions/unruly",
    "zsh": "share/zsh/site-functions/_unruly",
    "fish": "share/fish/vendor_completions.d/unruly.fish",
}
"""Where each shell looks, below a prefix such as ``/usr/local``."""


def licences() -> dict[str, bytes]:
    """Return the licence of unruly and the notices of other people's libraries."""
    return {name: (ROOT / name).read_bytes() for name in LICENCES}


def package() -> dict[str, bytes]:
    """Return the files of the Python package that git tracks, by their paths in a wheel."""
    words = ["git", "ls-files", "--", str(PACKAGE / "unruly")]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = (ROOT / line for line in listed.splitlines())
    return {str(it.relative_to(PACKAGE)): it.read_bytes() for it in places}


def manuals(program: Path) -> dict[str, File]:
    """Return the completions and man pages that a program writes, below a prefix."""
    files = {}
    for shell, path in COMPLETIONS.items():
        words = [program, "completions", shell]
        done = subprocess.run(words, capture_output=True, check=True)
        files[path] = File(done.stdout)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "man", folder], check=True)
        for page in Path(folder).iterdir():
            files[f"share/man/man1/{page.name}"] = File(page.read_bytes())
    return files


def tarball(
    name: str, programs: Mapping[str, bytes], manual: Mapping[str, File], time_s: int
) -> bytes:
    """Return the programs with their manuals and licences, to unpack over a prefix."""
    files = {f"bin/{program}": File(data, RUN) for program, data in programs.items()}
    texts = {f"share/doc/unruly/{path}": File(data) for path, data in licences().items()}
    whole = {**files, **manual, **texts}
    return gzipped(tar({f"{name}/{path}": file for path, file in whole.items()}, time_s))


def in_image(programs: Mapping[str, bytes]) -> dict[str, File]:
    """Return the files of the image: the programs and the licences."""
    files = {f"usr/bin/{program}": File(data, RUN) for program, data in programs.items()}
    texts = {f"usr/share/doc/unruly/{path}": File(data) for path, data in licences().items()}
    return {**files, **texts}


def release(built: Mapping[str, Mapping[str, Path]], version: str, time_s: int) -> dict[str, bytes]:
    """Return the release files of all architectures by their names.

    Parameters
    ----------
    built : mapping of str to mapping of str to Path
        For each architecture the programs by their names. One of them runs on this host.
    version : str
        The version of everything.
    time_s : int
        The time of every file in an archive, in seconds since 1970.

    Returns
    -------
    dict of str to bytes
        A tarball, two wheels and an image for each architecture.
    """
    manual = manuals(built[platform.machine()]["unruly"])
    meter = project(ROOT / "pyproject.toml")
    store = project(Path(__file__).with_name("flurry.toml"))
    files = {}
    for architecture, places in built.items():
        programs = {name: place.read_bytes() for name, place in places.items()}
        both = (
            (meter, package(), {"unruly": programs["unruly"]}),
            (store, {}, {"flurry": programs["flurry"]}),
        )
        for about, inside, scripts in both:
            name, data = wheel(about, version, architecture, inside, scripts, licences())
            files[name] = data
        name = f"unruly-{version}-{architecture}-linux"
        files[f"{name}.tar.gz"] = tarball(name, programs, manual, time_s)
        files[f"unruly-{version}-{architecture}-image.tar"] = image(
            in_image(programs), "unruly", version, PLATFORMS[architecture], time_s
        )
    return files
