"""What the journal's writer tells of a dead letter that Kafka has refused: enough to find it and pass over it alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from journal.append.group import FrameNumbers, Group
from journal.append.writing import Claim
from journal.errors import FatalProducerError, NotTakenInError
from journal.kafka.ports import Consumed, Sent, nothing
from journal.process.clocks import Timing
from journal.sources.taking import refused_topic
from journal.store.model import QueueConfig
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.names import control_topic, wal_topic
from journal.v1.journal_pb2 import Epoch
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence
from journal.wal.writer import Writer
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL
from tests.unit.sources.scene import SourcesScene

CLAIM = Claim(1, "node", b"nonce")


class RefusingLetters:
    """A `TransactionalProducer` that meets errors, one after the other, when it sends."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self._errors = list(errors)

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        return True

    def init(self, timeout_s: float) -> None: ...

    def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
        raise self._errors.pop(0)

    def send_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None]],
        timeout_s: float,
        *,
        beside: Iterable[Sent] = (),
        meanwhile: Callable[[], object] = nothing,
    ) -> int:
        raise self._errors.pop(0)

    def send_offsets(self, consumed: Consumed, timeout_s: float) -> bool:
        return True

    def commit_transaction(self, timeout_s: float) -> bool:
        return True

    def abort_transaction(self, timeout_s: float) -> None: ...

    def close(self) -> None: ...


def told(*errors: Exception) -> NotTakenInError:
    """What a group that takes in is told when its producer meets these."""
    broker = SimulatedBroker(Timeline())
    for topic in (wal_topic("j"), control_topic("j")):
        broker.create_topic(topic, 1, 1, {})
    kafka = SimulatedKafka(broker)
    kafka.plain_producer().send([control_row("j", EPOCH_KEY, Epoch(epoch=1, node="node", nonce=b"nonce"))], 1.0)
    clock = itertools.count()
    timing = Timing(lambda: next(clock) * 0.001, lambda seconds: None, 1.0, 10.0, 1000.0)
    writer = Writer(
        kafka,
        WriterConfig("j", JOURNAL, 1, 0.0, 0.0, 0.0, 1 << 20),
        CLAIM,
        Fence(kafka, "j", timing),
        RefusingLetters(errors),
        FrameNumbers((0,), 0),
        [0],
        timing,
    )
    group = Group(1, 900_000, Consumed("group", {("t", 0): 1}), [Sent("dead", 0, b"k", b"v")])
    group.put_heartbeat(0)
    writer.write(group)
    assert isinstance(group.completion.error, NotTakenInError)
    return group.completion.error


def test_a_refused_letter_names_its_topic() -> None:
    refused = FatalProducerError("refused", refused_topic="dead")
    assert refused_topic(told(refused)) == "dead"


def test_an_error_that_refuses_no_letter_names_no_topic() -> None:
    assert refused_topic(told(FatalProducerError("time is over"))) == ""


def test_a_skip_of_a_record_whose_letter_is_refused_passes_over_nothing_before_it(tmp_path: Path) -> None:
    scene = SourcesScene(tmp_path)
    scene.broker.topic("t")
    scene.broker.topic("dead")
    scene.declare(QueueConfig("a", "a"))
    scene.broker.produce("t", b"1", b"2", b"\xff", b"3")
    scene.broker.refuses = lambda offsets, beside: "dead" if beside else ""
    source = {"name": "in", "topics": ["t"], "address": "a", "value": "text", "on_error": "dead-letter"}
    with scene.taking(source, dead_letter_topic="dead"):
        why = scene.wait_stopped("in")
        assert why.startswith("t[0]@2: ")
        assert why.endswith("Kafka refuses its dead letter for topic dead")
        assert scene.stops.ask("in", skip=True).skip == ("t", 0, 2)
        scene.wait_committed("t", 4)
    assert scene.bodies("a") == [b"1", b"2", b"3"]
    scene.close()
