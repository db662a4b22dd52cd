"""Programs that were made for Redis use the gateway: they only change the port."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import py4j.java_gateway as jvm
import pyspark
import pytest
import redis
from guarded import PASSWORD, certificate, user
from house import FLURRY, REPOSITORY, started
from redis.cluster import ClusterNode, RedisCluster
from redis_house import gateway, redis_binary

HOST = "127.51.0.1"
CLIENTS = REPOSITORY / "flurry" / "tests" / "clients"
CACHE = REPOSITORY / ".cache" / "jars"
# Libraries on top of a client, in an environment of their own (`make redis-clients`).
LIBRARIES = REPOSITORY / "target" / "redis_clients" / "bin" / "python"
# Clients for Node.js (`make node-clients`).
NODE_CLIENTS = REPOSITORY / "target" / "node_clients"

GO_SAID = "answers 100, lives on true, transactions 2\n"

# The jars of clients, with the checksums of those that their maintainers have published.
JARS = {
    ("redis.clients", "jedis", "5.2.0"): (
        "dd4fbda2c103f319ab495adb2bc1906139840746cfd4c66b27710d1af98382d4"
    ),
    (
        "io.lettuce",
        "lettuce-core",
        "6.5.5.RELEASE",
    ): "8224580c441eae5983ce75846b244339bbc5843640a3fc42a1af2b12a34071b0",
}


@dataclass(frozen=True)
class Served:
    """Where a client goes, and what it must know."""

    address: tuple[str, int]
    user: str = ""
    password: str = ""
    certificate: Path | None = None
    others: tuple[tuple[str, int], ...] = ()

    @property
    def port(self) -> int:
        return self.address[1]

    def places(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in (self.address, *self.others))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with gateway(tmp_path_factory.mktemp("plain"), HOST) as address:
        yield Served(address)


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("safe")
    host = "127.52.0.1"
    chain, key = certificate(folder, host)
    users = folder / "users.toml"
    users.touch(0o600)
    users.write_text(user("app", '[""]', '["read", "write", "admin"]'))
    words = ["--users", str(users), "--tls-cert", str(chain), "--tls-key", str(key)]
    with gateway(folder, host, *words) as address:
        yield Served(address, "app", PASSWORD, chain)


@contextmanager
def two_gateways(folder: Path, host: str) -> Iterator[Served]:
    """Each serves half of the slots."""
    controller = f"{host}:7700"
    halves = [(f"{host}:6379", "0-8191"), (f"{host}:6380", "8192-16383")]

    def words(own: int) -> list[str | Path]:
        (address, slots), (other, rest) = halves[own], halves[1 - own]
        where = ["--listen", address, "--slots", slots, "--other", f"{other}={rest}"]
        return [FLURRY, "gateway", "--controller", controller, *where]

    serve: list[str | Path] = [FLURRY, "serve", "--controller", controller]
    with (
        started(serve, "ready", folder / "serve.log"),
        started(words(0), "ready", folder / "one.log"),
        started(words(1), "ready", folder / "two.log"),
    ):
        yield Served((host, 6379), others=((host, 6380),))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with two_gateways(tmp_path_factory.mktemp("cluster"), "127.53.0.1") as served:
        yield served


@pytest.fixture(params=["plain", "safe"])
def single(request: pytest.FixtureRequest) -> Served:
    served: Served = request.getfixturevalue(request.param)
    return served


def call(*words: str | Path, **more: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def flags(served: Served) -> list[str]:
    """Return the flags of redis-cli and redis-benchmark."""
    words = ["-h", served.address[0], "-p", str(served.port)]
    if served.certificate is not None:
        words += ["--tls", "--cacert", str(served.certificate)]
        words += ["--user", served.user, "-a", served.password]
    return words


def test_redis_cli(single: Served) -> None:
    def said(*words: str) -> str:
        return call(redis_binary("redis-cli"), "--no-auth-warning", *flags(single), *words).strip()

    assert said("SET", "cli", "1", "EX", "1000") == "OK"
    assert said("INCR", "cli") == "2"
    assert said("-3", "HELLO", "3").splitlines()[0] == "server redis"
    assert said("--scan", "--pattern", "cli*") == "cli"
    assert "flurry_version" in said("INFO", "server")


def test_redis_benchmark(single: Served) -> None:
    words = ["-n", "2000", "-c", "20", "-P", "4", "-r", "1000", "-q", "-t", "get,set,incr,mset"]
    said = call(redis_binary("redis-benchmark"), *flags(single), *words)
    for command in ("SET", "GET", "INCR", "MSET"):
        assert f"{command}" in said
    assert "rror" not in said


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(single: Served, protocol: int) -> None:
    tls: dict[str, Any] = {}
    if single.certificate is not None:
        tls = {"ssl": True, "ssl_ca_certs": str(single.certificate)}
        tls |= {"username": single.user, "password": single.password}
    host, port = single.address
    client = redis.Redis(host=host, port=port, protocol=protocol, decode_responses=True, **tls)
    with client:
        assert client.set("py", "1", px=100_000)
        assert client.incr("py", 4) == 5
        assert 0 < client.pttl("py") <= 100_000
        pipeline = client.pipeline(transaction=False)
        for number in range(500):
            pipeline.set(f"py:{number}", number)
        assert all(pipeline.execute())
        assert client.mget("py:1", "py:499", "py:x") == ["1", "499", None]
        assert len(set(client.scan_iter("py:*", count=100))) == 500
        assert client.wait(2, 1_000) == 2
        assert client.getex("py", persist=True) == "5"
        assert client.ttl("py") == -1
        client.set("text", "x")
        with pytest.raises(redis.ResponseError, match="not an integer"):
            client.incr("text")
        assert client.info()["copies"] == 3
        assert client.delete("py", "text") == 2


@pytest.mark.parametrize("library", ["django", "flask-session", "limits", "redis-py"])
def test_libraries_keep_caches_sessions_locks_and_limits(plain: Served, library: str) -> None:
    assert LIBRARIES.exists(), f"{LIBRARIES} is missing; hint: make redis-clients"
    host, port = plain.address
    said = call(LIBRARIES, CLIENTS / "libraries.py", library, host, str(port))
    assert said == f"{library}: as its manual says\n"


@pytest.mark.parametrize(
    "client", ["ioredis", "node-redis", "redlock", "rate-limiter-flexible", "connect-redis"]
)
def test_clients_for_node_do_what_their_manuals_show(plain: Served, client: str) -> None:
    assert NODE_CLIENTS.exists(), f"{NODE_CLIENTS} is missing; hint: make node-clients"
    host, port = plain.address
    words = [NODE_CLIENTS, client, host, str(port)]
    assert call("node", CLIENTS / "libraries.mjs", *words) == f"{client}: as its manual says\n"


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("go") / "client"
    call("go", "build", "-o", program, ".", cwd=CLIENTS)
    return program


def go_words(served: Served) -> list[str]:
    trusted = "" if served.certificate is None else str(served.certificate)
    return [served.places(), served.user, served.password, trusted]


def test_go_redis(single: Served, go_program: Path) -> None:
    assert call(go_program, "single", *go_words(single)) == GO_SAID


@pytest.fixture(scope="module")
def java() -> Iterator[jvm.JavaGateway]:
    """A virtual machine with Jedis and Lettuce, fetched the first time and then kept."""
    jars = Path(pyspark.__file__).parent / "jars"
    ivy = next(jars.glob("ivy-*.jar"))
    for (group, name, version), checksum in JARS.items():
        jar = CACHE / f"{name}-{version}.jar"
        if not jar.exists():
            wanted = ["-dependency", group, name, version, "-confs", "default"]
            kept = ["-cache", CACHE / "ivy", "-retrieve", f"{CACHE}/[artifact]-[revision].[ext]"]
            call("java", "-jar", ivy, *wanted, *kept)
        assert hashlib.sha256(jar.read_bytes()).hexdigest() == checksum
    everything = ":".join(map(str, [*sorted(CACHE.glob("*.jar"))]))
    machine = jvm.JavaGateway.launch_gateway(classpath=everything, die_on_exit=True)
    yield machine
    machine.shutdown()


def trusting(java: jvm.JavaGateway, served: Served, folder: Path) -> Any:
    """Return a configuration of Jedis with the user and the certificate."""
    builder = java.jvm.redis.clients.jedis.DefaultJedisClientConfig.builder()
    if served.certificate is not None:
        store = folder / "trusted.p12"
        words = ["-noprompt", "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "gateway"]
        call("keytool", "-importcert", *words, "-keystore", store, "-file", served.certificate)
        system = java.jvm.java.lang.System
        system.setProperty("javax.net.ssl.trustStore", str(store))
        system.setProperty("javax.net.ssl.trustStorePassword", "changeit")
        builder = builder.ssl(True).user(served.user).password(served.password)
    return builder.build()


def use_jedis(client: Any) -> None:
    for number in range(50):
        assert client.set(f"jedis:{number}", str(number)) == "OK"
        assert client.incrBy(f"jedis:{number}", 1_000) == 1_000 + number
    assert client.get("jedis:49") == "1049"
    assert client.get("jedis:nothing") is None
    assert client.expire("jedis:1", 1_000) == 1
    assert 990 <= client.ttl("jedis:1") <= 1_000


def test_jedis(single: Served, java: jvm.JavaGateway, tmp_path: Path) -> None:
    place = java.jvm.redis.clients.jedis.HostAndPort(*single.address)
    client = java.jvm.redis.clients.jedis.JedisPooled(place, trusting(java, single, tmp_path))
    use_jedis(client)
    transaction = client.multi()
    transaction.hset("jedis:hash", "field", "value")
    transaction.hget("jedis:hash", "field")
    assert list(transaction.exec()) == [1, "value"]
    pipeline = client.pipelined()
    pipeline.set("jedis:piped", "1")
    pipeline.incrBy("jedis:piped", 4)
    assert list(pipeline.syncAndReturnAll()) == ["OK", 5]
    lock = java.jvm.redis.clients.jedis.params.SetParams.setParams().nx().px(100_000)
    assert client.set("jedis:lock", "mine", lock) == "OK"
    assert client.set("jedis:lock", "other", lock) is None
    client.close()


def test_lettuce(plain: Served, java: jvm.JavaGateway) -> None:
    host, port = plain.address
    core = java.jvm.io.lettuce.core
    client = core.RedisClient.create(f"redis://{host}:{port}")
    connection = client.connect()
    sync = connection.sync()
    assert sync.set("lettuce:a", "1") == "OK"
    assert sync.incrby("lettuce:a", 4) == 5
    sync.hset("lettuce:hash", "field", "value")
    assert dict(sync.hgetall("lettuce:hash")) == {"field": "value"}
    sync.watch(as_array(java, "lettuce:a"))
    other = client.connect()
    other.sync().set("lettuce:a", "changed")
    sync.multi()
    sync.set("lettuce:a", "mine")
    assert sync.exec().wasDiscarded()
    sync.multi()
    sync.set("lettuce:a", "mine")
    sync.get("lettuce:a")
    done = sync.exec()
    assert [done.get(place) for place in range(2)] == ["OK", "mine"]
    assert sync.rename("lettuce:a", "lettuce:b") == "OK"
    assert sync.exists(as_array(java, "lettuce:a", "lettuce:b")) == 1
    # A pipeline: commands wait until they are flushed together.
    asynchronous = getattr(connection, "async")()
    connection.setAutoFlushCommands(False)
    replies = [asynchronous.incrby("lettuce:piped", 2), asynchronous.get("lettuce:piped")]
    assert not replies[0].isDone()
    connection.flushCommands()
    assert [it.get() for it in replies] == [2, "2"]
    connection.setAutoFlushCommands(True)
    lock = core.SetArgs.Builder.nx().px(100_000)
    assert sync.set("lettuce:lock", "mine", lock) == "OK"
    assert sync.set("lettuce:lock", "other", lock) is None
    client.shutdown()


def as_array(java: jvm.JavaGateway, *texts: str) -> Any:
    """Return an array of Java, for a method that takes any number of keys."""
    array = java.new_array(java.jvm.java.lang.Object, len(texts))
    for place, text in enumerate(texts):
        array[place] = text
    return array


def test_a_cluster_of_gateways_is_used_by_clients_of_clusters(
    cluster: Served, go_program: Path, java: jvm.JavaGateway
) -> None:
    nodes = [ClusterNode(*address) for address in (cluster.address, *cluster.others)]
    with RedisCluster(startup_nodes=nodes, decode_responses=True) as client:
        for number in range(200):
            assert client.set(f"cluster:{number}", number)
        assert client.mget_nonatomic("cluster:3", "cluster:199") == ["3", "199"]
        assert client.dbsize(target_nodes=RedisCluster.PRIMARIES) == 200
    assert call(go_program, "cluster", *go_words(cluster)) == GO_SAID
    place = java.jvm.redis.clients.jedis.HostAndPort(*cluster.address)
    jedis = java.jvm.redis.clients.jedis.JedisCluster(place)
    use_jedis(jedis)
    jedis.close()
    words = ["--cluster", "-n", "2000", "-c", "8", "-q", "-t", "set,get"]
    assert "rror" not in call(redis_binary("redis-benchmark"), *flags(cluster), *words)
    # A client without support for clusters gets the address of the other gateway.
    cli = call(redis_binary("redis-cli"), *flags(cluster), "GET", "foo")
    assert cli.strip().endswith("MOVED 12182 127.53.0.1:6380")
    assert call(redis_binary("redis-cli"), "-c", *flags(cluster), "GET", "foo") == "\n"
