"""The command line that the benchmarks of each product share."""

from __future__ import annotations

import argparse
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench.result import Result


@dataclass(frozen=True)
class Product:
    """The benchmarks of one product, and the folder that keeps their results."""

    module: str
    """The name that ``python -m`` takes."""
    folder: Path
    benches: Mapping[str, Callable[[], list[Result]]]
    pages: Callable[[], dict[Path, str]]
    """Returns the text of each page that is generated from kept results."""

    @property
    def runs(self) -> Path:
        """The folder with a folder for each day and host."""
        return self.folder / "runs"

    def chosen_by(self, name: str) -> list[str]:
        """Return the benchmark of this name, or those of this family, for example ``stores``."""
        return [it for it in self.benches if it == name or it.startswith(f"{name}-")]


def main(product: Product, *, kept: bool = True) -> int:
    """Measure, keep the results and write the pages; return the exit code.

    With ``kept=False`` nothing is kept and no page is written.
    """
    # A termination unwinds like Ctrl-C, so that a benchmark ends the processes that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        prog=f"python -m {product.module}",
        description="Measure, keep the raw values and write the page.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(product.benches))
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if not product.chosen_by(name)]
    if unknown:
        known = ", ".join(product.benches)
        parser.error(f"NAME: {unknown[0]!r} is not a benchmark; hint: choose from {known}")
    names = [it for name in chosen.names for it in product.chosen_by(name)]
    measure(product, names or list(product.benches), kept=kept)
    if kept:
        write(product.pages())
    return 0


def measure(product: Product, names: list[str], *, kept: bool) -> None:
    """Run benchmarks, print each result, and keep it if asked to."""
    place = result.folder(product.runs) if kept else None
    for name in names:
        print(f"{name} ...", flush=True)
        for found in product.benches[name]():
            if place:
                result.keep(place, found)
            word = {True: "met   ", False: "MISSED", None: "no bar"}[found.met]
            bar = f" (bar {found.bar})" if found.bar else ""
            print(f"  {word} {found.what}: {found.measured}{bar}", flush=True)
            if found.why and found.missed:
                print(f"         {found.why}", flush=True)


def write(pages: Mapping[Path, str]) -> None:
    """Write pages whose text changed, and print their places."""
    for path, text in pages.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path, flush=True)
