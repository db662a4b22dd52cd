"""``python -m third_party notices|javascript|sbom`` writes what its name says."""

from __future__ import annotations

import sys

from third_party import notices, sbom

WRITERS = {
    "notices": notices.write,
    "javascript": notices.write_javascript,
    "sbom": lambda: sys.stdout.write(f"{sbom.write()}\n"),
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in WRITERS:
        sys.exit(f"usage: python -m third_party {'|'.join(WRITERS)}")
    WRITERS[sys.argv[1]]()
