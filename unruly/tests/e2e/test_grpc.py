"""Methods of gRPC: a row each, a span for each message of a streamed reply."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_house import ITEM_PROTO, PROTO, STREAMED, Shop, grpc_server
from house import call
from http_house import certificate, nginx, server
from test_https import drive, refused, statuses
from test_openai import spans

if TYPE_CHECKING:
    from pathlib import Path

    from http_house import Connection


def body(folder: Path, text: str) -> list[str]:
    (folder / "order.json").write_text(text)
    return ["--body", str(folder / "order.json")]


@pytest.mark.smoke
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_a_method_is_called_with_the_types_that_the_server_describes(
    tmp_path: Path, version: str
) -> None:
    shop = Shop()
    order = '{"user": "ann", "item": {"name": "tea", "count": "7"}, "parts": [1, 2]}'
    with grpc_server(shop, version) as place:
        url = f"grpc://{place}/shop.v1.Orders/Place"
        run = drive(tmp_path, url, "-n", "300", "-c", "4", *body(tmp_path, order))
    assert statuses(run) == {("ok", None): 300}
    assert run.rows("select distinct op from requests") == [("Place",)]
    assert len(shop.orders) == 300
    assert {(it.user, it.item.name, it.item.count, tuple(it.parts)) for it in shop.orders} == {
        ("ann", "tea", 7, (1, 2))
    }
    assert "Place" in run.manifest["target"]


def test_a_proto_file_is_enough_and_is_taken_with_its_imports(tmp_path: Path) -> None:
    """The server describes nothing; the file stands in another folder than the user."""
    folder = tmp_path / "proto"
    folder.mkdir()
    (folder / "orders.proto").write_text(PROTO)
    (folder / "item.proto").write_text(ITEM_PROTO)
    shop = Shop()
    order = body(tmp_path, '{"item": {"count": 9}}')
    with grpc_server(shop, None) as place:
        url = f"grpc://{place}/shop.v1.Orders/Place"
        run = drive(tmp_path, url, "-n", "50", "--proto", folder / "orders.proto", *order)
        bare = refused(tmp_path, url)
    assert statuses(run) == {("ok", None): 50}
    assert {it.item.count for it in shop.orders} == {9}
    assert "it has no reflection" in bare
    assert "--proto" in bare


def test_the_messages_of_a_streamed_reply_are_those_of_the_server(tmp_path: Path) -> None:
    """Every third reply stalls before its fourth message."""
    stall_s = 0.2

    def pause(number: int, message: int) -> float:
        return stall_s if message == 3 and number % 3 == 0 else 0.005

    shop = Shop(pause=pause)
    with grpc_server(shop) as place:
        run = drive(tmp_path, f"grpc://{place}/shop.v1.Orders/Watch", "-n", "60", "-c", "2")
    assert statuses(run) == {("ok", None): 60}
    truth = sorted(later - at for own in shop.sent_ns for at, later in pairwise(own))
    gaps = spans(run, "message")
    assert len(gaps) == len(truth) == 60 * (STREAMED - 1)
    assert sum(gaps) == pytest.approx(sum(truth), rel=0.02)
    assert sum(gap > stall_s * 0.5e9 for gap in gaps) == 20
    assert len(spans(run, "first message")) == 60
    layers = {it["layer"]: it["n"] for it in run.verdict()["parts"]["layers"]}
    assert (layers["first message"], layers["message"]) == (60, 60 * (STREAMED - 1))


def test_a_request_of_several_messages_is_an_array(tmp_path: Path) -> None:
    shop = Shop()
    orders = body(tmp_path, '[{"user": "ann"}, {"user": "bob"}, {"user": "{sequence}"}]')
    with grpc_server(shop) as place:
        run = drive(tmp_path, f"grpc://{place}/shop.v1.Orders/PlaceAll", "-n", "20", *orders)
        talk = drive(tmp_path, f"grpc://{place}/shop.v1.Orders/Talk", "-n", "20", *orders)
    assert statuses(run) == statuses(talk) == {("ok", None): 20}
    users = [it.user for it in shop.orders[:60]]
    assert users[0::3] == ["ann"] * 20
    assert users[2::3] == [str(number) for number in range(1, 21)]
    assert len(spans(talk, "message")) == 40


def test_values_of_a_data_file_stand_in_the_message_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text('user,count\n"say ""hi""",7\nbob,9\n')
    shop = Shop()
    order = body(tmp_path, '{"user": "{data.user}", "item": {"count": {data.count}}}')
    with grpc_server(shop) as place:
        url = f"grpc://{place}/shop.v1.Orders/Place"
        drive(tmp_path, url, "-n", "4", "--data", tmp_path / "users.csv", *order)
    assert [(it.user, it.item.count) for it in shop.orders] == [('say "hi"', 7), ("bob", 9)] * 2


def test_metadata_a_token_and_the_deadline_go_with_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRULY_PASSWORD", "s3cr3t")
    certificate(tmp_path)
    shop = Shop()
    trust = ["--ca-cert", str(tmp_path / "cert.pem")]
    flags = ["--auth", "bearer", "-H", "X-Tenant: seven", "--timeout", "1500ms"]
    with grpc_server(shop, tls=tmp_path) as place:
        url = f"grpcs://{place}/shop.v1.Orders/Place"
        run = drive(tmp_path, url, "-n", "20", *trust, *flags)
        stranger = refused(tmp_path, url)
    assert statuses(run) == {("ok", None): 20}
    assert {it["x-tenant"] for it in shop.metadata} == {"seven"}
    assert {it["authorization"] for it in shop.metadata} == {"Bearer s3cr3t"}
    assert all(0 < left <= 1.5 for left in shop.time_left_s)
    assert "its certificate is not accepted" in stranger
    assert all(b"s3cr3t" not in it.read_bytes() for it in run.path.rglob("*") if it.is_file())


