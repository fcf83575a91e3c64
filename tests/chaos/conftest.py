"""One cluster of three brokers for all short runs; each run has a journal of its own on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from journal.embedded.cluster import EmbeddedKafka
from tests.chaos.brokers import chaos_kafka


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """All three run when a test begins; one that a test left dead or paused would be found there by the next."""
    with chaos_kafka(tmp_path_factory.mktemp("chaos") / "kafka") as kafka:
        yield kafka
