"""Brokers of Apache Kafka on this machine, and its own tools."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from house import REPOSITORY, wait_for
from redis_house import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
JARS = REPOSITORY / "target" / "kafka"
JAVA = [
    "java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/*",
]  # fmt: skip
USER, PASSWORD = "app", "s3cr3t"
LOGIN = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
)


@dataclass
class Broker:
    """A broker that runs: its number, and where its listeners are."""

    number: int
    place: str
    """Without TLS and login."""
    secure: str
    """By TLS and with a login."""
    process: subprocess.Popen[bytes]

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def tool(name: str, *words: str) -> str:
    """What one of Kafka's own tools prints."""
    done = subprocess.run(
        [*JAVA, name, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def create(broker: Broker, topic: str, partitions: int, replicas: int = 1) -> None:
    tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.place, "--create",
        "--topic", topic, "--partitions", str(partitions), "--replication-factor", str(replicas),
    )  # fmt: skip


def records(broker: Broker, topic: str, count: int) -> list[str]:
    """The values of a number of records, read by Kafka's own consumer."""
    said = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.place,
        "--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000",
    )  # fmt: skip
    return said.splitlines()


@contextmanager
def brokers(folder: Path, count: int = 1, pem: Path | None = None) -> Iterator[list[Broker]]:
    """A cluster, whose first broker is also its controller.

    ``pem`` has the key and the certificate of the listeners by TLS.
    """
    if not JARS.exists():
        if os.environ.get("CI") == "true":
            pytest.fail("Kafka is not installed, and under CI nothing may be skipped")
        pytest.skip("Kafka is not installed; hint: make kafka")
    controller = free_port(HOST)
    with ExitStack() as stack:
        yield [
            stack.enter_context(_broker(folder / f"kafka-{it}", it, controller, pem))
            for it in range(1, count + 1)
        ]


@contextmanager
def _broker(folder: Path, number: int, controller: int, pem: Path | None) -> Iterator[Broker]:
    folder.mkdir()
    port, secure = free_port(HOST), free_port(HOST)
    listeners = [f"PLAINTEXT://{HOST}:{port}"]
    roles = "broker"
    if number == 1:
        roles = "broker,controller"
        listeners.append(f"CONTROLLER://{HOST}:{controller}")
    lines = [
        f"process.roles={roles}",
        f"node.id={number}",
        f"controller.quorum.voters=1@{HOST}:{controller}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        f"log.dirs={folder}/data",
        "auto.create.topics.enable=false",
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=1",
        "group.initial.rebalance.delay.ms=0",
        "broker.session.timeout.ms=6000",
    ]
    advertised = [listeners[0]]
    if pem is not None:
        listeners.append(f"SASL_SSL://{HOST}:{secure}")
        advertised.append(listeners[-1])
        lines += [
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={pem}",
            "sasl.enabled.mechanisms=PLAIN",
            f"listener.name.sasl_ssl.plain.sasl.jaas.config={LOGIN}",
        ]
    lines += [f"listeners={','.join(listeners)}", f"advertised.listeners={','.join(advertised)}"]
    properties = folder / "server.properties"
    properties.write_text("\n".join(lines) + "\n")
    tool("kafka.tools.StorageTool", "format", "-t", "unrulyAAAAAAAAAAAAAAAA", "-c", str(properties))
    log = folder / "broker.log"
    with log.open("wb") as out:
        words = [*JAVA, "kafka.Kafka", str(properties)]
        process = subprocess.Popen(words, stdout=out, stderr=out, cwd=folder)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as asking:
            return asking.connect_ex((HOST, port)) == 0

    try:
        wait_for(answers, "a broker of Kafka", 120)
        yield Broker(number, f"{HOST}:{port}", f"{HOST}:{secure}", process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
