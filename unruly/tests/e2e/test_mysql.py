"""MariaDB, by the protocol of MySQL: the same scripts as for PostgreSQL."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from house import UNRULY, Measured, spooled, wait_for
from sql_house import HOST, MIX, PASSWORD, READ, MariaDb, maria
from stall_house import conserved, counts_its_stall
from test_https import drive, refused, statuses

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["maria"]


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password of the server's user."""
    monkeypatch.setenv("UNRULY_PASSWORD", PASSWORD)


@pytest.mark.smoke
def test_a_mix_of_statements_and_transactions_is_measured(tmp_path: Path, maria: MariaDb) -> None:
    (tmp_path / "bank.sql").write_text(MIX)
    before = int(maria.sql("SELECT sum(balance) FROM bank.accounts WHERE id > 500"))
    run = drive(tmp_path, maria.url, "--sql-file", tmp_path / "bank.sql", "-n", "1000", "-c", "4")
    assert statuses(run) == {("ok", None): 1000}
    counts = dict(run.rows("select op, count(*) from requests group by 1"))
    # 200 are expected, and 150 to 250 are four standard deviations.
    assert 150 < counts["pay"] < 250
    after = int(maria.sql("SELECT sum(balance) FROM bank.accounts WHERE id > 500"))
    assert after - before == counts["pay"]
    assert maria.sql("SELECT sum(balance) FROM bank.accounts") == "100000"
    (least,) = run.rows("select min(received_bytes) from requests where op = 'look'")[0]
    # A description and a row came, and not only word of their end.
    assert least > 50


def test_numbers_are_numbers_and_values_of_a_data_file_are_text(
    tmp_path: Path, maria: MariaDb
) -> None:
    """`LIMIT` takes whole numbers alone, and no value is ever part of a statement."""
    limited = drive(tmp_path, maria.url, "--sql", "SELECT * FROM accounts LIMIT {random:1..3}",
                    "-n", "20")  # fmt: skip
    assert statuses(limited) == {("ok", None): 20}
    (tmp_path / "notes.csv").write_text("text,account\nit's; DROP TABLE notes --,7\n%s {x} é,8\n")
    statement = "INSERT INTO notes VALUES ({uuid}, {data.text}, {data.account})"
    flags = ["--sql", statement, "--data", tmp_path / "notes.csv"]
    run = drive(tmp_path, maria.url, "-n", "10", *flags)
    assert statuses(run) == {("ok", None): 10}
    found = maria.sql(
        "SET NAMES utf8mb4; SELECT text, account, count(*) FROM bank.notes GROUP BY 1, 2 ORDER BY 2"
    )
    assert found.splitlines() == ["it's; DROP TABLE notes --\t7\t5", "%s {x} é\t8\t5"]


def test_an_error_is_a_failure_with_its_words_and_its_transaction_is_rolled_back(
    tmp_path: Path, maria: MariaDb
) -> None:
    """Every tenth operation writes an account that is there already."""
    script = (
        "BEGIN; UPDATE accounts SET balance = balance + 1 WHERE id = 1;"
        "INSERT INTO accounts SELECT 1, 'x', 1 WHERE {sequence} % 10 = 0; COMMIT"
    )
    before = int(maria.sql("SELECT balance FROM bank.accounts WHERE id = 1"))
    run = drive(tmp_path, maria.url, "--sql", script, "-n", "100", "-c", "2")
    assert statuses(run) == {("ok", None): 90, ("error:store", None): 10}
    told = run.rows("select detail from events where kind = 'complaint'")
    assert any("ERROR 1062: Duplicate entry" in detail for (detail,) in told), told
    after = int(maria.sql("SELECT balance FROM bank.accounts WHERE id = 1"))
    assert after - before == 90
    maria.sql("UPDATE bank.accounts SET balance = balance - 90 WHERE id = 1")


def test_an_operation_that_leaves_its_transaction_open_is_a_failure(
    tmp_path: Path, maria: MariaDb
) -> None:
    run = drive(tmp_path, maria.url, "--sql", "BEGIN; SELECT 1", "-n", "10")
    assert statuses(run) == {("error:store", None): 10}


def test_a_stall_counts_against_every_request_that_was_scheduled_in_it(
    tmp_path: Path, maria: MariaDb
) -> None:
    words = [maria.url, "--sql", READ, "-c", "4"]
    counts_its_stall(tmp_path / "out", 500, lambda: [maria.server.pid], *words)


def test_connections_that_the_server_ends_are_made_again(tmp_path: Path, maria: MariaDb) -> None:
    out = tmp_path / "out"
    line = [UNRULY, "drive", maria.url, "--sql", "SELECT 1", "-r", "200", "-d", "4s", "-w", "0s"]
    with subprocess.Popen([*line, "-c", "2", "-q", "-o", out]) as process:
        wait_for(lambda: spooled(out) > 20_000, "the first rows")
        own = maria.sql("SELECT id FROM information_schema.processlist WHERE user = 'app'")
        assert len(own.split()) == 2
        maria.sql(";".join(f"KILL {connection}" for connection in own.split()))
        assert process.wait(timeout=60) in (0, 1)
    run = Measured(out)
    assert conserved(run)
    assert statuses(run)["ok", None] > 700
    ((reconnects,),) = run.rows("select detail::int from events where kind = 'reconnects'")
    assert reconnects == 2


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "You have an error in your SQL syntax"),
        ("SELECT * FROM nowhere", "bank.nowhere' doesn't exist"),
        ("SELECT {data.x}", "needs a data file"),
    ],
)
def test_what_a_database_cannot_be_asked_is_an_error_before_the_run(
    tmp_path: Path, maria: MariaDb, sql: str, said: str
) -> None:
    assert said in refused(tmp_path, maria.url, "--sql", sql)


def test_a_login_that_fails_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maria: MariaDb
) -> None:
    monkeypatch.setenv("UNRULY_PASSWORD", "wrong")
    assert "Access denied for user" in refused(tmp_path, maria.url, "--sql", "SELECT 1")
    nobody = refused(tmp_path, f"mysql://app@{HOST}:1/bank", "--sql", "SELECT 1")
    assert "nothing listens there" in nobody
