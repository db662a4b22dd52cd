"""Stores under load: requests, right and wrong replies, and a row for every try."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from house import REPOSITORY, UNRULY, Measured, call, spooled, wait_for
from redis_house import redis_binary, redis_server

LIAR = Path(__file__).with_name("liar.py")
SQLITE = REPOSITORY / "unruly" / "examples" / "sqlite_driver.py"


def program(*words: object) -> str:
    return " ".join(["program:" + sys.executable, *map(str, words)])


def drive(folder: Path, url: str, *flags: str, timeout: float = 60) -> Measured:
    """Drive it for a moment, with few keys so that they are met again."""
    out = folder / f"run-{len(list(folder.iterdir()))}"
    words = ["-d", "1s", "-w", "0s", "-q", "-o", out, *flags]
    said = call("drive", url, *words, timeout=timeout)
    assert said.returncode == 0, said.stderr
    return Measured(out)


def statuses(run: Measured, where: str = "true") -> dict[str, int]:
    found = run.rows(f"select status, count(*) from requests where {where} group by 1")
    return {str(status): int(count) for status, count in found}


@pytest.mark.smoke
def test_each_client_of_redis_writes_a_key_and_then_reads_it(tmp_path: Path) -> None:
    with redis_server(tmp_path, "127.0.0.1") as (host, port):
        run = drive(
            tmp_path, f"redis://{host}:{port}", "-c", "3", "--keys", "30", "--pipeline", "2"
        )
    assert set(statuses(run)) == {"ok"}
    rows = run.rows("select connection, key, op from requests order by connection, request")
    assert len(rows) > 1000
    assert {key for _, key, _ in rows} == set(range(30))
    kinds = run.rows("select key, string_agg(op, ' ' order by request) from requests group by key")
    for _, kind in kinds:
        words = kind.split()
        assert words == ["write", "read"] * (len(words) // 2) + ["write"] * (len(words) % 2)
    (stamped, wrong) = run.rows(
        "select count(kernel_received_ns), sum((kernel_received_ns > received_ns)::int)"
        "  from requests"
    )[0]
    assert stamped > len(rows) * 0.9
    assert wrong == 0


def test_what_a_drive_measured_can_be_had_again_from_its_plan(tmp_path: Path) -> None:
    flags = ["-r", "200", "--operations", "read 75%, write 25%", "--order", "zipf", "--keys", "50"]
    first = drive(tmp_path, "null:", *flags, "--seed", "5")
    said = call("run", first.path / "plan.toml", "-q", "-o", tmp_path / "again")
    assert said.returncode == 0, said.stderr
    asked = (
        "select op, key, intended_ns - min(intended_ns) over () from requests"
        "  where phase = 'measure' order by request"
    )
    assert Measured(tmp_path / "again").rows(asked) == first.rows(asked)
    shares = dict(
        first.rows("select op, count(*) from requests where phase = 'measure' group by 1")
    )
    assert shares["read"] + shares["write"] == 200
    assert 120 <= shares["read"] <= 180


def test_every_key_is_written_before_a_mix_that_reads_and_none_is_missed_then(
    tmp_path: Path,
) -> None:
    mix = ["--operations", "read 90%, write 10%", "--keys", "501", "--order", "uniform"]
    with redis_server(tmp_path, "127.0.0.1") as (host, port):
        run = drive(tmp_path, f"redis://{host}:{port}", "-c", "4", "--processes", "2", *mix)
    loaded = run.rows("select client, key, op from requests where phase = 'load'")
    assert sorted(key for _, key, _ in loaded) == list(range(501))
    assert {op for *_, op in loaded} == {"write"}
    # What was loaded and is not there would be wrong:lost.
    assert set(statuses(run)) == {"ok"}
    after = run.rows(
        "select min(intended_ns) filter (phase <> 'load')"
        "       > max(received_ns) filter (phase = 'load') from requests"
    )
    assert after == [(True,)]
    # Each process has keys of its own.
    of_process = run.rows("select client, key % 2 from requests group by all order by all")
    assert of_process == [(0, 0), (1, 1)]
    cells = run.verdict()["cells"]
    (counted,) = (it["n"] for it in cells if (it["op"], it["latency"]) == ("*", "response"))
    assert counted == len(run.rows("select op from requests where phase = 'measure'"))


def test_several_processes_ask_together_when_one_would_have_asked_alone(tmp_path: Path) -> None:
    def asked(processes: int) -> list[int]:
        flags = ["-c", "6", "-r", "500", "--arrivals", "poisson", "--processes", str(processes)]
        run = drive(tmp_path, "null:", *flags)
        rows = run.rows(
            "select intended_ns - min(intended_ns) over (), client, connection from requests"
            "  order by intended_ns"
        )
        assert {client for _, client, _ in rows} == set(range(processes))
        return [at_ns for at_ns, *_ in rows]

    # Each process has read the clock once for itself.
    assert asked(3) == pytest.approx(asked(1), abs=1_000_000)


def test_keys_that_cannot_be_written_end_the_run_before_it_begins(tmp_path: Path) -> None:
    words = ["-d", "1s", "-q", "-o", tmp_path / "run", "--operations", "read", "--keys", "500"]
    said = call("drive", program(LIAR, "failed", 2), *words)
    assert said.returncode == 2
    assert "keys could not be written (error:store: " in said.stderr
    assert "hint: preload = false drives it as it is" in said.stderr


@pytest.mark.parametrize(
    ("lie", "status"),
    [
        ("stale", "wrong:stale"),
        ("lost", "wrong:lost"),
        ("swapped", "wrong"),
        ("damaged", "wrong"),
        ("failed", "error:store"),
        ("late", "error:store"),
    ],
)
def test_a_lie_is_found_each_time_and_nothing_else(tmp_path: Path, lie: str, status: str) -> None:
    flags = ["-c", "2", "--keys", "4", "-n", "2000", "-d", "30s"]
    run = drive(tmp_path, program(LIAR, lie, 10), *flags)
    found = statuses(run)
    assert set(found) == {"ok", status}, found
    # Every tenth of a thousand reads, or of two thousand requests; a first value has none before.
    wanted = 200 if status.startswith("error") else 100
    assert wanted - 4 <= found[status] <= wanted
    counts = run.manifest["counts"]["copies"]
    assert counts["wrong"] + counts["error"] == found[status]
    assert counts["scheduled"] == sum(found.values())


@pytest.mark.smoke
def test_an_honest_store_is_never_called_a_liar(tmp_path: Path) -> None:
    shares = ["--operations", "read 50%, write 50%", "--keys", "3", "--order", "uniform"]
    run = drive(tmp_path, program(LIAR, "honest", 1), "-c", "8", "--pipeline", "4", *shares)
    assert set(statuses(run)) == {"ok"}


def test_a_write_that_failed_and_took_effect_later_is_not_held_against_the_store(
    tmp_path: Path,
) -> None:
    shares = ["--operations", "read 50%, write 50%", "--keys", "3", "--order", "uniform"]
    run = drive(tmp_path, program(LIAR, "late", 7), *shares)
    assert set(statuses(run)) == {"ok", "error:store"}


def test_each_try_is_a_row_and_the_latency_counts_from_the_first(tmp_path: Path) -> None:
    flags = ["--keys", "4", "-n", "1000", "-d", "30s", "--retries", "2"]
    run = drive(tmp_path, program(LIAR, "failed", 5), *flags)
    tries = run.rows(
        "select count(*), max(attempt), count(distinct intended_ns), sum(answered::int),"
        "       bool_and(status = 'ok' or attempt < 2 and status = 'error:store')"
        "  from requests group by request"
    )
    assert len(tries) == 1000
    assert all(count == last + 1 for count, last, *_ in tries)
    assert all((instants, answered, good) == (1, 1, True) for *_, instants, answered, good in tries)
    retried = [last for _, last, *_ in tries if last]
    # Every fifth of 1,000 requests and their second tries failed.
    assert 240 <= len(retried) <= 260
    assert run.manifest["counts"]["requests"]["answered"] == 1000
    verdict = run.verdict()
    assert all(cell["failed"] == 0 for cell in verdict["cells"])


def test_what_is_never_answered_times_out_and_the_clients_go_on(tmp_path: Path) -> None:
    flags = ["-c", "4", "--keys", "40", "-n", "400", "-d", "30s", "--timeout", "50ms"]
    run = drive(tmp_path, program(LIAR, "silent", 20), *flags)
    found = statuses(run)
    assert set(found) == {"ok", "timeout"}
    assert 18 <= found["timeout"] <= 20


def test_a_program_says_when_it_sent_and_received(tmp_path: Path) -> None:
    run = drive(tmp_path, program(SQLITE, tmp_path / "store.db"), "-c", "2", "--keys", "20")
    assert set(statuses(run)) == {"ok"}
    (rows, early, least) = run.rows(
        "select count(*), sum((sent_ns < intended_ns)::int), min(received_ns - sent_ns)"
        "  from requests"
    )[0]
    assert rows > 20
    assert (early, least > 0) == (0, True)


@pytest.mark.smoke
def test_a_store_that_dies_is_rows_and_the_run_goes_on(tmp_path: Path) -> None:
    run = drive(tmp_path, program(LIAR, "dies", 100), "-r", "500", "--keys", "10")
    found = statuses(run)
    assert sum(found.values()) == 500
    assert found["ok"] >= 100
    assert found.get("error:reset", 0) + found.get("unfinished", 0) >= 1, found
    # The request that it died of had been sent; requests while it was away could not be sent. On a
    # busy machine more requests were on their way when it died: these have no time of sending.
    unasked = run.rows("select distinct status, sent_ns is null from requests where status <> 'ok'")
    assert {("error:reset", False), ("unfinished", False)} & set(unasked), unasked
    assert ("error:disconnected", False) not in unasked
    # It is started again, with nothing in it.
    others = {"error:reset", "error:disconnected", "unfinished", "wrong:lost"}
    assert set(found) <= {"ok"} | others, found


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://127.0.0.1:1", "nothing listens there"),
        ("redis://{redis}/99", 'it says "ERR DB index is out of range"'),
        ("redis://:wrong@{redis}", 'it says "ERR AUTH'),
        ("memcached://{redis}", "something else listens there"),
        ("program:true", 'must say "unruly 1"'),
        ("program:no-such-program", 'must say "unruly 1"'),
    ],
)
def test_a_store_that_cannot_be_driven_is_told_before_anything_is_measured(
    tmp_path: Path, url: str, said: str
) -> None:
    with redis_server(tmp_path, "127.0.0.1") as (host, port):
        place = url.format(redis=f"{host}:{port}")
        ended = call("drive", place, "-d", "1s", "-o", tmp_path / "out", timeout=60)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.smoke
def test_a_service_is_started_measured_and_gone(tmp_path: Path) -> None:
    run = drive(
        tmp_path, "service:redis-replicated", "--level", "quorum", "--keys", "20", "-c", "2"
    )
    assert statuses(run).keys() == {"ok"}
    assert run.rows("select distinct level from requests") == [("quorum",)]
    services = [it for it in run.manifest["processes"] if it["kind"] == "service"]
    assert [it["name"] for it in services] == ["redis-1", "redis-2", "redis-3"]
    assert all(it["runtime"].startswith("Redis server v=") for it in services)
    assert all(it["exit"] == {"code": 0} for it in services), services
    assert not any(Path(f"/proc/{it['pid']}").exists() for it in services)
    assert not (run.path / "services").exists()
    watched = {name for (name,) in run.rows("select distinct watched from resources")}
    assert {"redis-1", "redis-2", "redis-3"} <= watched


@pytest.mark.parametrize(
    ("service", "flags"),
    [
        ("memcached", ()),
        ("memcached", ("--transport", "udp")),
        ("etcd", ("--level", "first")),
        ("flurry", ("--level", "all")),
    ],
)
def test_every_store_of_this_host_is_started_and_says_what_is_right(
    tmp_path: Path, service: str, flags: tuple[str, ...]
) -> None:
    run = drive(tmp_path, f"service:{service}", "--keys", "50", "-c", "3", *flags)
    found = statuses(run)
    # What a follower of etcd has may be behind; that is what its first level is.
    allowed = {"ok", "wrong:stale", "wrong:lost"} if service == "etcd" else {"ok"}
    assert set(found) <= allowed, found
    assert found["ok"] > 100
    reads = statuses(run, "op = 'read'")
    assert reads["ok"] > 40


def test_a_service_does_not_outlive_a_runner_that_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [UNRULY, "drive", "service:redis", "-d", "60s", "-o", str(out)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: spooled(out) > 10_000, "the first rows")
        servers = [pid for pid in children(process.pid) if b"redis-server" in command_of(pid)]
        assert len(servers) == 1
        process.kill()
    wait_for(lambda: not command_of(servers[0]), "the end of the service")


def test_a_service_that_is_killed_is_an_event_and_the_run_goes_on(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "killed"\n[run]\nduration = "2s"\n'
        '[drive]\nstore = "redis"\nrate = "500/s"\nkeys = 9\n'
        '[[fault]]\nkind = "kill"\nprocess = "redis-1"\nat = "1s"\n'
    )
    said = call("run", plan, "-q", "-o", tmp_path / "out", timeout=60)
    assert said.returncode == 0, said.stderr
    run = Measured(tmp_path / "out")
    kinds = [kind for (kind,) in run.rows("select kind from events where process = 'redis-1'")]
    assert sorted(kinds) == ["fault kill", "process died"]
    found = statuses(run)
    assert found["ok"] >= 450
    gone = [count for status, count in found.items() if status.startswith(("refused", "error"))]
    assert sum(gone) >= 450
    assert sum(found.values()) == 1000


def test_what_came_once_comes_again_and_again_from_the_run(tmp_path: Path) -> None:
    times = tmp_path / "seen.txt"
    times.write_text("# seconds\n" + "".join(f"{7 + it * it / 1e4}\n" for it in range(100)))
    first = drive(tmp_path, "null:", "--arrivals", "replay", "--times", str(times))
    times.unlink()
    said = call("run", first.path / "plan.toml", "-q", "-o", tmp_path / "again")
    assert said.returncode == 0, said.stderr
    offsets = "select (intended_ns - min(intended_ns) over ()) / 1e9 from requests order by 1"
    for run in (first, Measured(tmp_path / "again")):
        found = [float(offset) for (offset,) in run.rows(offsets)]
        assert found == pytest.approx([it * it / 1e4 for it in range(100)], abs=1e-6)


def test_a_service_that_is_not_ready_is_told_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text(
        'about = "one that ends"\n'
        'url = "redis://{{ processes.it.host }}:{{ processes.it.port }}"\n'
        '[[process]]\nname = "it"\n'
        'command = ["sh", "-c", "echo no room for {{ port }} >&2; exit 3"]\n'
    )
    said = call("drive", f"service:{broken}", "-d", "1s", "-o", tmp_path / "out", timeout=60)
    assert said.returncode == 2
    assert "it: ended before it was ready; wanted it to listen on 127.0.0.1:" in said.stderr
    assert "  no room for " in said.stderr


def test_what_a_service_misses_is_named_with_its_packages(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    missing.write_text(
        'about = "one"\nurl = "null:"\n'
        'programs = ["no-such-server"]\npackages = ["no-such-package"]\n'
        '[[process]]\nname = "it"\ncommand = ["no-such-server"]\n'
    )
    said = call("drive", f"service:{missing}", "-d", "1s", "-o", tmp_path / "out", timeout=60)
    assert said.returncode == 2
    assert "no-such-server not found, and no-such-package could not be fetched" in said.stderr
    assert "hint: apt-get install no-such-package" in said.stderr


def children(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> bytes:
    """Its command line; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.smoke
def test_a_password_is_in_no_file_of_the_run(tmp_path: Path) -> None:
    with redis_server(tmp_path, "127.0.0.1") as (host, port):
        command = [redis_binary("redis-cli"), "-p", str(port), "config", "set", "requirepass"]
        subprocess.run([*command, "open-sesame"], check=True, capture_output=True)
        run = drive(tmp_path, f"redis://:open-sesame@{host}:{port}", "--keys", "10")
        assert set(statuses(run)) == {"ok"}
        refused = call("drive", f"redis://{host}:{port}", "-d", "1s", "-o", tmp_path / "out")
    assert "NOAUTH" in refused.stderr
    for path in run.path.rglob("*"):
        assert not path.is_file() or b"open-sesame" not in path.read_bytes(), path
