"""``python -m bench [--page] [NAME ...]``."""

from __future__ import annotations

import argparse
import sys

from bench import (
    analysis,
    compare,
    cost,
    echo,
    false_promises,
    open_loop,
    page,
    recording,
    result,
    scale,
    stall,
)

BENCHES = {
    "echo": echo.run,
    "recording": recording.run,
    "open-loop": open_loop.run,
    "stall": stall.run,
    "cost": cost.run,
    "analysis": analysis.run,
    "scale": scale.run,
    "false-promises": false_promises.run,
    "compare": compare.run,
}


def main() -> int:
    """Measure, keep, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--page", action="store_true", help="only write the page")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in BENCHES]
    if unknown:
        parser.error(f"{unknown[0]} is no benchmark; wanted {', '.join(BENCHES)}")
    if not chosen.page:
        place = result.folder()
        for name in chosen.names or BENCHES:
            print(f"{name} ...", flush=True)
            for found in BENCHES[name]():
                result.keep(place, found)
                word = "met   " if found.met else "MISSED"
                print(f"  {word} {found.what}: {found.measured} (bar {found.bar})", flush=True)
    page.write()
    print(page.PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
