"""What each client says when no broker is there, and how a node waits for one. Needs none."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.embedded.process import wait_until
from journal.errors import KafkaUnavailableError, RetriableProducerError
from journal.kafka.clients import KafkaClients
from journal.kafka.ports import Sent
from tests.support.processes.command import COMMAND, command_env

SHORT_S = 0.3
LIMIT_S = 30.0


@pytest.fixture
def nowhere() -> Iterator[KafkaClients]:
    """Clients of an address that is bound, so that nobody else takes it, and refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield KafkaClients(f"127.0.0.1:{bound.getsockname()[1]}", unavailable_after_s=0.5)


def test_an_init_may_be_called_again(nowhere: KafkaClients) -> None:
    producer = nowhere.transactional_producer("id")
    for _ in range(2):
        with pytest.raises(RetriableProducerError):
            producer.init(SHORT_S)


def test_a_plain_send_has_its_deadline(nowhere: KafkaClients) -> None:
    with pytest.raises(KafkaUnavailableError):
        nowhere.plain_producer().send([Sent("topic", 0, None, b"value")], 2 * SHORT_S)


def test_administration_is_unavailable(nowhere: KafkaClients) -> None:
    cluster = nowhere.cluster()
    with pytest.raises(KafkaUnavailableError):
        cluster.cluster_id(SHORT_S)
    with pytest.raises(KafkaUnavailableError):
        cluster.describe(["topic"], SHORT_S)
    with pytest.raises(KafkaUnavailableError):
        cluster.create("topic", 1, 1, {}, SHORT_S)
    with pytest.raises(KafkaUnavailableError):
        cluster.group_members("group", SHORT_S)
    with pytest.raises(KafkaUnavailableError):
        cluster.group_offsets("group", "topic", SHORT_S)


def test_offsets_are_unavailable(nowhere: KafkaClients) -> None:
    with pytest.raises(KafkaUnavailableError):
        nowhere.reader("topic").start_and_end(0, SHORT_S)


def test_a_reader_waits_an_outage_out_before_it_says_so(nowhere: KafkaClients) -> None:
    reader, began = nowhere.reader("topic"), time.monotonic()
    reader.seek({0: 0})
    assert reader.poll(SHORT_S) == []

    def read_for_half_a_minute() -> None:
        while time.monotonic() < began + 30.0:
            assert reader.poll(SHORT_S) == []

    with pytest.raises(KafkaUnavailableError):
        read_for_half_a_minute()
    assert time.monotonic() >= began + 0.5


def test_a_node_that_waits_for_kafka_at_its_start_ends_when_it_is_told_to(tmp_path: Path) -> None:
    env = command_env("127.0.0.1:1", "nowhere", tmp_path / "node", {"KAFKA_JOURNAL_REQUEST_TIMEOUT_MS": "1000"})
    log = tmp_path / "log"
    with log.open("wb") as out, subprocess.Popen([str(COMMAND), "node"], stdout=out, stderr=out, env=env) as node:
        try:
            assert wait_until(lambda: "is asked again" in log.read_text(), LIMIT_S), log.read_text()
            node.terminate()
            assert node.wait(LIMIT_S) == 0, log.read_text()
        finally:
            node.kill()
