"""One embedded Apache Kafka for the whole run; it ends with the test process, however that ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from journal.kafka.embedded import EmbeddedKafka
from tests.support.brokers import JVM_OPTIONS


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), attached=True, jvm_options=JVM_OPTIONS) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(kafka: EmbeddedKafka) -> str:
    return kafka.bootstrap_servers
