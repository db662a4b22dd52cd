"""Uses libraries that keep their things in Redis, as their manuals show: NAME HOST PORT."""

from __future__ import annotations

import sys
from collections.abc import Callable

import flask
import redis
from django.conf import settings
from django.core.cache import cache
from flask_session import Session
from limits import RateLimitItemPerMinute
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter


def django(host: str, port: int) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.configure(
        CACHES={"default": {"BACKEND": backend, "LOCATION": f"redis://{host}:{port}"}}
    )

    cache.set_many({f"page:{number}": {"number": number} for number in range(50)}, timeout=1_000)
    assert cache.get_many(["page:1", "page:49", "page:x"]) == {
        "page:1": {"number": 1},
        "page:49": {"number": 49},
    }
    assert cache.add("once", 1, timeout=1_000)
    assert not cache.add("once", 2)
    assert cache.incr("once", 4) == 5
    assert cache.touch("once", 2_000)
    assert cache.get_or_set("made", lambda: "value", 1_000) == "value"
    cache.delete_many(["page:1", "page:2"])
    assert cache.has_key("page:3")
    assert not cache.has_key("page:1")
    cache.clear()
    assert cache.get("page:3") is None


def flask_session(host: str, port: int) -> None:
    app = flask.Flask("shop")
    app.config["SESSION_TYPE"] = "redis"
    app.config["SESSION_REDIS"] = redis.Redis(host, port)
    Session(app)

    @app.route("/add/<item>")
    def add(item: str) -> str:
        flask.session["cart"] = [*flask.session.get("cart", []), item]
        return ",".join(flask.session["cart"])

    @app.route("/leave")
    def leave() -> str:
        flask.session.clear()
        return "left"

    one, other = app.test_client(), app.test_client()
    assert one.get("/add/tea").text == "tea"
    assert one.get("/add/milk").text == "tea,milk"
    assert other.get("/add/bread").text == "bread"
    assert one.get("/leave").text == "left"
    assert one.get("/add/tea").text == "tea"


def limits(host: str, port: int) -> None:
    limiter = FixedWindowRateLimiter(storage_from_string(f"redis://{host}:{port}"))
    five = RateLimitItemPerMinute(5)
    assert [limiter.hit(five, "user") for _ in range(7)] == [True] * 5 + [False] * 2
    assert limiter.hit(five, "another user", cost=5)
    assert not limiter.test(five, "another user")
    with redis.Redis(host, port) as client:
        [ends] = {client.ttl(key) > 0 for key in client.scan_iter("LIMITS*")}
        assert ends


def redis_py(host: str, port: int) -> None:
    with redis.Redis(host, port, decode_responses=True) as client:
        # A pipeline is a transaction unless the program says otherwise.
        with client.pipeline() as pipeline:
            pipeline.set("pipe:a", 1).incrby("pipe:a", 4).hset("pipe:b", mapping={"x": 1, "y": 2})
            pipeline.hgetall("pipe:b").mget("pipe:a", "pipe:none")
            found = pipeline.execute()
        assert found == [True, 5, 2, {"x": "1", "y": "2"}, ["5", None]]

        def double(pipeline: redis.client.Pipeline) -> None:
            value = int(pipeline.get("pipe:a"))
            pipeline.multi()
            pipeline.set("pipe:a", 2 * value)

        assert client.transaction(double, "pipe:a") == [True]
        assert client.get("pipe:a") == "10"
        with client.lock("pipe:lock", timeout=100) as lock:
            assert lock.owned()
            assert not client.lock("pipe:lock", timeout=100).acquire(blocking=False)
        assert not client.exists("pipe:lock")


USES: dict[str, Callable[[str, int], None]] = {
    "django": django,
    "flask-session": flask_session,
    "limits": limits,
    "redis-py": redis_py,
}


if __name__ == "__main__":
    name, host, port = sys.argv[1:]
    USES[name](host, int(port))
    sys.stdout.write(f"{name}: as its manual says\n")
