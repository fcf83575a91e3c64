"""A network on which every commit takes longer than one usually does, and one that loses an answer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from journal.kafka.clients import KafkaClients
from journal.kafka.ports import Sent, TransactionalProducer
from tests.support.slow_network import END_TXN, SlowNetwork

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

LIMIT_S = 30.0
DELAY_S = 0.105
"""Each way: an answer takes longer than a repetition usually waits."""


@pytest.fixture
def network(bootstrap: str) -> Iterator[SlowNetwork]:
    with SlowNetwork(bootstrap.split(",")[0]) as between:
        yield between


class Committing:
    """Transactions of one record each, with one transactional id."""

    def __init__(self, network: SlowNetwork) -> None:
        self.topic = f"slow-{uuid.uuid4().hex}"
        self._network = network
        self._kafka = KafkaClients(network.bootstrap_servers)
        with closing(self._kafka.cluster()) as cluster:
            cluster.create(self.topic, 1, 1, {}, LIMIT_S)

    def producer(self) -> TransactionalProducer:
        producer = self._kafka.transactional_producer(self.topic)
        producer.init(LIMIT_S)
        return producer

    def commit(self, producer: TransactionalProducer) -> tuple[bool, int]:
        """Whether that was one request, as the producer says, and how many the broker got."""
        before = self._network.requests[END_TXN]
        producer.send([Sent(self.topic, 0, None, b"value")], LIMIT_S)
        clean = producer.commit_transaction(LIMIT_S)
        return clean, self._network.requests[END_TXN] - before


def test_commits_that_all_take_long_are_one_request_each_and_one_that_was_repeated_is_known(
    network: SlowNetwork,
) -> None:
    committing = Committing(network)
    with closing(committing.producer()) as first:
        network.delay_s = DELAY_S
        assert committing.commit(first) == (False, 1), "nothing was known of this network"
    with closing(committing.producer()) as second:
        assert [committing.commit(second) for _ in range(3)] == [(True, 1)] * 3
        network.cut_behind[END_TXN] = 1
        assert committing.commit(second) == (False, 2)
