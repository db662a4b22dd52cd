"""PostgreSQL: statements with values of their own, a row for each operation."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from house import UNRULY, Measured, spooled, wait_for
from sql_house import HOST, MIX, PASSWORD, READ, Postgres, database, postgres
from stall_house import conserved, counts_its_stall
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["database"]


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password of the server's user."""
    monkeypatch.setenv("UNRULY_PASSWORD", PASSWORD)


@pytest.mark.smoke
def test_a_statement_is_measured_with_values_of_its_own(tmp_path: Path, database: Postgres) -> None:
    run = drive(tmp_path, database.url, "--sql", READ, "-n", "500", "-c", "4")
    assert statuses(run) == {("ok", None): 500}
    assert run.rows("select distinct op from requests") == [("select",)]
    (least,) = run.rows("select min(received_bytes) from requests")[0]
    # A row with its balance comes back, and not only word that there is none.
    assert least > 30
    (sent, kernel) = run.rows("select count(sent_ns), count(kernel_received_ns) from requests")[0]
    assert (sent, kernel) == (500, 500)


def test_a_script_has_operations_with_shares_and_a_transaction_is_one_of_them(
    tmp_path: Path, database: Postgres
) -> None:
    (tmp_path / "bank.sql").write_text(MIX)
    before = database.psql("SELECT sum(balance) FROM accounts WHERE id > 500")
    run = drive(
        tmp_path, database.url, "--sql-file", tmp_path / "bank.sql", "-n", "2000", "-c", "4"
    )
    assert statuses(run) == {("ok", None): 2000}
    counts = dict(run.rows("select op, count(*) from requests group by 1"))
    # 400 are expected, and 330 to 470 are four standard deviations.
    assert 330 < counts["pay"] < 470
    assert counts["pay"] + counts["look"] == 2000
    after = database.psql("SELECT sum(balance) FROM accounts WHERE id > 500")
    assert int(after) - int(before) == counts["pay"]
    assert database.psql("SELECT sum(balance) FROM accounts") == "100000"
    assert "look 80%, pay 20%" in run.manifest["target"]


def test_values_of_a_data_file_are_parameters_whatever_they_hold(
    tmp_path: Path, database: Postgres
) -> None:
    """No value is ever part of a statement."""
    (tmp_path / "notes.csv").write_text("text,account\nit's; DROP TABLE notes --,7\n%s {x} é,8\n")
    statement = "INSERT INTO notes VALUES ({uuid}, {data.text}, {data.account})"
    flags = ["--sql", statement, "--data", tmp_path / "notes.csv"]
    run = drive(tmp_path, database.url, "-n", "10", *flags)
    assert statuses(run) == {("ok", None): 10}
    found = database.psql("SELECT text, account, count(*) FROM notes GROUP BY 1, 2 ORDER BY 2")
    assert found.splitlines() == ["it's; DROP TABLE notes --|7|5", "%s {x} é|8|5"]


def test_an_error_is_a_failure_with_its_words_and_its_transaction_is_rolled_back(
    tmp_path: Path, database: Postgres
) -> None:
    """Every tenth account is not there, and paying from nothing is an error."""
    script = (
        "BEGIN; UPDATE accounts SET balance = balance + 1 WHERE id = 1; "
        "SELECT 1 / (CASE WHEN {sequence}::bigint % 10 = 0 THEN 0 ELSE 1 END); COMMIT"
    )
    before = int(database.psql("SELECT balance FROM accounts WHERE id = 1"))
    run = drive(tmp_path, database.url, "--sql", script, "-n", "100", "-c", "2")
    assert statuses(run) == {("ok", None): 90, ("error:store", None): 10}
    assert run.rows("select distinct op from requests") == [("transaction",)]
    told = run.rows("select detail from events where kind = 'complaint'")
    assert any("ERROR 22012: division by zero" in detail for (detail,) in told), told
    assert int(database.psql("SELECT balance FROM accounts WHERE id = 1")) - before == 90
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'"
    assert database.psql(open_ones) == "0"


def test_an_operation_that_timed_out_leaves_its_other_statements_out(
    tmp_path: Path, database: Postgres
) -> None:
    script = (
        "BEGIN; SELECT pg_sleep(1.5); UPDATE accounts SET balance = balance + 1 WHERE id = 2; "
        "COMMIT"
    )
    before = int(database.psql("SELECT balance FROM accounts WHERE id = 2"))
    run = drive(tmp_path, database.url, "--sql", script, "-n", "2", "-c", "1", "--timeout", "1s")
    assert statuses(run) == {("timeout", None): 2}
    assert int(database.psql("SELECT balance FROM accounts WHERE id = 2")) == before


def test_an_operation_that_leaves_its_transaction_open_is_a_failure(
    tmp_path: Path, database: Postgres
) -> None:
    run = drive(tmp_path, database.url, "--sql", "BEGIN; SELECT 1", "-n", "10")
    assert statuses(run) == {("error:store", None): 10}
    told = run.rows("select detail from events where kind = 'complaint'")
    assert any("does not end its transaction" in detail for (detail,) in told), told


def test_a_server_that_asks_for_data_gets_none_and_goes_on(
    tmp_path: Path, database: Postgres
) -> None:
    run = drive(tmp_path, database.url, "--sql", "COPY accounts FROM STDIN", "-n", "10")
    assert statuses(run) == {("error:store", None): 10}
    out = drive(tmp_path, database.url, "--sql", "COPY accounts TO STDOUT", "-n", "10")
    assert statuses(out) == {("ok", None): 10}
    ((least,),) = out.rows("select min(received_bytes) from requests")
    assert least > 10_000


