"""The control rows that a node writes while it runs: plain acknowledged writes, in a thread of their own.

A node must notice and decide whatever Kafka does, so nobody waits for these rows. Only the newest row of each key is
kept until it is written. A row that cannot be written is tried again.
"""

from __future__ import annotations

import logging
import threading

from google.protobuf.message import Message

from journal.errors import JournalError
from journal.kafka.ports import Kafka, PlainProducer, Sent
from journal.topics.names import control_topic

log = logging.getLogger(__name__)

_SEND_S = 5.0
_RETRY_S = 0.5


class NodeReporter:
    """Writes the control rows of one node. `post` never waits."""

    def __init__(self, kafka: Kafka, journal: str) -> None:
        self._kafka = kafka
        self._topic = control_topic(journal)
        self._changed = threading.Condition()
        self._pending: dict[bytes, Sent] = {}
        self._closing = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="kafka-journal-reports", daemon=True)
        self._thread.start()

    def post(self, key: bytes, row: Message | None) -> None:
        """Have a row written soon; None writes a tombstone."""
        value = None if row is None else row.SerializeToString()
        with self._changed:
            self._pending.pop(key, None)
            self._pending[key] = Sent(self._topic, 0, key, value)
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Write the rows that are left, if there is time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        producer: PlainProducer | None = None
        while (sent := self._taken()) is not None:
            try:
                producer = producer or self._kafka.plain_producer()
                producer.send(sent, _SEND_S)
                self._failing = False
            except JournalError as error:
                # warn once, because the cause usually lasts for a while
                log.log(logging.DEBUG if self._failing else logging.WARNING, "this node cannot report: %s", error)
                self._failing = True
                if producer is not None:
                    producer.close()
                    producer = None
                self._put_back(sent)
        if producer is not None:
            producer.close()

    def _taken(self) -> list[Sent] | None:
        """The rows to write now; None at the end. Rows that could not be written do not delay the end."""
        with self._changed:
            if self._failing:
                self._changed.wait_for(lambda: self._closing, _RETRY_S)
            self._changed.wait_for(lambda: self._pending or self._closing)
            if self._closing and (self._failing or not self._pending):
                return None
            sent = list(self._pending.values())
            self._pending.clear()
            return sent

    def _put_back(self, sent: list[Sent]) -> None:
        with self._changed:
            for row in sent:
                self._pending.setdefault(row.key or b"", row)
