"""Servers of HTTPS, and requests of a form of their own."""

from __future__ import annotations

import base64
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from house import UNRULY, Measured, call
from http_house import Connection, certificate, nginx, server

SECRET = "s3cr3t-t0ken"


def drive(folder: Path, url: str, *flags: str | Path) -> Measured:
    """Drive it without a warm-up; a run whose requests fail is a finding and no error."""
    out = folder / f"run-{len(list(folder.iterdir()))}"
    said = call("drive", url, "-d", "60s", "-w", "0s", "-q", "-o", out, *flags, timeout=100)
    assert said.returncode in (0, 1), said.stderr
    return Measured(out)


def statuses(run: Measured) -> dict[tuple[str, int | None], int]:
    found = run.rows("select status, code, count(*) from requests group by 1, 2")
    return {(status, code): count for status, code, count in found}


def refused(folder: Path, url: str, *flags: str | Path) -> str:
    """The error of a drive that does not begin."""
    said = call("drive", url, "-d", "1s", "-q", "-o", folder / "none", *flags)
    assert said.returncode == 2, said.stderr
    return said.stderr


def fine(connection: Connection) -> None:
    while connection.request():
        connection.reply()


@pytest.mark.smoke
def test_a_server_of_https_is_measured_when_its_authority_is_known(tmp_path: Path) -> None:
    with server(fine, certificate(tmp_path)) as url:
        run = drive(tmp_path, f"{url}/one", "-n", "300", "--ca-cert", tmp_path / "cert.pem")
    assert statuses(run) == {("ok", 200): 300}
    (sent, kernel) = run.rows("select count(sent_ns), count(kernel_received_ns) from requests")[0]
    assert (sent, kernel) == (300, 300)


def test_a_certificate_that_nobody_vouches_for_is_refused_before_the_run(tmp_path: Path) -> None:
    with server(fine, certificate(tmp_path)) as url:
        said = refused(tmp_path, url)
    assert "its certificate is not accepted: nobody whom this host trusts issued it" in said
    assert "--ca-cert FILE" in said
    assert not (tmp_path / "none").exists()


def test_any_certificate_is_accepted_when_that_is_asked_for_and_the_run_says_so(
    tmp_path: Path,
) -> None:
    with server(fine, certificate(tmp_path)) as url:
        run = drive(tmp_path, url, "-n", "50", "-k")
    assert statuses(run) == {("ok", 200): 50}
    assert "the certificate is not checked" in run.manifest["target"]


def test_a_server_without_tls_is_named(tmp_path: Path) -> None:
    with server(fine) as url:
        said = refused(tmp_path, url.replace("http:", "https:"), "-k")
    assert "the TLS handshake failed" in said
    assert "leave out the s of the scheme" in said


@pytest.mark.parametrize("pace", [[], ["-r", "2000"]], ids=["closed", "open"])
def test_a_stock_nginx_fails_no_request_by_tls(tmp_path: Path, pace: list[str]) -> None:
    certificate(tmp_path)
    with nginx(tmp_path, tls=True) as url:
        words = [f"{url}/page.txt", "-c", "4", "-n", "5000", *pace]
        run = drive(tmp_path, *words, "--ca-cert", str(tmp_path / "cert.pem"))
    assert statuses(run) == {("ok", 200): 5000}
    (rows, distinct) = run.rows("select count(*), count(distinct request) from requests")[0]
    assert rows == distinct == run.manifest["counts"]["copies"]["scheduled"]


def test_a_client_proves_who_it_is_with_a_certificate(tmp_path: Path) -> None:
    certificate(tmp_path)
    verify = f"ssl_client_certificate {tmp_path}/cert.pem; ssl_verify_client on;"
    own = ["--client-cert", str(tmp_path / "cert.pem"), "--client-key", str(tmp_path / "key.pem")]
    with nginx(tmp_path, verify, tls=True) as url:
        without = drive(tmp_path, f"{url}/page.txt", "-n", "20", "-k")
        with_one = drive(tmp_path, f"{url}/page.txt", "-n", "20", "-k", *own)
    assert statuses(without) == {("error:400", 400): 20}
    assert statuses(with_one) == {("ok", 200): 20}