def test_a_status_that_is_not_expected_is_a_failure_with_its_name(tmp_path: Path) -> None:
    def refuse(number: int) -> grpc.StatusCode | None:
        return {0: grpc.StatusCode.UNAVAILABLE, 5: grpc.StatusCode.NOT_FOUND}.get(number % 10)

    with grpc_server(Shop(refuse=refuse)) as place:
        url = f"grpc://{place}/shop.v1.Orders/Place"
        run = drive(tmp_path, url, "-n", "100")
        meant = drive(tmp_path, url, "-n", "100", "--expect", "OK, not_found")
    assert statuses(run) == {
        ("ok", None): 80, ("error:UNAVAILABLE", 14): 10, ("error:NOT_FOUND", 5): 10,
    }  # fmt: skip
    assert statuses(meant) == {
        ("ok", None): 80, ("ok", 5): 10, ("error:UNAVAILABLE", 14): 10,
    }  # fmt: skip
    told = run.rows("select detail from events where kind = 'complaint'")
    assert any("UNAVAILABLE: no, for a reason" in detail for (detail,) in told), told
    worked = run.verdict()["worked"]
    assert worked["failed"] == 20
    assert "UNAVAILABLE" in worked["sentence"]


def test_a_proxy_that_answers_for_the_server_is_a_failure_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "item.proto").write_text(ITEM_PROTO)
    (tmp_path / "orders.proto").write_text(PROTO)
    with nginx(tmp_path, "location / { return 503; }", http2=True) as url:
        words = [url.replace("http:", "grpc:") + "/shop.v1.Orders/Place", "-n", "20"]
        run = drive(tmp_path, *words, "--proto", tmp_path / "orders.proto")
    assert statuses(run) == {("error:503", 503): 20}


@pytest.mark.parametrize(
    ("path", "flags", "said"),
    [
        ("", [], "its path names no service; wanted one of shop.v1.Orders"),
        ("/shop.v1.Order/Place", [], 'no service "shop.v1.Order"; wanted one of shop.v1.Orders'),
        ("/shop.v1.Orders", [], "wanted one of Place, Watch, PlaceAll, Talk"),
        ("/shop.v1.Orders/Plaec", [], 'shop.v1.Orders has no method "Plaec"'),
        ("/shop.v1.Orders/Place", ["--body", "wrong.json"], "unrecognized field name 'usr'"),
        ("/shop.v1.Orders/Place", ["--body", "cut.json"], "the message is wrong: EOF"),
        ("/shop.v1.Orders/Place", ["--body", "two.json"], "the message is wrong: "),
        ("/shop.v1.Orders/Place", ["--proto", "none.proto"], "none.proto is no file"),
        ("/shop.v1.Orders/Place", ["--proto", "wrong.proto"], "wrong.proto"),
        ("/shop.v1.Orders/Place", ["--proto", "other.proto"], "other.proto has no service"),
        ("/shop.v1.Orders/Place", ["-X", "GET"], "the URL names the method that is called"),
        ("/shop.v1.Orders/Place", ["--http2"], "--http2: "),
        ("/shop.v1.Orders/Place", ["--expect", "200"], "status codes of gRPC"),
        ("/shop.v1.Orders/Place", ["--expect", "OKAY"], "OKAY is no status of gRPC"),
        ("/shop.v1.Orders/Place", ["-H", "TE: x"], "must not set te"),
        ("/{key}/Place", [], "must have no {key}"),
    ],
)
def test_what_cannot_be_called_is_an_error_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, flags: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.json").write_text('{"usr": "ann"}')
    (tmp_path / "cut.json").write_text('{"user": ')
    (tmp_path / "two.json").write_text('[{"user": "ann"}]')
    (tmp_path / "wrong.proto").write_text("message Order { string user = ; }")
    (tmp_path / "other.proto").write_text(ITEM_PROTO)
    with grpc_server(Shop()) as place:
        assert said in refused(tmp_path, f"grpc://{place}{path}", *flags)
    assert not (tmp_path / "none").exists()


def test_a_server_that_is_none_is_named_before_the_run(tmp_path: Path) -> None:
    nobody = refused(tmp_path, "grpc://127.0.0.1:1/shop.v1.Orders/Place")
    assert "nothing listens there" in nobody

    def old(connection: Connection) -> None:
        connection.request()
        connection.reply("what?", "HTTP/1.1 400 Bad Request")

    with server(old) as url:
        said = refused(tmp_path, url.replace("http:", "grpc:") + "/shop.v1.Orders/Place")
    assert "HTTP/2: " in said
    assert not (tmp_path / "none").exists()


def test_a_proto_file_is_of_grpc_alone(tmp_path: Path) -> None:
    said = refused(tmp_path, "http://127.0.0.1:1/", "--proto", "orders.proto")
    assert "only a grpc:// URL has it" in said


def test_the_list_of_targets_explains_grpc() -> None:
    said = call("targets", "grpc")
    assert said.returncode == 0
    assert "grpc://host[:50051]/package.Service/Method" in said.stdout