@pytest.mark.parametrize("login", ["md5", "password", "trust"])
def test_a_server_may_ask_for_the_password_in_other_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    if login == "trust":
        monkeypatch.delenv("UNRULY_PASSWORD")
    with postgres(login) as server:
        run = drive(tmp_path, server.url, "--sql", "SELECT 1", "-n", "20")
    assert statuses(run) == {("ok", None): 20}


def test_a_stall_counts_against_every_request_that_was_scheduled_in_it(
    tmp_path: Path, database: Postgres
) -> None:
    words = [database.url, "--sql", READ, "-c", "4"]
    counts_its_stall(tmp_path / "out", 500, database.processes, *words)


def test_connections_that_the_server_ends_are_made_again(
    tmp_path: Path, database: Postgres
) -> None:
    out = tmp_path / "out"
    line = [UNRULY, "drive", database.url, "--sql", "SELECT 1", "-r", "200", "-d", "4s", "-w", "0s"]
    with subprocess.Popen([*line, "-c", "2", "-q", "-o", out]) as process:
        wait_for(lambda: spooled(out) > 20_000, "the first rows")
        database.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'unruly'"
        )
        assert process.wait(timeout=60) in (0, 1)
    run = Measured(out)
    assert conserved(run)
    found = statuses(run)
    assert found["ok", None] > 700
    ((reconnects,),) = run.rows("select detail::int from events where kind = 'reconnects'")
    assert reconnects == 2


def test_a_client_whose_table_was_gone_while_it_came_back_recovers(
    tmp_path: Path, database: Postgres
) -> None:
    """Its connections end, and cannot prepare the statement again until the table is back."""
    database.psql("CREATE TABLE here (id int)")
    out = tmp_path / "out"
    line = [UNRULY, "drive", database.url, "--sql", "TABLE here", "-r", "200", "-d", "6s"]
    with subprocess.Popen([*line, "-w", "0s", "-c", "2", "-q", "-o", out]) as process:
        wait_for(lambda: spooled(out) > 20_000, "the first rows")
        before = spooled(out)
        database.psql(
            "ALTER TABLE here RENAME TO gone; SELECT pg_terminate_backend(pid)"
            " FROM pg_stat_activity WHERE application_name = 'unruly'"
        )
        wait_for(lambda: spooled(out) > before + 15_000, "rows of the outage")
        database.psql("ALTER TABLE gone RENAME TO here")
        assert process.wait(timeout=60) in (0, 1)
    run = Measured(out)
    assert conserved(run)
    last = run.rows(
        "select status, count(*) from requests where intended_ns >"
        " (select max(intended_ns) - 1000000000 from requests) group by 1"
    )
    assert last == [("ok", 200)]
    told = run.rows("select detail from events where kind = 'complaint'")
    assert any('"here" does not exist' in detail for (detail,) in told), told


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sql", "SELEC 1"], 'it says "syntax error at or near'),
        (["--sql", "SELECT * FROM nowhere"], 'relation \\"nowhere\\" does not exist'),
        (["--sql", "SELECT {data.x}"], "needs a data file"),
        (["--sql", "SELECT '{uuid}'"], "no place inside of quotes"),
        (["--sql", "-- nothing"], "must have a statement"),
        (["--sql", "SELECT $1"], "and not $1"),
        (["--sql-file", "mix.sql"], "these are 90 %"),
        (["--sql-file", "none.sql"], "cannot be read"),
        ([], "--sql: it is missing"),
        (["--sql", "SELECT 1", "--operations", "read"], "stand in sql"),
        (["--sql", "SELECT 1", "--keys", "5"], "the statements name the rows"),
        (["--sql", "SELECT 1", "--level", "all"], "--level: "),
        (["--sql", "SELECT 1", "--http2"], "only an http:// URL has it"),
    ],
)
def test_what_a_database_cannot_be_asked_is_an_error_before_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    database: Postgres,
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mix.sql").write_text(
        "-- operation: a 50%\nSELECT 1;\n-- operation: b 40%\nSELECT 2;"
    )
    assert said in refused(tmp_path, database.url, *flags)
    assert not (tmp_path / "none").exists()


def test_a_login_that_fails_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Postgres
) -> None:
    said = refused(tmp_path, database.url.replace("/postgres", "/nowhere"), "--sql", "SELECT 1")
    assert 'database \\"nowhere\\" does not exist' in said
    monkeypatch.setenv("UNRULY_PASSWORD", "wrong")
    said = refused(tmp_path, database.url, "--sql", "SELECT 1")
    assert "password authentication failed" in said
    assert "UNRULY_PASSWORD" in said
    monkeypatch.delenv("UNRULY_PASSWORD")
    assert "it wants a password" in refused(tmp_path, database.url, "--sql", "SELECT 1")
    bare = f"postgres://{HOST}:{database.port}/postgres"
    assert "it names no user" in refused(tmp_path, bare, "--sql", "SELECT 1")
    nobody = f"postgres://app@{HOST}:1/postgres"
    assert "nothing listens there" in refused(tmp_path, nobody, "--sql", "SELECT 1")
