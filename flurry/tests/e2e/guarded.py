"""Users and certificates for a gateway."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from house import FLURRY, REPOSITORY

PASSWORD = "correct horse"

USER = """
[[user]]
name = "{name}"
password = "{hash}"
keys = {keys}
rights = {rights}
"""


@cache
def hashed(password: str) -> str:
    done = subprocess.run(
        [FLURRY, "password"], input=password, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def user(name: str, keys: str, rights: str) -> str:
    return USER.format(name=name, hash=hashed(PASSWORD), keys=keys, rights=rights)


def certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """One that signs itself, and its key."""
    subprocess.run([REPOSITORY / "scripts" / "certificate.sh", folder, host], check=True)
    return folder / "cert.pem", folder / "key.pem"
