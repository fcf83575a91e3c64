"""One embedded Apache Kafka for the whole run; it ends with the test process, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.kafka.embedded import EmbeddedKafka
from tests.chaos.brokers import chaos_kafka
from tests.support.brokers import JVM_OPTIONS
from tests.support.long_form import LONG


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), attached=True, jvm_options=JVM_OPTIONS) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(kafka: EmbeddedKafka) -> str:
    return kafka.bootstrap_servers


@pytest.fixture
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """What a test with a long form runs on: three brokers of its own in that form, otherwise the one of all tests."""
    if LONG:
        with chaos_kafka(tmp_path / "kafka") as three:
            yield three
    else:
        yield request.getfixturevalue("kafka")
