"""Write an OCI image of static programs as one archive, without a daemon and without a base image.

``podman load`` reads it. The layout is that of the OCI image specification 1.0:
blobs named by their hash, a manifest that names them, and an index that names the manifest.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from releasing.archive import RUN, File, gzipped, tar

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "application/vnd.oci.image."
USER = 65532
"""A user without rights."""
HOME = "/data"
"""Where a run directory is made: a volume of the user."""
ACCOUNTS = f"root:x:0:0::/:/none\nunruly:x:{USER}:{USER}::{HOME}:/none\n"


def digest(data: bytes) -> str:
    """Return the name of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image(files: Mapping[str, File], name: str, version: str, platform: str, time_s: int) -> bytes:
    """Return an image as an OCI archive.

    Parameters
    ----------
    files : mapping of str to File
        The files by their paths in the image, without a slash at the beginning.
    name : str
        The name of the image, and of the program in ``usr/bin`` that it starts.
    version : str
        The tag.
    platform : str
        The processor in the words of OCI, such as ``amd64``.
    time_s : int
        When the image was made, in seconds since 1970.

    Returns
    -------
    bytes
        The archive: the same bytes for the same arguments.
    """
    rights = {"tmp/": File(mode=0o1777), f"{HOME[1:]}/": File(mode=0o1777)}
    layer = tar({**rights, "etc/passwd": File(ACCOUNTS.encode()), **files}, time_s)
    made = datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    blobs: dict[str, File] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        """Add a blob; return its descriptor."""
        blobs[f"blobs/sha256/{digest(data).partition(':')[2]}"] = File(data)
        return {"mediaType": f"{KIND}{kind}", "digest": digest(data), "size": len(data)}

    config = {
        "created": made,
        "architecture": platform,
        "os": "linux",
        "config": {
            "Entrypoint": [f"/usr/bin/{name}"],
            "Env": ["PATH=/usr/bin"],
            "Labels": labels(name, version),
            "User": f"{USER}:{USER}",
            "WorkingDir": HOME,
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": made}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{KIND}manifest.v1+json",
        "config": blob(text(config), "config.v1+json"),
        "layers": [blob(gzipped(layer), "layer.v1.tar+gzip")],
    }
    entry = blob(text(manifest), "manifest.v1+json")
    entry["platform"] = {"architecture": platform, "os": "linux"}
    entry["annotations"] = {
        "io.containerd.image.name": f"localhost/{name}:{version}",
        "org.opencontainers.image.ref.name": f"localhost/{name}:{version}",
    }
    index = {"schemaVersion": 2, "mediaType": f"{KIND}index.v1+json", "manifests": [entry]}
    blobs["oci-layout"] = File(text({"imageLayoutVersion": "1.0.0"}))
    blobs["index.json"] = File(text(index))
    folders = {"blobs/": File(mode=RUN), "blobs/sha256/": File(mode=RUN)}
    return tar({**folders, **blobs}, time_s)


def labels(name: str, version: str) -> dict[str, str]:
    """Return the labels of an image."""
    said = {"title": name, "version": version, "licenses": "Apache-2.0"}
    return {f"org.opencontainers.image.{key}": value for key, value in said.items()}


def text(value: dict[str, Any]) -> bytes:
    """Return JSON whose bytes follow from the value alone."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
