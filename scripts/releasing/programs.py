"""Build the static programs, with Zig as the C compiler and the linker of any architecture.

They are linked with musl, so they need no library of the host and run on any Linux.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from third_party.components import PROGRAMS as PACKAGES
from third_party.components import ROOT

PLATFORMS = {"x86_64": "amd64", "aarch64": "arm64"}
"""The architectures that can be built, in the words of Rust and in those of OCI."""
PROFILE = "dist"
"""The profile of Cargo that makes small programs."""
NAMES = ("unruly", "flurry")
"""The programs."""
TOOLS = ROOT / "target" / "zig" / "bin"
"""Where ``scripts/tool_environment.sh`` puts Zig and the part of cargo that calls it."""


def triple(architecture: str) -> str:
    """Return Rust's name of a static Linux."""
    return f"{architecture}-unknown-linux-musl"


def command(architecture: str) -> list[str]:
    """Return the command that builds the programs of the packages, and nothing else.

    Cargo unites the features of all packages that a command selects. With the whole workspace the
    core would get the planted bugs of the simulation.
    """
    packages = [word for name in PACKAGES for word in ("--package", name)]
    target = ["--target", triple(architecture)]
    return ["cargo", "zigbuild", "--profile", PROFILE, "--locked", *packages, "--bins", *target]


def environment() -> dict[str, str]:
    """Return the environment of the build, in which no path of this machine gets into a program."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    places = {str(cargo): "/cargo", str(ROOT): "/unruly"}
    flags = [f"--remap-path-prefix={place}={name}" for place, name in places.items()]
    path = os.pathsep.join([str(TOOLS), os.environ["PATH"]])
    # The separator of cargo lets a path have spaces.
    return {**os.environ, "PATH": path, "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}


def build(architecture: str) -> dict[str, Path]:
    """Build the programs for an architecture.

    Parameters
    ----------
    architecture : str
        A key of `PLATFORMS`.

    Returns
    -------
    dict of str to Path
        Where each program is.

    Raises
    ------
    subprocess.CalledProcessError
        The target cannot be added, or the programs cannot be built.
    """
    target = triple(architecture)
    subprocess.run(["rustup", "target", "add", target], cwd=ROOT, check=True)
    subprocess.run(command(architecture), cwd=ROOT, env=environment(), check=True)
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return {name: folder / target / PROFILE / name for name in NAMES}
