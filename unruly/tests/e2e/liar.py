"""A store in a driver's process that lies to every n-th request: ``liar.py WHAT EVERY``.

It stores values, and answers with the lie that WHAT names: ``honest`` (none), ``stale`` (the value
before), ``lost`` (nothing), ``swapped`` (another key's), ``damaged``, ``failed`` (and does not do
it), ``late`` (does it and says that it failed), ``silent`` (does it and does not answer), or
``dies`` (after EVERY requests; it has forgotten everything when it is started again).
"""

from __future__ import annotations

import sys
import time


def lie(what: str, values: list[str], others: str) -> str:
    """Return the false answer to a read, in place of the last of its values."""
    match what:
        case "stale" if len(values) > 1:
            return "found {} " + values[-2]
        case "lost":
            return "missing {}"
        case "swapped":
            return "found {} " + others
        case "damaged":
            return "found {} " + values[-1][:-1] + "!"
    return "found {} " + values[-1]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(what: str, every: int) -> None:
    store: dict[str, list[str]] = {}
    reads = requests = 0
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "unruly":
            say("unruly 1")
            continue
        request, _client, key, *value = rest
        requests += 1
        lies = requests % every == 0
        if word == "write" and not (what == "failed" and lies):
            store.setdefault(key, []).append(value[0])
        if what == "silent" and lies:
            continue
        if what == "dies" and lies:
            return
        if what in ("failed", "late") and lies:
            answer = "failed {} store on purpose"
        elif word == "write":
            answer = "done {}"
        elif key not in store:
            answer = "missing {}"
        else:
            reads += 1
            values = store[key]
            others = [held[-1] for name, held in store.items() if name != key]
            answer = (
                lie(what, values, [*others, values[-1]][0])
                if reads % every == 0
                else "found {} " + values[-1]
            )
        now_ns = time.monotonic_ns()
        say(answer.format(f"{request} {now_ns} {now_ns}"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
