"""One embedded Apache Kafka for the whole run; it ends with the test processes, however they end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.embedded.cluster import EmbeddedKafka
from tests.chaos.brokers import chaos_kafka
from tests.support.brokers import JVM_OPTIONS, shared_kafka
from tests.support.long_form import LONG


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """For what leaves it running. Processes that share it find it by its directory; `tests.conftest` ends it."""
    shared = shared_kafka(request.config)
    if shared is None:
        with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), attached=True, jvm_options=JVM_OPTIONS) as running:
            yield running
    else:
        running = EmbeddedKafka(shared, jvm_options=JVM_OPTIONS)
        running.start()
        yield running


@pytest.fixture(scope="session")
def bootstrap(kafka: EmbeddedKafka) -> str:
    return kafka.bootstrap_servers


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that lets everybody do what no ACL is about, and makes the topics that clients ask for, as Kafka's
    default is."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "true",
    }
    directory = tmp_path_factory.mktemp("guarded")
    with EmbeddedKafka(directory, attached=True, jvm_options=JVM_OPTIONS, properties=properties) as running:
        yield running.bootstrap_servers


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """For what kills them: three in the long form of a test, otherwise one."""
    directory = tmp_path / "kafka"
    with chaos_kafka(directory) if LONG else EmbeddedKafka(directory, attached=True, jvm_options=JVM_OPTIONS) as own:
        yield own
