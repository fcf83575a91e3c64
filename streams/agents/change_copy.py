"""An `on_change` agent's copy of a shard, which is brought to the agent's position, and the checks that it fits.

The agent's memory, in Kafka, holds its position. A copy that does not fit is built anew up to that position. If the
table does not continue from there, the agent begins anew with all rows.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass

from journal.disk.ports import LocalStore
from journal.errors import RowError
from journal.kafka.ports import Kafka, LogRecord, Reader
from journal.load.loading import require_counted
from journal.process.clocks import Clock
from journal.table.age import NO_EPOCH, CopyPlace, CutOffError, TableAge, note_checkpoint, place_behind, stored_place
from journal.topics.marks import FoundMark, MarkReader, records_between
from journal.topics.names import memory_topic, table_topic
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import mark_key
from journal.wire.rows import mark_name
from streams.agents.change_memory import AgentPosition, Remembered, read_memory
from streams.agents.changes import STATE_PREFIX

log = logging.getLogger(__name__)

_NUMBER = struct.Struct(">q")
_NOWHERE = CopyPlace(0, 0)
_DIRECT_ROWS = 5000


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """The settings that all sessions of agents share. Times are seconds, or ms if the name says so; sizes are bytes."""

    journal: str
    table_identity: bytes
    """The identity of the table, which differs for another cluster, topic or journal."""
    memory_identity: str
    request_timeout_s: float
    delete_retention_ms: int
    min_compaction_lag_ms: int
    held_bytes_max: int


class AgentCopy:
    """An agent's copy of one shard. One thread uses it. The store stays open, because its owner closes it."""

    def __init__(
        self,
        agent: str,
        shard: int,
        config: ChangeConfig,
        kafka: Kafka,
        store: LocalStore,
        *,
        clock: Clock,
        wall_ms: Clock,
    ) -> None:
        self._agent = agent
        self._shard = shard
        self._config = config
        self._kafka = kafka
        self._store = store
        self._clock = clock
        self._topic = table_topic(config.journal)
        self._memory = memory_topic(config.journal, agent)
        self._identity = config.table_identity + b"/" + config.memory_identity.encode()
        self.reader: Reader = kafka.reader(self._topic)
        self.age = TableAge(
            clock,
            wall_ms,
            delete_retention_ms=config.delete_retention_ms,
            min_compaction_lag_ms=config.min_compaction_lag_ms,
        )
        self.since = self.age.opening(0)
        self.memory_end = 0
        self.place, self.name, self.mark = _NOWHERE, 0, Mark(shard=shard, offset=-1)
        """The agent's position: the place behind the last mark that the agent was told, the name that the next mark
        must give as its predecessor, and the last mark itself."""
        self.first = False
        """Whether the agent must be told all rows, because it knows nothing of the table or must forget all."""
        self.old_known = True

    def open(self) -> None:
        """Read the agent's memory, and bring the copy to the agent's position. Raises OperatingError,
        CorruptionError."""
        start, _ = self.reader.start_and_end(self._shard, self._config.request_timeout_s)
        newest = self.newest_mark()
        self.since = self.age.opening(newest.end)
        if not self._is_usable(start, newest.end):
            self._clear()
        position = self._remember()
        if position is None:
            self._build()
        else:
            try:
                self._require_fit(position, start, newest)
            except CutOffError as error:
                self._log(error)
                self._build()
            else:
                self._catch_up(position, start)
        self._seek()

    def begin_anew(self, why: Exception) -> None:
        """Begin anew at the newest mark, because the table does not continue from the agent's position."""
        self._log(why)
        self._build()
        self._seek()

    def _log(self, why: Exception) -> None:
        log.warning("agent %s, shard %d begins anew: %s", self._agent, self._shard, why)

    def is_at_end(self) -> bool:
        """Whether the table has no rows behind the copy now. A difference of one offset is the end of a transaction."""
        _, end = self.reader.start_and_end(self._shard, self._config.request_timeout_s)
        return end - self.place.position <= 1

    def named(self, place: CopyPlace) -> dict[bytes, bytes]:
        """The named values that are stored with the rows up to this place."""
        return note_checkpoint(self._shard, *place) | {b"memory": _NUMBER.pack(self.memory_end)}

    def key_of(self, record: LogRecord) -> bytes:
        if record.key is None:
            raise self.row_error(record, "a row without a key")
        return record.key

    def row_error(self, record: LogRecord, reason: str) -> RowError:
        return RowError(reason, topic=self._topic, partition=record.partition, offset=record.offset)

    def close(self) -> None:
        self.reader.close()

    # ---- the agent's position ----------------------------------------------------------------------------------------

    def _seek(self) -> None:
        epoch = self.place.leader_epoch
        epochs = {} if epoch == NO_EPOCH else {self._shard: epoch}
        self.reader.seek({self._shard: self.place.position}, epochs)

    def _is_usable(self, start: int, end: int) -> bool:
        """Whether the copy can be used again. A copy that was away for too long may hold rows that were deleted."""
        place = stored_place(self._store, self._shard)
        if self._store.named(b"identity") != self._identity or place is None:
            return False
        return start <= place.position <= end and not self._is_too_old(place, end)

    def _is_too_old(self, place: CopyPlace, end: int) -> bool:
        """Whether rows in the copy may have been deleted by tombstones that the cleaner has dropped since. A difference
        of one offset is the end of a transaction."""
        return end - place.position > 1 and place.stood_ms > 0 and self.age.may_lack_tombstones(place.stood_ms)

    def _require_fit(self, position: AgentPosition, start: int, newest: FoundMark) -> None:
        """Check a position. Raises CutOffError if the table does not continue from it."""
        offset, end = position.place.position, newest.end
        if not start <= offset <= end:
            raise CutOffError(f"it was told up to {offset}, and the table has {start} to {end}")
        if newest.place < offset and newest.name != position.mark:
            raise CutOffError(f"the mark before {offset} is not there any more")
        if self._is_too_old(position.place, end):
            raise CutOffError("it was away for longer than tombstones are kept")

    def _number(self, name: bytes) -> int | None:
        value = self._store.named(name)
        return None if value is None else int(_NUMBER.unpack(value)[0])

    def _clear(self) -> None:
        self._store.clear()
        self._store.write((), {b"identity": self._identity})

    def _remember(self) -> AgentPosition | None:
        """Apply the part of the memory that the copy lacks; returns the newest position. None if there is none."""
        since, mine = self._number(b"memory"), stored_place(self._store, self._shard)
        if mine is None or since is None:
            since = -1
        found = self._read_memory(since)
        position = found.position
        if mine is not None and position is not None and position.place.position < mine.position:
            self._clear()  # another process went on from an older position than the copy has
            found = self._read_memory(-1)
            position = found.position
        if mine is not None and position is None:
            position = AgentPosition(mine, self._config.table_identity.hex(), self._stored_mark()[1])
        if position is not None and position.table != self._config.table_identity.hex():
            what = f"{self._memory}[{self._shard}] is the memory of an agent of another journal: delete that topic"
            raise RowError(what, topic=self._memory, partition=self._shard)
        rows = [(STATE_PREFIX + key, value) for key, value in found.state.items()]
        self._store.write(rows, {}, durable=False)
        self.memory_end = found.end
        return position

    def _stored_mark(self) -> tuple[Mark, int]:
        """The copy's mark, and the name that the next mark must give as its predecessor."""
        row = self._store.get(mark_key(self._shard))
        return (Mark(shard=self._shard, offset=-1), 0) if row is None else (Mark.FromString(row), mark_name(row))

    def _read_memory(self, since: int) -> Remembered:
        return read_memory(
            self._kafka,
            self._memory,
            self._shard,
            since,
            clock=self._clock,
            timeout_s=self._config.request_timeout_s,
        )

    def _build(self) -> None:
        """Build a copy up to the newest mark, from which the agent begins anew. The agent's old state is deleted with
        its first call."""
        state = dict(self._store.scan(STATE_PREFIX))
        self._clear()
        self._store.write(state.items(), {}, durable=False)
        self.place = _NOWHERE
        while True:
            began = self.age.clocks()
            newest = self.newest_mark()
            last = self._copy_up_to(self.place.position, newest.place + 1)
            if last is not None:
                self.place = place_behind(last)
            if not self.age.is_long_since(began):
                break
        self.mark, self.name = self._stored_mark()
        require_counted(self._store, {self._shard: self.mark})
        self.first = self.old_known = True

    def newest_mark(self) -> FoundMark:
        marks = MarkReader(self._kafka, self._topic, self._clock)
        try:
            found = marks.newest(self._shard, self._config.request_timeout_s)
        finally:
            marks.close()
        self.age.see(found.timestamp)
        return found

    def _catch_up(self, position: AgentPosition, start: int) -> None:
        """Bring the copy to the agent's position, and no further."""
        mine = stored_place(self._store, self._shard)
        self.place, self.name = position.place, position.mark
        self.old_known = mine is not None and mine.position == self.place.position
        self._copy_up_to(start if mine is None else mine.position, self.place.position)
        self.mark = self._stored_mark()[0]
        self._store.write((), self.named(self.place))

    def _copy_up_to(self, start: int, end: int) -> LogRecord | None:
        """Read the rows before `end` into the copy without telling the agent; returns the last one."""
        reader, shard = self.reader, self._shard
        start = max(start, reader.start_and_end(shard, self._config.request_timeout_s)[0])
        rows: list[tuple[bytes, bytes | None]] = []
        records = records_between(
            reader,
            shard,
            start,
            end,
            clock=self._clock,
            stall_s=self._config.request_timeout_s,
            name=f"{self._topic}[{shard}]",
        )
        record: LogRecord | None = None
        for record in records:
            rows.append((self.key_of(record), record.value))
            if len(rows) >= _DIRECT_ROWS:
                self._store.write(rows, {}, durable=False)
                rows.clear()
        self._store.write(rows, {}, durable=False)
        self._store.flush()
        return record
