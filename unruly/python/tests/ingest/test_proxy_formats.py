"""Access logs of Envoy, AWS load balancers, Caddy and Traefik.

The lines of this file have the forms that the documentation of each tool gives. Envoy and Caddy
wrote files in `real` too.
"""

from __future__ import annotations

import json
import time

import pytest

from unruly import IngestError
from unruly.ingest.formats import FORMATS
from unruly.ingest.source import Sample

MS, S = 1_000_000, 1_000_000_000
ROW = "op, status, sent_ns, received_ns - sent_ns"
START = 1_795_925_435 * S
ENVOY = (
    '[2026-11-29T04:10:35.250Z] "GET /secret HTTP/1.1" 200 - 0 12 5 4 "-" "curl/8.0" "id-1" '
    '"web" "10.0.0.2:80"\n'
    '[2026-11-29T04:10:36.000Z] "POST /x HTTP/2" 503 UF 7 91 20 - "-" "-" "id-2" "web" "-"\n'
    '[2026-11-29T04:10:37.000Z] "GET /x HTTP/1.1" 504 UT 0 24 15000 - "-" "-" "id-3" "web" "-"\n'
    '[2026-11-29T04:10:38.000Z] "GET /x HTTP/1.1" 0 DC 0 0 9 - "-" "-" "id-4" "web" "-"\n'
    '[2026-11-29T04:10:39.000Z] "GET /x HTTP/1.1" 404 - 0 9 1 1 "-" "-" "id-5" "web" "-"\n'
)
ISTIO = ENVOY.replace(" 200 - 0 12", ' 200 - via_upstream - "-" 0 12')
ALB = (
    "https 2026-11-29T04:10:35.250000Z app/lb/50dc6c495c0c9188 192.0.2.1:2817 10.0.0.1:80 "
    '0.086 0.048 0.037 200 200 12 57 "GET https://h:443/secret HTTP/1.1" "curl" - - arn\n'
    "h2 2026-11-29T04:10:36.000000Z app/lb/50dc6c495c0c9188 192.0.2.1:2818 10.0.0.1:80 "
    '0.000 -1 -1 504 - 34 366 "POST https://h:443/ HTTP/2.0" "curl" - - arn\n'
    "http 2026-11-29T04:10:37.000000Z app/lb/50dc6c495c0c9188 192.0.2.1:2819 10.0.0.1:80 "
    '0.001 0.010 0.000 502 502 34 366 "GET http://h:80/ HTTP/1.1" "curl" - - arn\n'
)
REDIRECT = (
    "http 2026-11-29T04:10:38.000000Z app/lb/50dc6c495c0c9188 192.0.2.1:2820 - "
    '-1 -1 -1 301 - 34 366 "GET http://h:80/ HTTP/1.1" "curl" - - arn\n'
)
CADDY = "".join(
    json.dumps(
        {"level": "info", "ts": 1_795_925_435.25 + place, "logger": "http.log.access",
         "msg": "handled request", "request": {"method": method, "uri": "/secret"},
         "duration": taken, "size": 12, "status": status}
    ) + "\n"
    for place, (method, taken, status) in enumerate(
        (("GET", 0.0125, 200), ("POST", 2, 502), ("GET", 0.001, 0))
    )
)  # fmt: skip
TRAEFIK = (
    '192.0.2.1 - - [29/Nov/2026:04:10:35 +0000] "GET /secret HTTP/1.1" 200 12 "-" "curl/8.0" 1 '
    '"web@docker" "http://10.0.0.2:80" 5ms\n'
    '192.0.2.1 - - [29/Nov/2026:04:10:36 +0000] "POST /x HTTP/1.1" 502 11 "-" "-" 2 '
    '"web@docker" "http://10.0.0.2:80" 20ms\n'
)
TRAEFIK_JSON = "".join(
    json.dumps(
        {"ClientHost": "192.0.2.1", "DownstreamContentSize": 12, "DownstreamStatus": status,
         "Duration": 3_454_189, "OriginStatus": 200, "RequestMethod": "GET",
         "RequestPath": "/secret", "StartUTC": f"2026-11-29T04:10:3{5 + place}.189830187Z",
         "level": "info", "time": "2026-11-29T04:10:40Z"}
    ) + "\n"
    for place, status in enumerate((200, 503))
)  # fmt: skip
SAMPLES = {
    "envoy-log": ENVOY, "alb-log": ALB, "caddy": CADDY, "traefik-log": TRAEFIK,
    "traefik": TRAEFIK_JSON,
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_a_log_is_recognised_by_its_content_and_by_no_other_format(bring, name):
    sample = Sample(SAMPLES[name].encode(), True)
    assert [it.name for it in FORMATS if it.recognises(sample) and not it.fallback] == [name]
    made = bring(SAMPLES[name])
    kept = json.dumps(made.manifest) + str(made.rows("*"))
    assert "secret" not in kept
    assert "192.0.2.1" not in kept


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_that_is_cut_off_or_changed_is_no_traceback(bring, name):
    text = SAMPLES[name]
    cuts = [text[:cut] for cut in range(1, len(text), max(len(text) // 12, 1))]
    for damaged in (*cuts, text.replace(":", "", 3), text.replace("1", "x", 4)):
        try:
            bring(damaged)
        except IngestError:
            continue


@pytest.mark.parametrize("name", ["envoy-log", "alb-log", "traefik-log"])
def test_a_line_that_is_made_to_harm_takes_no_time(name):
    form = next(it for it in FORMATS if it.name == name)
    for filling in ("a", "/", " ", '"', "1 ", "- ", '" "'):
        for cut in (1, 40, 90, len(SAMPLES[name].split("\n", 1)[0])):
            line = SAMPLES[name][:cut] + filling * (60_000 // len(filling))
            began = time.process_time()
            form.recognises(Sample(f"{line}\n{line}\n".encode(), True))
            assert time.process_time() - began < 5


def test_envoy_notes_the_start_and_says_why_it_ended_a_request(bring):
    wanted = [
        ("GET", "ok", START + 250 * MS, 5 * MS),
        ("POST", "refused", START + S, 20 * MS),
        ("GET", "timeout", START + 2 * S, 15_000 * MS),
        ("GET", "error:disconnected", START + 3 * S, 9 * MS),
        ("GET", "error:404", START + 4 * S, MS),
    ]
    assert bring(ENVOY).rows(ROW) == wanted
    assert bring(ISTIO).rows(ROW) == wanted
    assert bring(ENVOY).rows("sent_bytes, received_bytes")[:2] == [(0, 12), (7, 91)]


def test_a_load_balancer_of_aws_notes_the_end_in_three_parts(bring):
    made = bring(ALB + REDIRECT)
    assert made.rows(ROW) == [
        ("GET", "ok", START + 250 * MS - 171 * MS, 171 * MS),
        ("POST", "error:504", START + S, None),
        ("GET", "error:502", START + 2 * S - 11 * MS, 11 * MS),
    ]
    assert made.file["lines"] == 3
    assert any("redirects and fixed replies" in it for it in made.missing)


def test_caddy_notes_the_end(bring):
    end = START + 250 * MS
    made = bring(CADDY)
    assert made.rows(ROW) == [
        ("GET", "ok", end - 12_500_000, 12_500_000),
        ("POST", "error:502", end + S - 2 * S, 2 * S),
        ("GET", "error:failed", end + 2 * S - MS, MS),
    ]
    dated = CADDY.replace("1795925435.25", '"2026-11-29T04:10:35.250Z"').split("\n")[0] + "\n"
    assert bring(dated).rows("received_ns") == [(end,)]
    other = '{"level":"info","ts":1795925435.1,"msg":"server running","name":"srv0"}\n'
    mixed = bring(other + CADDY)
    assert mixed.rows("count(*)") == [(3,)]
    assert "lines that are no access of a client were left out" in mixed.missing


def test_traefik_notes_the_start_in_both_forms(bring):
    assert bring(TRAEFIK).rows(ROW) == [
        ("GET", "ok", START, 5 * MS),
        ("POST", "error:502", START + S, 20 * MS),
    ]
    assert bring(TRAEFIK_JSON).rows(ROW) == [
        ("GET", "ok", START + 189_830_187, 3_454_189),
        ("GET", "error:503", START + S + 189_830_187, 3_454_189),
    ]
