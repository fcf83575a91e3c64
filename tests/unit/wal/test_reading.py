"""Where the WAL's shards stand: their last frames, read from the ends of logs that hold more and less than that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from journal.errors import HangingTransactionError
from journal.kafka.ports import Sent, TransactionalProducer
from journal.topics.names import wal_topic
from journal.wal.reading import Tail, WalReader
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, add, frame, marker

LIMIT_S = 5.0
SHARDS = 2
WAL = wal_topic("j")


class Log:
    """A WAL of two shards on a simulated broker."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        self.broker.create_topic(WAL, SHARDS, 1, {})
        self._kafka = SimulatedKafka(self.broker)
        self._producer = self._kafka.transactional_producer("writer")
        self._producer.init(LIMIT_S)

    def open_foreign(self, shard: int) -> TransactionalProducer:
        """Somebody else's transaction, which whoever calls this may end."""
        producer = self._kafka.transactional_producer("foreign")
        producer.init(LIMIT_S)
        producer.send([Sent(WAL, shard, None, b"foreign")], LIMIT_S)
        return producer

    def write(self, shard: int, *values: bytes, commit: bool = True) -> None:
        self._producer.send([Sent(WAL, shard, None, value) for value in values], LIMIT_S)
        if commit:
            assert self._producer.commit_transaction(LIMIT_S)
        else:
            self._producer.abort_transaction(LIMIT_S)

    def trim(self, shard: int, offset: int) -> None:
        self._kafka.cluster().delete_records(WAL, {shard: offset}, LIMIT_S)

    def end(self, shard: int) -> int:
        return self._kafka.reader(WAL).start_and_end(shard, LIMIT_S)[1]

    def tails(self) -> Sequence[Tail]:
        reader = WalReader(self._kafka, "j", JOURNAL, SHARDS, self.broker.timeline.now)
        return reader.tails(LIMIT_S)


@pytest.fixture
def log() -> Log:
    found = Log()
    found.write(0, frame(1, marker(), group=1).SerializeToString())
    for number in range(2, 10):
        found.write(0, frame(number, add(number << 10), group=number + 3).SerializeToString())
    return found


def test_a_shard_without_frames_has_none(log: Log) -> None:
    assert log.tails() == [Tail(9, 12, 1, log.end(0)), Tail(0, 0, 0, 0)]


def test_what_was_aborted_at_the_end_is_passed_over(log: Log) -> None:
    for _ in range(20):
        log.write(0, b"aborted", commit=False)
    log.write(1, b"no frame")
    assert log.tails() == [Tail(9, 12, 1, log.end(0)), Tail(0, 0, 0, log.end(1))]


def test_a_log_that_was_trimmed_nearly_to_its_end_says_what_it_has(log: Log) -> None:
    log.write(1, frame(1, marker(), group=1).SerializeToString())
    log.trim(0, log.end(0) - 2)
    assert log.tails() == [Tail(9, 12, 1, log.end(0)), Tail(1, 1, 1, log.end(1))]


def test_a_log_without_a_frame_says_where_it_starts(log: Log) -> None:
    log.trim(0, log.end(0))
    assert log.tails() == [Tail(0, 0, 0, log.end(0), start=log.end(0)), Tail(0, 0, 0, 0)]


def test_what_an_open_transaction_hides_is_waited_for_and_not_passed_over(log: Log) -> None:
    foreign = log.open_foreign(0)
    log.write(0, frame(10, add(10 << 10), group=13).SerializeToString())
    with pytest.raises(HangingTransactionError, match=r"j\.wal\[0\] holds a transaction that nobody ends"):
        log.tails()
    assert foreign.commit_transaction(LIMIT_S)
    assert log.tails() == [Tail(10, 13, 1, log.end(0)), Tail(0, 0, 0, 0)]
