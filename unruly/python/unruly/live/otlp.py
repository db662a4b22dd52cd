"""The same metrics over OTLP: JSON by HTTP, as every collector of OpenTelemetry takes it.

Headers come from ``OTEL_EXPORTER_OTLP_HEADERS``, as for other exporters. A receiver that refuses
or does not answer changes nothing in the run; the last export is sent after it.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from unruly.errors import ParameterError
from unruly.live.metrics import histograms, metrics
from unruly.live.prometheus import HISTOGRAM

if TYPE_CHECKING:
    from unruly.live.metrics import Labels
    from unruly.live.state import State

PATH: Final = "/v1/metrics"
PERIOD_S: Final = 5.0
TIMEOUT_S: Final = 3.0
HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
CUMULATIVE: Final = 2
HINT: Final = "--otlp http://127.0.0.1:4318"


def endpoint(url: str) -> str:
    """Return the URL to post to: a bare host gets the usual path.

    Raises
    ------
    ParameterError
        When it is no URL of HTTP.

    Examples
    --------
    >>> endpoint("http://127.0.0.1:4318")
    'http://127.0.0.1:4318/v1/metrics'
    """
    try:
        parts = urlsplit(url)
        host = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        host = None
    if not host or re.search(r"\s", url):
        raise ParameterError("--otlp", "is no address", "a URL of HTTP", HINT)
    if "@" in parts.netloc:
        hint = f"{HEADERS}='authorization=Basic ...'"
        raise ParameterError("--otlp", "holds a password", "a URL without one", hint)
    return url.rstrip("/") + PATH if parts.path in {"", "/"} else url


class Exporter:
    """Sends the metrics of a state."""

    def __init__(self, url: str) -> None:
        self.url = endpoint(url)
        self.headers = _headers()
        self.trouble: str | None = None
        """Why the last export failed."""

    def send(self, state_document: dict[str, Any]) -> None:
        """Post a document of `document`; remember the error if there is one."""
        body = json.dumps(state_document).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(self.url, body, headers)
        try:
            # a redirect to another host would take the headers there
            with _OPENER.open(request, timeout=TIMEOUT_S):
                self.trouble = None
        except urllib.error.HTTPError as error:
            self.trouble = f"{self.url} answered {error.code}"
            error.close()
        except http.client.HTTPException:
            self.trouble = f"{self.url} does not speak HTTP; hint: OTLP by HTTP is at port 4318"
        except OSError as error:
            reason = getattr(error, "reason", error)
            self.trouble = f"{self.url} cannot be reached ({reason})"
        except ValueError:
            # its text may hold a header
            self.trouble = f"{self.url} cannot be sent to"

    def document(self, state: State) -> dict[str, Any]:
        """Return the message of OTLP with every metric of the state."""
        times = {"startTimeUnixNano": str(state.begun_wall_ns), "timeUnixNano": str(time.time_ns())}
        found = [
            {
                "name": HISTOGRAM,
                "unit": "s",
                "histogram": {
                    "aggregationTemporality": CUMULATIVE,
                    "dataPoints": [
                        {
                            **times,
                            "attributes": _attributes(it.labels),
                            "count": str(it.n),
                            "sum": it.sum_s,
                            "explicitBounds": list(it.bounds_s),
                            "bucketCounts": [str(n) for n in _each(it.up_to, it.n)],
                        }
                        for it in histograms(state)
                    ],
                },
            }
        ]
        for metric in metrics(state):
            points = [
                {**times, "attributes": _attributes(labels), "asDouble": value}
                for labels, value in metric.values
            ]
            data: dict[str, Any] = {"dataPoints": points}
            if metric.kind == "counter":
                data |= {"aggregationTemporality": CUMULATIVE, "isMonotonic": True}
            kind = "sum" if metric.kind == "counter" else "gauge"
            found.append({
                "name": metric.name, "unit": metric.unit, "description": metric.help, kind: data,
            })  # fmt: skip
        resource = (("service.name", "unruly"), ("unruly.run", str(state.about.get("id", ""))))
        return {
            "resourceMetrics": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeMetrics": [{"scope": {"name": "unruly"}, "metrics": found}],
                }
            ]
        }


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def _headers() -> dict[str, str]:
    pairs = (it.partition("=") for it in os.environ.get(HEADERS, "").split(",") if "=" in it)
    found = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    for name, value in found.items():
        if not name.isascii() or not value.isascii() or not value.isprintable():
            wanted = "printable ASCII characters"
            raise ParameterError(
                HEADERS, f"header {name[:40]!r} cannot be sent", wanted, "quote it"
            )
    return found


def _attributes(labels: Labels) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels]


def _each(up_to: tuple[int, ...], n: int) -> list[int]:
    """Return the counts between bounds of counts up to bounds."""
    return [high - low for low, high in pairwise([0, *up_to, n])]
