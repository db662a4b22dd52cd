"""Files that hold no requests: what each is, and how the same tool writes what can be imported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from unruly.ingest.source import Sample


HEAD: Final = 8_192


class Summary(NamedTuple):
    """A file of a tool that holds no requests."""

    begins: re.Pattern[str]
    what: str
    hint: str


ACCESS: Final = (
    "nginx: add rt=$request_time msec=$msec to the log_format combined; "
    "Apache: end its combined format with %D"
)
AB: Final = "ab -g FILE writes each request"
LOCUST: Final = "locust --json writes the counts of each response time"
GUIDELLM: Final = (
    "`unruly drive openai://HOST/v1` measures the same server, with the time of each token"
)
SAR: Final = "`sadf -d -- -A` writes the same samples with their times and names"
SADF: Final = "keep the lines that begin with `# hostname;interval;timestamp`, as sadf -d writes"
VEGETA: Final = "`vegeta encode results.bin` writes each request"
SUMMARIES: Final = tuple(
    Summary(re.compile(pattern), what, hint)
    for pattern, what, hint in (
        (r"This is ApacheBench", "is a summary of ab", AB),
        (r"Percentage served,Time in ms", "has the percentiles of ab alone", AB),
        (r"\s*Summary:\n\s+Count:", "is a summary of ghz", "ghz -O json writes each call"),
        (r"\s*Summary:\n\s+Total:", "is a summary of hey", "hey -o csv writes each request"),
        (r"starting benchmark\.\.\.", "is a summary of h2load",
         "h2load --log-file=FILE writes each request"),
        (r"Running \S+ test @ .*\n  \d+ threads and", "is a summary of wrk without percentiles",
         "wrk --latency prints them"),
        (r"Running \S+ test @ .*\n\d+ connections", "is a summary of autocannon",
         "autocannon --json writes its percentiles"),
        (r"Count,Message,Traceback", "has the exceptions of locust alone", LOCUST),
        (r"Method,Name,Error,Occurrences", "has the failures of locust alone", LOCUST),
        (r"Type,Name,Request Count", "has rounded percentiles of locust", LOCUST),
        (r"Timestamp,User Count,Type,Name", "has rounded percentiles of locust", LOCUST),
        (r"Requests\s+\[total, rate", "is a summary of vegeta", VEGETA),
        (r'\{"latencies":\{"total"', "is a summary of vegeta", VEGETA),
        (r"Bucket\s+#\s+%", "has the shares of a few buckets alone", VEGETA),
        (r"Value\(ms\)\s+Percentile\s+TotalCount", "has the percentiles of vegeta alone", VEGETA),
        (r"pgbench \(", "is a summary of pgbench", "pgbench --log writes each transaction"),
        (r"\d{10}(?: \d{1,20}){5,16}\n\d{10}(?: \d{1,20}){5,16}\n",
         "has the sums of pgbench's intervals alone",
         "pgbench --log without --aggregate-interval writes each transaction"),
        (r"Run Info,Run Info", "has the statistics of guidellm's benchmarks alone",
         "guidellm run --output kind=json writes each request"),
        (r'\s*\{\s*"(?:root_group|metrics|options|state)"(?s:.)*"iteration_duration"',
         "is a summary of k6", "k6 run --out csv=FILE writes each request"),
        (r"data: \{", "is one streamed reply", GUIDELLM),
        (r'.{0,300}"(?:GET|POST|PUT|HEAD|DELETE|PATCH|OPTIONS) \S{1,2000} HTTP/',
         "is an access log in a form that is not known", ACCESS),
        (r"Linux \d\S* \([^)\n]{1,100}\)\s+\d", "is the text of sar or of a tool like it", SAR),
        (r"\d\d:\d\d:\d\d(?: [AP]M)?\s+(?:CPU|IFACE|DEV|kb[a-z]+|runq-sz|[a-z]+/s)\s",
         "is the text of sar", SAR),
        (r"[\w.-]{1,100};\d{1,9};(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: UTC)?|\d{9,11});",
         "has samples of sadf without the names of their fields", SADF),
    )
)  # fmt: skip


def summary_of(sample: Sample) -> Summary | None:
    """Return which tool's summary a file is; None if it is none that is known."""
    head = sample.text[:HEAD].lstrip("\ufeff")
    return next((it for it in SUMMARIES if it.begins.match(head)), None)
