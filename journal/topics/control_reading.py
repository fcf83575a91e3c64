"""Reading the control rows: once, continuously as they change, or after a write that proves that the read is complete.

The partition is compacted and small, so a reader starts at its beginning and reads to its high watermark. The high
watermark is asked for without read_committed, and then waited for with it: the reader waits until open transactions in
the partition have ended, also those of other writers. So it sees the newest committed epoch, although an open
transaction holds the last stable offset back.
"""

from __future__ import annotations

from collections.abc import Iterable

from journal.errors import ControlLostError, DeadlineError, RowError
from journal.kafka.ports import LOOK_MS, READ_MS, Kafka, LogRecord, Reader, Sent
from journal.process.clocks import Clock
from journal.process.commands import command
from journal.topics.control_keys import CHECK_KEY
from journal.topics.control_rows import ControlRows, decode_rows
from journal.topics.names import control_topic


class ControlWatcher:
    """The control rows as they change. One thread uses it. After an error of Kafka, close it and make another."""

    def __init__(
        self, kafka: Kafka, journal: str, clock: Clock, *, wait_ms: int = READ_MS, repairing: bool = False
    ) -> None:
        """`wait_ms` is that of `Kafka.reader`. Rows that cannot be read are an error, unless it is `repairing`."""
        self._kafka = kafka
        self._journal = journal
        self._repairing = repairing
        self._topic = control_topic(journal)
        self._clock = clock
        self._wait_ms = wait_ms
        self._reader: Reader | None = None
        self._records: dict[bytes, LogRecord] = {}
        self.rows = ControlRows()
        """The rows of the last reading."""

    def catch_up(self, timeout_s: float, *, beyond: int = -1) -> ControlRows:
        """Read the rows up to the present high watermark, and beyond an offset that is known to be written. Raises
        DeadlineError after `timeout_s`."""
        until = self._clock() + timeout_s
        unfiltered = self._kafka.reader(self._topic, committed=False, wait_ms=LOOK_MS)
        try:
            start, high_watermark = unfiltered.start_and_end(0, timeout_s)
        finally:
            unfiltered.close()
        end = max(high_watermark, beyond + 1)
        if self._reader is None:
            self._reader = self._kafka.reader(self._topic, wait_ms=self._wait_ms)
            self._reader.seek({0: start})
        while self._reader.position(0) < end:
            left = until - self._clock()
            if left <= 0:
                raise DeadlineError(
                    f"{self._topic} could not be read to offset {end} in time: a transaction before it is open, a "
                    "leader that was deposed answers, or Kafka is slow"
                )
            self._take(self._reader.poll(left))
        self.rows = self._decoded()
        return self.rows

    def poll(self, timeout_s: float) -> bool:
        """Read the rows that have come since, and wait at most `timeout_s` for the first one. True if rows have
        changed.

        Call it after `catch_up`.
        """
        assert self._reader is not None, "catch_up first"
        if not self._take(self._reader.poll(timeout_s)):
            return False
        self.rows = self._decoded()
        return True

    def _decoded(self) -> ControlRows:
        rows = decode_rows(self._topic, self._records.values())
        if self._repairing or not rows.unreadable:
            return rows
        error = next(iter(rows.unreadable.values()))
        raise RowError(
            f"{error.reason}: `{command('repair control', journal=self._journal)}` writes the rows anew",
            topic=error.topic,
            partition=error.partition,
            offset=error.offset,
        )

    def _take(self, records: Iterable[LogRecord]) -> bool:
        changed = False
        for record in records:
            if record.key is None:
                continue
            changed = True
            if record.value is None:
                self._records.pop(record.key, None)
            else:
                self._records[record.key] = record
        return changed

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def read_control(kafka: Kafka, journal: str, clock: Clock, timeout_s: float) -> ControlRows:
    """Read the control rows up to the present high watermark. Raises DeadlineError after `timeout_s`."""
    watcher = ControlWatcher(kafka, journal, clock, wait_ms=LOOK_MS)
    try:
        return watcher.catch_up(timeout_s)
    finally:
        watcher.close()


def prove_control(
    kafka: Kafka, journal: str, clock: Clock, timeout_s: float, *, repairing: bool = False
) -> ControlRows:
    """Read the control rows after a write that all replicas in sync have acknowledged.

    They contain everything that was committed before the call, because a deposed leader can neither acknowledge the
    write nor show it to a reader. Raises OperatingError, which means that nothing is proven. `repairing` is that of
    `ControlWatcher`.
    """
    producer = kafka.plain_producer()
    try:
        beyond = producer.send([Sent(control_topic(journal), 0, CHECK_KEY, None)], timeout_s)[0]
    finally:
        producer.close()
    if beyond < 0:
        raise DeadlineError(f"{control_topic(journal)}: the broker did not say at which offset it has a write")
    watcher = ControlWatcher(kafka, journal, clock, wait_ms=LOOK_MS, repairing=repairing)
    try:
        return watcher.catch_up(timeout_s, beyond=beyond)
    finally:
        watcher.close()


def control_lost(journal: str, what: str) -> ControlLostError:
    """The error for control rows that have lost acknowledged records. It names the command that mends them."""
    topic = control_topic(journal)
    return ControlLostError(
        f"{what}: the control rows have lost what was acknowledged. "
        f"`{command('repair control', journal=journal)}` writes identity and epoch anew, as the WAL and "
        "the tables have them",
        topic=topic,
        partition=0,
    )
