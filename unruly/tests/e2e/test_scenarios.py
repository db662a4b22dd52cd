"""Users of an HTTP server: what they ask for depends on the replies before."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from house import Measured, call
from http_house import certificate, nginx, server
from test_https import drive, refused, statuses
from users_house import SCENARIO, Shop, shop

if TYPE_CHECKING:
    from pathlib import Path

    from http_house import Connection


def operations(run: Measured) -> dict[str, int]:
    return dict(run.rows("select op, count(*) from requests where status = 'ok' group by 1"))


def check_ways(made: Shop) -> None:
    """Check that each user made its requests in an order of the scenario, with its own values."""
    assert not made.wrong
    for way in made.asked.values():
        assert way[0] == "login"
        for before, after in pairwise(way):
            assert (before, after) in {
                ("login", "browse"),
                ("browse", "item"),
                ("browse", "browse"),
                ("item", "browse"),
            }


@pytest.mark.smoke
@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
@pytest.mark.parametrize("pace", [["--think", "2ms"], ["-r", "400"]], ids=["closed", "open"])
def test_each_user_logs_in_and_goes_on_with_its_own_values(
    tmp_path: Path, pace: list[str], chunked: bool
) -> None:
    with shop(tmp_path, chunked) as (made, url, scenario):
        words = ["--scenario", scenario, "-c", "6", "--connections", "3", "-n", "2000", *pace]
        run = drive(tmp_path, url, *words)
    check_ways(made)
    assert statuses(run) == {("ok", 200): 2000}
    asked = [name for way in made.asked.values() for name in way]
    assert operations(run) == {name: asked.count(name) for name in ("login", "browse", "item")}
    # Five standard deviations of a share of 0.6 of about 900 visits.
    assert 0.51 < asked.count("item") / asked.count("browse") < 0.69
    assert "users go through login, browse, item" in run.manifest["target"]


def test_users_of_http2_go_the_same_way(tmp_path: Path) -> None:
    certificate(tmp_path)
    rules = """
