"""A Kafka cluster in containers, made with testcontainers.

KAFKA_JOURNAL_TEST_IMAGE names the image: any whose configuration is KAFKA_A_B=value for the property a.b, as it is of
apache/kafka, the default. Where that one cannot be pulled, the image that `deploy/kafka/build` makes serves as well.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import requests
from docker.errors import APIError, DockerException, ImageNotFound  # type: ignore[import-untyped]
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.network import Network

from journal.embedded.config import own_properties
from journal.embedded.distribution import KAFKA_VERSION
from journal.embedded.ports import choose_free_ports
from journal.embedded.ready import answering_brokers
from journal.embedded.storage import new_cluster_id
from tests.support.brokers import JVM_OPTIONS

IMAGE_VARIABLE = "KAFKA_JOURNAL_TEST_IMAGE"
DEFAULT_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
BUILT_IMAGE = f"kafka-journal/kafka:{KAFKA_VERSION}"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60
LAST_LINES = 20

CALM_PROPERTIES = {
    "controller.quorum.election.timeout.ms": "3000",
    "controller.quorum.fetch.timeout.ms": "6000",
    "broker.session.timeout.ms": "9000",
    "initial.broker.registration.timeout.ms": "240000",
}
"""A busy machine is not taken for dead brokers: three JVMs that start at once on two cores elect nobody in 500 ms."""

OUTSIDE, INSIDE, CONTROLLER = 9092, 9093, 9094
"""The ports in a container: for the tests, for the other brokers, for the quorum. Each has a listener of its name."""


class NoContainersError(Exception):
    """There is no engine or no image; the text says which, and why."""


def find_image() -> str:
    """The image to run. Raises NoContainersError."""
    try:
        client = DockerClient().client
        client.ping()
    except (DockerException, requests.RequestException) as error:
        raise NoContainersError(f"no Docker engine answers: {error}") from error
    named = os.environ.get(IMAGE_VARIABLE)
    image = named or DEFAULT_IMAGE
    try:
        if not _is_there(client, image):
            client.images.pull(image)
    except (APIError, requests.RequestException) as error:
        if named or not _is_there(client, BUILT_IMAGE):
            raise NoContainersError(f"the Docker engine has no {image} and cannot pull it: {error}") from error
        image = BUILT_IMAGE
    return image


def _is_there(client: Any, image: str) -> bool:
    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    return True


class ContainerKafka:
    """Brokers that are controllers too, in a network of their own; they end with the `with` around them.

    Each has a port of the engine's host for its life, so that it is found again when it was killed and started.
    """

    def __init__(self, image: str, brokers: int) -> None:
        self._host = _engine_host()
        self._ports = dict(enumerate(choose_free_ports(brokers, ()), start=1))
        self._network = Network()
        cluster = new_cluster_id()
        self._containers = {broker: self._container(image, cluster, broker) for broker in self._ports}
        self._stack = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self._address, self._ports))

    def start(self) -> None:
        """Starts those that do not run, and waits until all answer."""
        for broker, container in self._containers.items():
            if self.broker_pid(broker) is None:
                container.get_wrapped_container().start()
        self._wait_until_answering(*self._containers)

    def broker_pid(self, broker: int) -> int | None:
        """Its process as the engine's machine knows it, while there is one."""
        container = self._containers[broker].get_wrapped_container()
        container.reload()
        return container.attrs["State"]["Pid"] or None

    def start_broker(self, broker: int) -> None:
        """Starts it, unless it runs, with what it had on its disk, and waits until it answers."""
        if self.broker_pid(broker) is None:
            self._containers[broker].get_wrapped_container().start()
        self._wait_until_answering(broker)

    def stop_broker(self, broker: int) -> None:
        """A clean stop; nothing if it does not run."""
        self._containers[broker].get_wrapped_container().stop(timeout=STOP_TIMEOUT_S)

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        container = self._containers[broker].get_wrapped_container()
        container.kill()
        container.wait()

    def __enter__(self) -> ContainerKafka:
        with self._stack as stack:
            # whoever has no image but the built one cannot pull the reaper's either
            if self._containers[1].image == BUILT_IMAGE:
                testcontainers_config.ryuk_disabled = True
            stack.enter_context(self._network)
            for container in self._containers.values():
                stack.enter_context(container)
            self._wait_until_answering(*self._containers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _container(self, image: str, cluster: str, broker: int) -> DockerContainer:
        container = DockerContainer(image).with_network(self._network).with_network_aliases(_name(broker))
        container.with_bind_ports(OUTSIDE, self._ports[broker])
        container.with_envs(CLUSTER_ID=cluster, KAFKA_HEAP_OPTS="-Xms256m -Xmx512m", KAFKA_OPTS=" ".join(JVM_OPTIONS))
        listeners = {"OUTSIDE": OUTSIDE, "INSIDE": INSIDE, "CONTROLLER": CONTROLLER}
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(broker),
            "listeners": ",".join(f"{name}://:{port}" for name, port in listeners.items()),
            "advertised.listeners": f"OUTSIDE://{self._address(broker)},INSIDE://{_name(broker)}:{INSIDE}",
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            "inter.broker.listener.name": "INSIDE",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{each}@{_name(each)}:{CONTROLLER}" for each in self._ports),
            **own_properties(len(self._ports)),
            **CALM_PROPERTIES,
        }
        for name, value in properties.items():
            container.with_env("KAFKA_" + name.replace(".", "_").upper(), value)
        return container

    def _address(self, broker: int) -> str:
        return f"{self._host}:{self._ports[broker]}"

    def _wait_until_answering(self, *brokers: int) -> None:
        answering = answering_brokers({broker: self._address(broker) for broker in brokers}, START_TIMEOUT_S)
        for broker in set(brokers) - answering:
            said = b"".join(self._containers[broker].get_logs()).decode(errors="replace").splitlines()
            raise AssertionError("\n".join([f"broker {broker} does not answer; it said last:", *said[-LAST_LINES:]]))


def _name(broker: int) -> str:
    return f"kafka-{broker}"


def _engine_host() -> str:
    """By its address, as `localhost` has two and published ports may listen on one."""
    host = DockerClient().host()
    return "127.0.0.1" if host == "localhost" else host
