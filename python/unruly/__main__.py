"""``python -m unruly VERB``: parse, call; the binary ``unruly`` hands its verbs to this."""

from __future__ import annotations

import os
import sys

from unruly.errors import UnrulyError
from unruly.verbs import RUNS
from unruly.verbs.options import Verbs

ERROR_EXIT = 2


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return 0 when it was done and 2 after an error, with the message on stderr."""
    options = Verbs(RUNS).parse(arguments)
    try:
        return int(options.run(options))
    except UnrulyError as error:
        print(f"unruly: {error}", file=sys.stderr)
        return ERROR_EXIT
    except BrokenPipeError:
        # whoever read has enough; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
