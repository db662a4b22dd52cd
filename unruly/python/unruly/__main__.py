"""``python -m unruly VERB``: parse, call; the binary ``unruly`` hands its verbs to this."""

from __future__ import annotations

import gc
import signal
import sys

if __name__ == "__main__":
    # libraries make a million objects that stay: looking at them again and again finds nothing
    gc.set_threshold(50_000, 20, 100)
    # until the door is reached, Ctrl-C ends us without a word
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from unruly.door import enter
from unruly.verbs import RUNS
from unruly.verbs.options import Verbs


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return 0 when it was done and 2 after an error, with the message on stderr."""

    def verb() -> int:
        options = Verbs(RUNS).parse(arguments)
        return int(options.run(options))

    return enter(verb)


if __name__ == "__main__":
    sys.exit(main())
