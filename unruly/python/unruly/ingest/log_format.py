"""A server's own format string made a pattern: of nginx, or of Apache httpd.

The reader copies the string from the configuration. Its variables say which field is the latency,
in which unit, whether a time is a start or an end, and which field is the status.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from unruly.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from unruly.ingest.model import Options

FLAG: Final = "--log-format"
EXAMPLE: Final = f"{FLAG} '$remote_addr [$time_local] \"$request\" $status $request_time'"
NGINX: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
APACHE: Final = re.compile(r"%[!0-9,]*[<>]?(?:\{([^}]*)\})?(\^[A-Za-z]{2}|[A-Za-z]|%)")
ANYTHING: Final = ".*?"
SECONDS: Final = r"(?P<value>[0-9]+(?:\.[0-9]+)?)"
METHOD: Final = r"(?P<op>[^ \"]+)(?: [^\"]*)?"
STATUS: Final = r"(?P<status>[0-9]{3})"
TIMES: Final = ("msec", "time_iso8601", "time_local")
"""nginx's times, the most exact one first."""
UNITS: Final = {"D": "us", "T": "s", "{us}T": "us", "{ms}T": "ms", "{s}T": "s"}


def with_format(text: str, options: Options) -> Options:
    """Return the options with the pattern of a format string, and what its variables say.

    Raises
    ------
    ParameterError
        When the string has no duration, or other flags say the same.

    Examples
    --------
    >>> from unruly.ingest.model import Options
    >>> found = with_format('%h %t "%r" %>s %D', Options())
    >>> found.unit, found.time_is, found.status
    ('us', 'start', 'status')
    """
    taken = options.given() & {"--regex", "--value", "--unit", "--time", "--time-unit", "--time-is"}
    if taken or options.format is not None:
        named = ", ".join(sorted(taken)) or "--format"
        raise ParameterError(FLAG, f"stands beside {named}", "one of them", f"leave {named} out")
    # the quotes inside of a quoted string, as a configuration of Apache has them
    found = _nginx(text) if "$" in text else _apache(text.replace('\\"', '"'))
    pattern = str(found["regex"])
    if "(?P<value>" not in pattern:
        wanted = "a duration: $request_time of nginx; %D, %T or %{ms}T of Apache httpd"
        raise ParameterError(FLAG, "logs no duration", wanted, EXAMPLE)
    own = {name: name for name in ("op", "status") if f"(?P<{name}>" in pattern}
    given = {"op": options.op, "status": options.status}
    columns = {name: given[name] or own.get(name) for name in given}
    return replace(options, **{**found, **columns})  # type: ignore[arg-type]


def _nginx(text: str) -> dict[str, str | None]:
    names = [a or b for a, b in NGINX.findall(text)]
    time = next((it for it in TIMES if it in names), None)
    known = {
        "request_time": SECONDS, "request": METHOD, "request_method": r"(?P<op>[^ \"]+)",
        "status": STATUS,
    }  # fmt: skip
    if time is not None:
        known[time] = {"msec": r"(?P<time>[0-9]+\.[0-9]+)"}.get(time, r"(?P<time>[^\]\"]+?)")
    pattern = _pattern(text, NGINX, lambda it: it[1] or it[2], known)
    return {
        "regex": pattern, "unit": "s", "time": "time" if time else "none",
        "time_unit": "s" if time == "msec" else None, "time_is": "end" if time else None,
    }  # fmt: skip


def _apache(text: str) -> dict[str, str | None]:
    def name(match: re.Match[str]) -> str:
        return f"{{{match[1]}}}{match[2]}" if match[1] is not None else str(match[2])

    unit = next((UNITS[it] for it in map(name, APACHE.finditer(text)) if it in UNITS), "s")
    known = {
        "t": r"\[(?P<time>[^\]]+)\]", "r": METHOD, "m": r"(?P<op>[^ \"]+)", "s": STATUS, "%": "%",
        **dict.fromkeys(UNITS, r"(?P<value>[0-9]+)"),
    }  # fmt: skip
    pattern = _pattern(text, APACHE, name, known)
    timed = "(?P<time>" in pattern
    return {
        "regex": pattern, "unit": unit, "time": "time" if timed else "none", "time_unit": None,
        "time_is": "start" if timed else None,
    }  # fmt: skip


def _pattern(
    text: str,
    variable: re.Pattern[str],
    name: Callable[[re.Match[str]], str],
    known: dict[str, str],
) -> str:
    """Return the pattern of a whole line; the first variable of a kind is its group."""
    parts, end = ["^"], 0
    used: set[str] = set()
    for match in variable.finditer(text):
        parts.append(re.escape(text[end : match.start()]))
        piece = known.get(name(match), ANYTHING)
        group = re.search(r"\?P<(\w+)>", piece)
        if group and group[1] in used:
            piece = ANYTHING
        elif group:
            used.add(group[1])
        parts.append(piece)
        end = match.end()
    return "".join([*parts, re.escape(text[end:]), "$"])