location /login { return 200 '{"access_token": "$request_id"}'; }
location /items {
    if ($http_authorization !~ "^Bearer [0-9a-f]{32}$") { return 401; }
    return 200 '<a id="item-7">price</a>';
}
"""
    scenario = tmp_path / "shop.toml"
    scenario.write_text(SCENARIO)
    with nginx(tmp_path, rules, tls=True, http2=True) as url:
        run = drive(tmp_path, url, "-k", "--http2", "--scenario", scenario, "-c", "5", "-n", "500")
    assert statuses(run) == {("ok", 200): 500}
    assert set(operations(run)) == {"login", "browse", "item"}


def test_a_user_who_captures_nothing_begins_anew_and_the_reason_is_said(tmp_path: Path) -> None:
    with shop(tmp_path) as (made, url, scenario):
        scenario.write_text(SCENARIO.replace("access_token", "token"))
        run = drive(tmp_path, url, "--scenario", scenario, "-c", "3", "-n", "60")
    assert statuses(run) == {("error:content", 200): 60}
    assert all(way == ["login"] for way in made.asked.values())
    told = run.rows("select detail from events where detail like '%json:token%'")
    assert told
    assert "the reply to login has no token (json:token)" in told[0][0]


def test_what_is_due_while_all_users_wait_counts_from_its_time_and_is_not_our_delay(
    tmp_path: Path,
) -> None:
    with shop(tmp_path) as (made, url, scenario):
        made.pause_s = 0.02
        words = ["--scenario", scenario, "-c", "2", "-r", "100", "-n", "200", "--timeout", "30s"]
        run = drive(tmp_path, url, *words)
    # The shop answers 50 in a second, and 100 are due: the last ones wait two seconds.
    ((longest, waited, count),) = run.rows(
        "select max(received_ns - intended_ns) / 1e9, count(*) filter (waited), count(*)"
        " from requests"
    )
    assert count == 200
    assert waited > 150
    assert longest > 1.5
    check_ways(made)


def test_what_has_waited_for_a_user_too_long_is_not_sent_and_ends_no_user(tmp_path: Path) -> None:
    with shop(tmp_path) as (made, url, scenario):
        made.pause_s = 0.02
        words = ["--scenario", scenario, "-c", "1", "-r", "200", "-n", "600", "--timeout", "500ms"]
        run = drive(tmp_path, url, *words)
    # The shop answers fewer than 50 in a second, and 200 are due.
    found = dict(run.rows("select status, count(*) from requests group by 1"))
    assert set(found) == {"ok", "timeout"}
    assert sum(found.values()) == 600
    assert found["timeout"] > 100
    ((sent, named),) = run.rows(
        "select count(sent_ns), min(op <> '') from requests where status = 'timeout'"
    )
    assert (sent, named) == (0, True)
    assert sum(len(way) for way in made.asked.values()) == found["ok"]
    # Users end where the scenario says so, and not because nobody was free.
    check_ways(made)
    goes = [way for way in made.asked.values() if len(way) > 5]
    assert goes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[state]]\nname = 'a'\n", "path is missing in [[state]]"),
        (
            "[[state]]\nname = 'a'\npath = '/'\nthen = { a = 0.5, end = 0.4 }\n",
            "the scenario:4: the shares of then are 0.9 together; must be 1 together",
        ),
        (
            "[[state]]\nname = 'a'\npath = '/'\nheaders = 'X: {captured.toke}'\n",
            "{captured.toke} is captured by no state",
        ),
        (
            "[[state]]\nname = 'a'\npath = '/'\ncapture = { a = 'regex:(' }\n",
            "is no regular expression",
        ),
        ("{ not a HAR file", "it is no HAR file"),
    ],
)
def test_a_scenario_with_a_mistake_is_refused_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    scenario = tmp_path / "wrong.toml"
    scenario.write_text(text)
    error = refused(tmp_path, "http://127.0.0.1:1", "--scenario", scenario)
    assert said in error
    assert error.startswith("unruly: --scenario: ") or "HAR" in error


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-X", "POST"], "--method: it has method; must be left out beside scenario"),
        (["--pipeline", "4"], "a user asks for one thing at a time"),
        (["-r", "100"], "browse has think, and a rate says when users ask"),
        (["--data", __file__], "is no column"),
    ],
)
def test_what_means_nothing_beside_a_scenario_is_refused(
    tmp_path: Path, flags: list[str], said: str
) -> None:
    scenario = tmp_path / "shop.toml"
    scenario.write_text(SCENARIO.replace('contains = "price"', 'think = "1s"'))
    if "--data" in flags:
        table = tmp_path / "users.csv"
        table.write_text("name\nann\n")
        scenario.write_text(SCENARIO.replace("{sequence}", "{data.age}"))
        flags = ["--data", str(table)]
    error = refused(tmp_path, "http://127.0.0.1:1", "--scenario", scenario, *flags)
    assert said in error


def test_check_shows_each_exchange_of_one_user(tmp_path: Path) -> None:
    with shop(tmp_path) as (made, url, scenario):
        said = call("check", scenario, url, "--seed", "3")
    assert said.returncode == 0, said.stderr
    check_ways(made)
    assert len(made.asked) == 1
    ((token, way),) = made.asked.items()
    lines = said.stdout.splitlines()
    assert lines[:2] == ["1. login", "  > POST /login HTTP/1.1"]
    assert f"  > Authorization: Bearer {token}" in lines
    assert f"  < Set-Cookie: sid={token}; Path=/" in lines
    assert lines[-1] == f"{len(way)} requests: every reply is as it must be"


def test_check_ends_where_a_reply_is_wrong(tmp_path: Path) -> None:
    with shop(tmp_path) as (_, url, scenario):
        scenario.write_text(f'url = "{url}"\n' + SCENARIO.replace('"price"', '"cost"'))
        said = call("check", scenario)
    assert said.returncode == 1, said.stderr
    assert '  FAILED: error:content: the reply to browse does not contain "cost"' in said.stdout
    assert said.stdout.endswith(
        "the reply to browse is not as it must be, so the user stops there\n"
    )


@pytest.mark.parametrize("auth", ["bearer", "basic"])
def test_check_hides_the_secret(tmp_path: Path, auth: str) -> None:
    seen: list[str] = []

    def fine(connection: Connection) -> None:
        while connection.request():
            seen.append(connection.headers["authorization"])
            connection.reply()

    scenario = tmp_path / "one.toml"
    scenario.write_text("[[state]]\nname = 'a'\npath = '/'\n")
    password = tmp_path / "token"
    password.write_text("s3cr3t-t0ken")
    with server(fine) as url:
        said = call("check", scenario, url, "--auth", auth, "--password-file", password)
    assert said.returncode == 0, said.stderr
    (sent,) = seen
    assert sent == {"bearer": "Bearer s3cr3t-t0ken", "basic": "Basic OnMzY3IzdC10MGtlbg=="}[auth]
    assert f"  > Authorization: {auth.title()} ***" in said.stdout
    assert sent.partition(" ")[2] not in said.stdout + said.stderr


def test_check_shows_a_large_reply_and_one_that_ends_with_its_connection(tmp_path: Path) -> None:
    def ends(connection: Connection) -> None:
        connection.request()
        head = b"HTTP/1.0 200 OK\r\n\r\n"
        connection.stream.sendall(head + b"a line\n" * 20_000 + b"the end")

    scenario = tmp_path / "two.toml"
    scenario.write_text(
        "[[state]]\nname = 'a'\npath = '/'\ncontains = 'the end'\n"
        "[[state]]\nname = 'b'\npath = '/'\n"
    )
    with server(ends) as url:
        said = call("check", scenario, url)
    assert said.returncode == 0, said.stderr
    assert "  < ... 19989 more lines" in said.stdout
    assert said.stdout.endswith("2 requests: every reply is as it must be\n")


def test_check_says_what_is_missing(tmp_path: Path) -> None:
    scenario = tmp_path / "shop.toml"
    scenario.write_text(SCENARIO)
    for words, said in [
        ([tmp_path / "none.toml"], "cannot be read"),
        ([scenario], "it names no server; hint: unruly check"),
        ([scenario, "redis://127.0.0.1:1"], "only an http:// URL has it"),
        ([scenario, "http://127.0.0.1:1"], "127.0.0.1:1"),
    ]:
        found = call("check", *words)
        assert found.returncode == 2
        assert said in found.stderr


def test_check_says_that_it_leaves_http2_out(tmp_path: Path) -> None:
    scenario = tmp_path / "shop.toml"
    scenario.write_text(SCENARIO)
    found = call("check", scenario, "http://127.0.0.1:1", "--http2")
    assert "--http2 is left out" in found.stderr


HAR = """
{"log": {"entries": [
  {"startedDateTime": "2026-11-27T10:00:00.000Z", "time": 5, "request": {"method": "GET",
   "url": "http://127.0.0.1:1/public", "headers": [{"name": "Accept", "value": "text/html"}]}},
  {"startedDateTime": "2026-11-27T10:00:00.010Z", "time": 5, "request": {"method": "GET",
   "url": "http://127.0.0.1:1/public", "headers": []}},
  {"startedDateTime": "2026-11-27T10:00:00.020Z", "request": {"method": "GET",
   "url": "http://cdn.example/x.js"}}
]}}
"""


def test_what_a_browser_recorded_is_asked_for_in_its_order(tmp_path: Path) -> None:
    har = tmp_path / "session.har"
    har.write_text(HAR)
    printed = call("check", har, "--print")
    assert printed.returncode == 0, printed.stderr
    assert "2 requests to http://127.0.0.1:1; 1 to other servers are left out" in printed.stdout
    with shop(tmp_path) as (_, url, _):
        run = drive(tmp_path, url, "--scenario", har, "-n", "100", "-c", "1")
    assert operations(run) == {"get-public": 50, "get-public-2": 50}
