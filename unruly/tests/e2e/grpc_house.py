"""A server of gRPC whose types are described here, and nowhere in generated code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection, reflection_pb2

HOST: Final = "127.0.0.1"
SERVICE: Final = "shop.v1.Orders"
STREAMED: Final = 5

ITEM_PROTO: Final = """
syntax = "proto3";
package shop.v1;
message Item { string name = 1; int64 count = 2; }
"""

PROTO: Final = """
syntax = "proto3";
package shop.v1;
import "item.proto";
message Order { string user = 1; Item item = 2; repeated int32 parts = 3; }
message Receipt { int32 orders = 1; }
service Orders {
  rpc Place(Order) returns (Receipt);
  rpc Watch(Order) returns (stream Receipt);
  rpc PlaceAll(stream Order) returns (Receipt);
  rpc Talk(stream Order) returns (stream Receipt);
}
"""
"""The same types as below, for clients that have the file."""

Field = descriptor_pb2.FieldDescriptorProto


def describe() -> descriptor_pool.DescriptorPool:
    """The types of the service, in two files."""
    pool = descriptor_pool.DescriptorPool()
    item = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop.v1", syntax="proto3")
    message = item.message_type.add(name="Item")
    message.field.add(name="name", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    message.field.add(name="count", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    pool.Add(item)
    orders = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop.v1", syntax="proto3", dependency=["item.proto"]
    )
    message = orders.message_type.add(name="Order")
    message.field.add(name="user", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    message.field.add(
        name="item", number=2, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL,
        type_name=".shop.v1.Item",
    )  # fmt: skip
    message.field.add(name="parts", number=3, type=Field.TYPE_INT32, label=Field.LABEL_REPEATED)
    message = orders.message_type.add(name="Receipt")
    message.field.add(name="orders", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    service = orders.service.add(name="Orders")
    for name, takes, gives in (
        ("Place", False, False),
        ("Watch", False, True),
        ("PlaceAll", True, False),
        ("Talk", True, True),
    ):
        service.method.add(
            name=name, input_type=".shop.v1.Order", output_type=".shop.v1.Receipt",
            client_streaming=takes, server_streaming=gives,
        )  # fmt: skip
    pool.Add(orders)
    return pool


@dataclass
class Shop:
    """How it answers, and what it saw.

    ``pause`` says how long it waits before a streamed message: the number of the call, that of the
    message. ``refuse`` says the status of a call, by its number.
    """

    pause: Callable[[int, int], float] = lambda *_: 0.0
    refuse: Callable[[int], grpc.StatusCode | None] = lambda _: None
    orders: list[Any] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    time_left_s: list[float] = field(default_factory=list)
    sent_ns: list[list[int]] = field(default_factory=list)
    """When each message of each streamed reply was sent, monotonic."""
    calls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, orders: list[Any], context: grpc.ServicerContext) -> int:
        """Note a call; end it where it is refused."""
        with self.lock:
            number = self.calls
            self.calls += 1
            self.orders += orders
            self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
            self.time_left_s.append(context.time_remaining() or 0.0)
            self.sent_ns.append([])
        status = self.refuse(number)
        if status is not None:
            context.abort(status, "no, for a reason")
        return number


def handlers(shop: Shop, pool: descriptor_pool.DescriptorPool) -> grpc.GenericRpcHandler:
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Order"))
    receipt = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Receipt"))

    def place(request: Any, context: grpc.ServicerContext) -> Any:
        shop.begin([request], context)
        return receipt(orders=1)

    def place_all(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        all_of_them = list(requests)
        shop.begin(all_of_them, context)
        return receipt(orders=len(all_of_them))

    def watch(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        number = shop.begin([request], context)
        for message in range(STREAMED):
            time.sleep(shop.pause(number, message))
            shop.sent_ns[number].append(time.monotonic_ns())
            yield receipt(orders=message)

    def talk(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        number = shop.begin([], context)
        for request in requests:
            shop.orders.append(request)
            shop.sent_ns[number].append(time.monotonic_ns())
            yield receipt(orders=1)

    coded = {"request_deserializer": order.FromString,
             "response_serializer": receipt.SerializeToString}  # fmt: skip
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Place": grpc.unary_unary_rpc_method_handler(place, **coded),
            "Watch": grpc.unary_stream_rpc_method_handler(watch, **coded),
            "PlaceAll": grpc.stream_unary_rpc_method_handler(place_all, **coded),
            "Talk": grpc.stream_stream_rpc_method_handler(talk, **coded),
        },
    )


def describes_itself(
    server: grpc.Server, pool: descriptor_pool.DescriptorPool, version: str
) -> None:
    """Reflection by its newer or its older name; the messages are the same."""
    servicer = reflection.ReflectionServicer((SERVICE,), pool=pool)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    name = f"grpc.reflection.{version}.ServerReflection"
    methods = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))


@contextmanager
def grpc_server(shop: Shop, version: str | None = "v1", tls: Path | None = None) -> Iterator[str]:
    """The server; yields its address. `tls` is the folder of its certificate."""
    pool = describe()
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((handlers(shop, pool),))
    if version is not None:
        describes_itself(server, pool, version)
    if tls is None:
        port = server.add_insecure_port(f"{HOST}:0")
    else:
        pair = ((tls / "key.pem").read_bytes(), (tls / "cert.pem").read_bytes())
        port = server.add_secure_port(f"{HOST}:0", grpc.ssl_server_credentials([pair]))
    server.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        server.stop(None).wait()