def test_a_file_that_holds_no_certificate_is_named_with_its_flag(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    said = refused(tmp_path, "https://127.0.0.1:1/", "--ca-cert", empty)
    assert "unruly: --ca-cert: " in said
    assert "empty.pem holds no certificate in PEM" in said


def test_a_server_that_wants_a_certificate_of_the_client_is_named_before_the_run(
    tmp_path: Path,
) -> None:
    context = certificate(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(tmp_path / "cert.pem")
    own = ["--client-cert", str(tmp_path / "cert.pem"), "--client-key", str(tmp_path / "key.pem")]
    with server(fine, context) as url:
        said = refused(tmp_path, url, "-k")
        run = drive(tmp_path, url, "-n", "20", "-k", *own)
    assert "it refused the TLS handshake: CertificateRequired" in said
    assert "--client-cert FILE --client-key FILE" in said
    assert statuses(run) == {("ok", 200): 20}


def test_a_response_that_tls_shows_to_be_cut_off_is_a_failure(tmp_path: Path) -> None:
    """A body without a length ends with the connection, and only a closing word ends that."""

    def handle(connection: Connection) -> None:
        if connection.request():
            connection.stream.sendall(b"HTTP/1.1 200 OK\r\n\r\npart of a page")
            if connection.number % 2:
                with suppress(OSError):
                    connection.stream.unwrap()  # type: ignore[attr-defined]

    with server(handle, certificate(tmp_path)) as url:
        run = drive(tmp_path, url, "-n", "20", "-k")
    found = statuses(run)
    assert found[("ok", 200)] + found[("error:reset", None)] == 20
    assert 8 <= found[("ok", 200)] <= 12


@pytest.mark.smoke
def test_a_request_has_the_method_headers_and_body_that_were_asked_for(tmp_path: Path) -> None:
    seen: list[tuple[str, str, bytes]] = []

    def handle(connection: Connection) -> None:
        while line := connection.request():
            seen.append((line, connection.headers.get("content-type", ""), connection.body))
            connection.reply()

    body = tmp_path / "body.json"
    body.write_text('{"item": 7}')
    with server(handle) as url:
        flags = ["-H", "Content-Type: application/json", "--body", str(body)]
        run = drive(tmp_path, f"{url}/cart", "-n", "30", *flags)
    assert seen == [("POST /cart HTTP/1.1", "application/json", b'{"item": 7}')] * 30
    assert run.rows("select distinct op from requests") == [("post",)]
    assert "POST, a body of 11B" in run.manifest["target"]


def test_a_post_that_met_the_end_of_its_connection_is_not_sent_again(tmp_path: Path) -> None:
    seen: list[str] = []

    def handle(connection: Connection) -> None:
        """Answer once, and close when the next request has come."""
        for _ in range(2):
            if not (line := connection.request()):
                return
            seen.append(line)
            if len(seen) % 2:
                connection.reply()

    with server(handle) as url:
        posted = drive(tmp_path, url, "-n", "20", "-X", "POST")
        count = len(seen)
        seen.clear()
        read = drive(tmp_path, url, "-n", "20")
    assert statuses(posted) == {("ok", 200): 10, ("error:reset", None): 10}
    assert count == 20
    assert statuses(read) == {("ok", 200): 20}


@pytest.mark.parametrize("flags", [["redis://127.0.0.1:1"], ["http://127.0.0.1:1/{key}"]])
def test_an_error_shows_neither_a_header_nor_a_body(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "login.json").write_text(SECRET)
    (tmp_path / "plan.toml").write_text(
        f'name = "a"\n[run]\nduration = "1s"\n[drive]\nurl = "{flags[0]}"\n'
        f'operations = "read"\nheaders = "Authorization: Bearer {SECRET}"\n'
    )
    words = ["--operations", "read", "--body", tmp_path / "login.json"]
    typed = refused(tmp_path, *flags, *words)
    planned = call("run", tmp_path / "plan.toml", "-q", "-o", tmp_path / "none")
    assert planned.returncode == 2
    assert "body" in typed
    assert "headers" in planned.stderr
    for said in (typed, planned.stderr):
        assert SECRET not in said


def test_two_secrets_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken")
    cookie = ["-H", f"Cookie: session={SECRET}"]
    url = "http://127.0.0.1:1/"
    with_file = refused(tmp_path, url, *cookie, "--password-file", tmp_path / "token")
    with_auth = refused(tmp_path, url, *cookie, "--auth", "bearer")
    assert "give one of them" in with_file
    assert "--auth" in with_auth
    assert "there is one secret" in with_auth
    assert SECRET not in with_file + with_auth


def test_a_reply_to_head_has_no_body(tmp_path: Path) -> None:
    with nginx(tmp_path) as url:
        run = drive(tmp_path, f"{url}/page.txt", "-n", "100", "-X", "HEAD")
    assert statuses(run) == {("ok", 200): 100}


def test_without_keep_alive_each_request_has_a_connection_of_its_own(tmp_path: Path) -> None:
    numbers: list[int] = []

    def handle(connection: Connection) -> None:
        while connection.request():
            assert connection.headers["connection"] == "close"
            numbers.append(connection.number)
            # It would take another one, and does not say that it closes.
            connection.reply()

    with server(handle) as url:
        run = drive(tmp_path, url, "-n", "40", "-c", "2", "--keep-alive", "false")
    assert statuses(run) == {("ok", 200): 40}
    assert len(set(numbers)) == len(numbers) == 40


def test_the_password_of_the_environment_goes_to_whom_the_url_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRULY_PASSWORD", SECRET)
    seen: set[str] = set()

    def handle(connection: Connection) -> None:
        while connection.request():
            seen.add(connection.headers.get("authorization", ""))
            connection.reply()

    with server(handle) as url:
        drive(tmp_path, url, "-n", "5")
        assert seen == {""}
        seen.clear()
        drive(tmp_path, url.replace("://", "://me@"), "-n", "5")
    assert seen == {"Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()}
    # who asks for it gets it without a name, too
    with server(handle) as url:
        drive(tmp_path, url, "-n", "5", "--auth", "basic")
    assert "Basic " + base64.b64encode(f":{SECRET}".encode()).decode() in seen


def test_a_password_without_a_user_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, f"http://:{SECRET}@127.0.0.1:1/")
    assert "must have a user before its password" in said
    assert SECRET not in said


@pytest.mark.parametrize("way", ["header", "bearer"])
def test_a_token_reaches_the_server_and_is_nowhere_to_be_read(tmp_path: Path, way: str) -> None:
    seen: set[str] = set()
    words: list[bytes] = []
    begun = threading.Event()

    def handle(connection: Connection) -> None:
        while connection.request():
            seen.add(connection.headers.get("authorization", ""))
            begun.set()
            connection.reply()

    flags = {
        "header": ["-H", f"Authorization: Bearer {SECRET}"],
        "bearer": ["--auth", "bearer", "--password-file", str(tmp_path / "token")],
    }[way]
    (tmp_path / "token").write_text(SECRET + "\n")
    out = tmp_path / "out"
    with server(handle) as url:
        line = [UNRULY, "drive", url, "-r", "100", "-d", "2s", "-w", "0s", "-q", "-o", out, *flags]
        with subprocess.Popen(line) as process:
            assert begun.wait(timeout=60)
            words.append(Path(f"/proc/{process.pid}/cmdline").read_bytes())
            assert process.wait(timeout=60) in (0, 1)
    assert seen == {f"Bearer {SECRET}"}
    kept = [path for path in out.rglob("*") if path.is_file()]
    for text in [*words, *(path.read_bytes() for path in kept)]:
        assert SECRET.encode() not in text


def test_each_request_takes_the_next_row_of_a_data_file(tmp_path: Path) -> None:
    seen: list[tuple[str, str, bytes]] = []

    def handle(connection: Connection) -> None:
        while line := connection.request():
            seen.append((line, connection.headers["x-number"], connection.body))
            connection.reply()

    (tmp_path / "users.csv").write_text('name,note\nann,"a ""b"""\nbob,c&d\n')
    (tmp_path / "body.json").write_text('{"note": "{data.note}"}')
    flags = ["--data", str(tmp_path / "users.csv"), "--body", str(tmp_path / "body.json")]
    flags += ["-H", "Content-Type: application/json", "-H", "X-Number: {sequence}"]
    with server(handle) as url:
        run = drive(tmp_path, f"{url}/{{data.name}}?n={{data.note}}", "-n", "4", *flags)
    assert statuses(run) == {("ok", 200): 4}
    ann = ("POST /ann?n=a%20%22b%22 HTTP/1.1", b'{"note": "a \\"b\\""}')
    bob = ("POST /bob?n=c%26d HTTP/1.1", b'{"note": "c&d"}')
    assert [(line, body) for line, _, body in seen] == [ann, bob, ann, bob]
    assert [number for _, number, _ in seen] == ["1", "2", "3", "4"]
    ((about,),) = run.rows("select detail from events where kind = 'data file'")
    assert "users.csv: 2 rows of name, note, CRC-32 " in about


def test_several_processes_take_the_rows_in_turn(tmp_path: Path) -> None:
    numbers: list[int] = []

    def handle(connection: Connection) -> None:
        while line := connection.request():
            numbers.append(int(line.split()[1].strip("/")))
            connection.reply()

    with server(handle) as url:
        drive(tmp_path, f"{url}/{{sequence}}", "-n", "100", "-c", "4", "--processes", "2")
    assert sorted(numbers) == list(range(1, 101))


def test_a_request_that_is_tried_again_has_the_same_values(tmp_path: Path) -> None:
    seen: list[str] = []

    def handle(connection: Connection) -> None:
        while line := connection.request():
            seen.append(line)
            good = len(seen) % 2 == 0
            connection.reply(head=f"HTTP/1.1 {'200 OK' if good else '503 Busy'}")

    with server(handle) as url:
        drive(tmp_path, f"{url}/{{uuid}}/{{random:1..1000000}}", "-n", "5", "--retries", "1")
    assert len(seen) == 10
    assert seen[::2] == seen[1::2]
    assert len(set(seen)) == 5


@pytest.mark.parametrize(
    ("url", "flags", "said"),
    [
        ("/{data.nobody}", ["--data", "users.csv"], "wanted one of name"),
        ("/{data.name}", [], "{data.name} needs a data file"),
        ("/{nmae}", [], "{nmae} stands for no value"),
        ("/", ["--data", "users.csv"], "no value of users.csv is sent"),
        ("/{data.name}", ["--data", "nowhere.csv"], "nowhere.csv: No such file"),
    ],
)
def test_a_place_for_a_value_that_cannot_be_filled_is_named_before_the_run(
    tmp_path: Path, url: str, flags: list[str], said: str
) -> None:
    (tmp_path / "users.csv").write_text("name\nann\n")
    words = ["drive", f"http://127.0.0.1:1{url}", "-d", "1s", "-o", "none", *flags]
    told = call(*words, cwd=tmp_path)
    assert told.returncode == 2
    assert said in told.stderr
    assert "hint: " in told.stderr
    assert not (tmp_path / "none").exists()


def test_each_connection_has_rows_of_its_own_for_tcp_and_tls(tmp_path: Path) -> None:
    def handle(connection: Connection) -> None:
        if connection.request():
            connection.reply()

    with server(handle, certificate(tmp_path)) as url:
        run = drive(tmp_path, url, "-n", "40", "-k", "--keep-alive", "false")
    rows = run.rows(
        "select layer, count(*), count(distinct request), min(ended_ns - started_ns) > 0"
        " from spans group by 1 order by 1"
    )
    assert rows == [("connect", 40, 40, True), ("tls", 40, 40, True)]
    # They are parts of their request's time, one after the other.
    ((outside,),) = run.rows(
        "select count(*) from spans s join requests r using (request)"
        " where s.started_ns < r.intended_ns - 1000000000 or s.ended_ns > r.received_ns"
    )
    assert outside == 0
    (finding,) = [it for it in run.verdict()["findings"] if it["code"] == "opens-connections"]
    assert finding["evidence"]["opened"] >= 39
