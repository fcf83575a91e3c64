"""Where the named points are in a process: around what the product calls, which knows nothing of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType

from journal.disk import rocks
from journal.fold.rows import Change
from journal.kafka import clients
from journal.kafka.ports import Kafka, Sent, nothing
from journal.kafka.transactional_producer import KafkaTransactionalProducer
from journal.process.clocks import Clock
from journal.topics.control_reading import read_control
from journal.topics.control_rows import ControlRows
from journal.wal import fencing
from streams.reading.wal_transport import WalConsumer, WalTransport
from tests.chaos.crash_points import CrashPoints


def crash_in_activations(points: CrashPoints) -> None:
    """Those of a node that its Kafka clients see: all but "first shard gated" and "loaded"."""

    class Producer(KafkaTransactionalProducer):
        """The journal's writer: its first transaction is the markers', its second READY."""

        sent = 0

        def init(self, timeout_s: float) -> None:
            points.reached("before init")
            super().init(timeout_s)
            points.reached("after init")

        def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
            offsets = super().send(records, timeout_s)
            self.sent += 1
            if self.sent == 1:
                points.reached("marker sent")
            return offsets

        def commit_transaction(self, timeout_s: float) -> bool:
            clean = super().commit_transaction(timeout_s)
            if self.sent <= 2:
                points.reached(("marker committed", "READY")[self.sent - 1])
            return clean

    def read(kafka: Kafka, journal: str, clock: Clock, timeout_s: float) -> ControlRows:
        rows = read_control(kafka, journal, clock, timeout_s)
        points.reached("control read")
        return rows

    _put(clients, KafkaTransactionalProducer=Producer)
    _put(fencing, read_control=read)


def crash_in_checkpoints(points: CrashPoints) -> None:
    """Those of a worker, but for its group's offsets."""

    class Producer(KafkaTransactionalProducer):
        """A shard's writer of rows."""

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
            points.reached("applied")
            offset = super().send_rows(topic, partition, rows, timeout_s, beside=beside, meanwhile=meanwhile)
            points.reached("produced")
            return offset

        def commit_transaction(self, timeout_s: float) -> bool:
            ends = points.sending("commit sent")
            clean = super().commit_transaction(timeout_s)
            if ends:
                threading.Event().wait()
            points.reached("committed")
            return clean

    class Store(rocks.RocksStore):
        """A shard's local copy, as its checkpoints write it."""

        def packed(self, rows: Iterable[Change]) -> Callable[[Mapping[bytes, bytes]], None]:
            write = super().packed(rows)

            def write_and_note(named: Mapping[bytes, bytes]) -> None:
                write(named)
                points.reached("local write")

            return write_and_note

    _put(clients, KafkaTransactionalProducer=Producer)
    _put(rocks, RocksStore=Store)


def crash_in_commits(points: CrashPoints) -> None:
    """Those of a worker in its group."""

    class Consumer(WalConsumer):
        """The worker's place in its group."""

        async def force_commit(self, topics: object = None, start_new_transaction: bool = True) -> bool:
            committed = await super().force_commit(topics, start_new_transaction)
            if committed:
                points.reached("offsets")
            return committed

    WalTransport.Consumer = Consumer


def _put(module: ModuleType, **names: object) -> None:
    """What a module finds under these names from now on."""
    vars(module).update(names)
