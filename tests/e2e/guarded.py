"""Users and certificates for a gateway."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from redis_house import FLURRY

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
    key, chain = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=gateway", "-addext", f"subjectAltName=IP:{host}"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, "-days", "30", *subject, "-keyout", key, "-out", chain],
        capture_output=True,
        check=True,
    )
    return chain, key
