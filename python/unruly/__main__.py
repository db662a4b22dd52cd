"""``python -m unruly VERB``: parse, call, print; the binary ``unruly`` hands its verbs to this."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from unruly.errors import UnrulyError

ERROR_EXIT = 2


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return 0 when it was done and 2 after an error, with the message on stderr."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UnrulyError as error:
        print(f"unruly: {error}", file=sys.stderr)
        return ERROR_EXIT
    except BrokenPipeError:
        # whoever read has enough; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unruly",
        description="Verbs that analyse a run.",
        epilog="Exit codes: 0 fine, 1 a finding (a limit broken), 2 an error.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    told = verbs.add_parser("verdict", help="what can be promised, how unruly, why: one screen")
    told.add_argument("directory", metavar="DIR", help="the directory of a run")
    told.add_argument("--json", action="store_true", help="print summary.json instead")
    told.add_argument("--width", type=int, help="columns (default: the terminal's, else 100)")
    told.set_defaults(run=_verdict)
    pictured = verbs.add_parser("report", help="the same with pictures: one HTML file")
    pictured.add_argument("directories", metavar="DIR", nargs="+", help="directories of runs")
    pictured.add_argument("-o", "--output", type=Path, help="default: report.html in the first DIR")
    pictured.set_defaults(run=_report)
    return parser


def _verdict(options: argparse.Namespace) -> int:
    from unruly import analyse, open_run, summary, verdict  # noqa: PLC0415 - --help stays quick
    from unruly.summary import write_summary  # noqa: PLC0415

    analysis = analyse(open_run(options.directory))
    write_summary(analysis)
    if options.json:
        print(json.dumps(summary(analysis), indent=1, allow_nan=False))
        return 0
    terminal = sys.stdout.isatty()
    width = options.width or (shutil.get_terminal_size((100, 40)).columns if terminal else 100)
    print(verdict(analysis, width=width, colour=terminal and "NO_COLOR" not in os.environ))
    return 0


def _report(options: argparse.Namespace) -> int:
    from unruly import analyse, open_run  # noqa: PLC0415
    from unruly.report import write_report  # noqa: PLC0415
    from unruly.summary import write_summary  # noqa: PLC0415

    analyses = [analyse(open_run(directory)) for directory in options.directories]
    for analysis in analyses:
        write_summary(analysis)
    output = options.output or Path(options.directories[0]) / "report.html"
    try:
        written = write_report(analyses, output)
    except OSError as error:
        raise UnrulyError(
            output,
            f"cannot be written: {error.strerror}",
            "a file in a directory that exists",
            "choose another with -o",
        ) from error
    print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
