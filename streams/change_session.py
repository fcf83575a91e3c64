"""One `on_change` agent in one shard, from taking it over to losing it: its copy, its position, its transactions.

Taking over initialises the shard's transactional id, which fences whoever had it; then the agent's memory says where it
stands, and the local copy is brought there and no further. From there on rows are held back until their mark, the agent
is told, and what it gives, its state and the position behind the mark are one Kafka transaction, then one local batch.

In a compacted topic marks that are older than min.compaction.lag may have lost rows before them; so an agent that was
away for so long is told all of that time as one change, up to the mark that was then the newest, once its rows are as
many as that mark says. Any other mark must name the one that the agent was told up to. Where the table does not go on
like that (it has lost what Kafka had acknowledged, or tombstones that the copy has not seen), the agent begins anew.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from journal.errors import CountError, DeadlineError, GapError, OperatingError, RowError
from journal.kafka.control import memory_topic, table_topic
from journal.kafka.marks import FoundMark, MarkReader, mark_of, records_between
from journal.kafka.ports import Clock, Kafka, LogRecord, Reader, Sent, TransactionalProducer
from journal.loading import require_counted
from journal.local.ports import LocalStore
from journal.table_age import NO_EPOCH, CutOffError, Place, TableAge, note_checkpoint, place_behind, stored_place
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import RowType, mark_key, row_type
from journal.wire.rows import mark_name
from streams.agents import Agent, AgentCalls
from streams.change_memory import (
    AgentPosition,
    Remembered,
    agent_id,
    position_record,
    read_memory,
    state_records,
)
from streams.changes import STATE_PREFIX, AgentState, Changes, Overlaid

log = logging.getLogger(__name__)

_NUMBER = struct.Struct(">q")
_NOWHERE = Place(0, 0)
_DIRECT_ROWS = 5000
_POSITION_EVERY_S = 1.0
"""What changes nothing is told without a transaction: the position goes to Kafka with the next one, or after this."""
_POSITION_AGAIN_SHARE = 20
"""A position that stays where it is is written again this often in the time that tombstones are kept."""
_POLL_S = 0.25


class ReopenError(OperatingError):
    """Raised when what is known of a session is not to be trusted any more: take over anew, at once."""


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """What an agent's sessions share. Times are seconds or, where named so, ms; sizes bytes."""

    journal: str
    table_identity: bytes
    """Differs for another cluster, topic or journal."""
    memory_identity: str
    request_timeout_s: float
    delete_retention_ms: int
    min_compaction_lag_ms: int
    held_bytes_max: int


class ChangeSession:
    """Owned by one thread."""

    def __init__(
        self,
        agent: Agent,
        shard: int,
        config: ChangeConfig,
        kafka: Kafka,
        store: LocalStore,
        calls: AgentCalls,
        *,
        clock: Clock,
        wall_ms: Clock,
    ) -> None:
        self._agent = agent
        self._shard = shard
        self._config = config
        self._kafka = kafka
        self._store = store
        self._calls = calls
        self._clock = clock
        self._wall_ms = wall_ms
        self._topic = table_topic(config.journal)
        self._memory = memory_topic(config.journal, agent.name)
        self._identity = config.table_identity + b"/" + config.memory_identity.encode()
        self._age = TableAge(
            clock,
            wall_ms,
            delete_retention_ms=config.delete_retention_ms,
            min_compaction_lag_ms=config.min_compaction_lag_ms,
        )
        self._since = self._age.opening(0)
        self._old_ms = 0.0
        """Rows of before may have been compacted when the last poll read them."""
        self._producer: TransactionalProducer | None = None
        self._reader: Reader | None = None
        self._memory_end = 0
        self._place, self._name, self._mark = _NOWHERE, 0, Mark(shard=shard, offset=-1)
        """What the agent was told up to: where that is, and the mark before it, with what the next one calls it."""
        self._first = False
        self._old_known = True
        self._late_end = 0
        """Marks before it, in a part of the topic that may have been compacted, are none."""
        self._held: dict[bytes, bytes | None] = {}
        self._held_bytes = 0
        self._sent_at = 0.0
        self._told_at = 0.0
        self.told = 0
        """Checkpoints; for metrics."""

    # ---- taking over -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Fence, remember, and bring the copy to where the agent stands. Raises OperatingError, CorruptionError."""
        config = self._config
        self._producer = self._kafka.transactional_producer(agent_id(config.journal, self._agent.name, self._shard))
        self._producer.init(config.request_timeout_s)
        self._reader = self._kafka.reader(self._topic)
        start, _ = self._reader.start_and_end(self._shard, config.request_timeout_s)
        newest = self._newest_mark()
        self._since = self._age.opening(newest.end)
        if not self._is_usable(start, newest.end):
            self._clear()
        position = self._remember()
        try:
            if position is None:
                self._begin_anew()
            else:
                self._require_fit(position, start, newest)
                self._catch_up(position, start)
        except CutOffError as error:
            self._cut_off(error)
        self._sent_at = self._told_at = self._clock()
        self._seek()

    def _seek(self) -> None:
        epoch = self._place.leader_epoch
        epochs = {} if epoch == NO_EPOCH else {self._shard: epoch}
        self._require_reader().seek({self._shard: self._place.position}, epochs)

    def _is_usable(self, start: int, end: int) -> bool:
        """Whether the copy can be gone on with: one that was away for too long may have rows that were deleted."""
        place = stored_place(self._store, self._shard)
        if self._store.named(b"identity") != self._identity or place is None:
            return False
        return start <= place.position <= end and not self._is_too_old(place, end)

    def _is_too_old(self, place: Place, end: int) -> bool:
        """Whether rows may have been deleted behind it whose tombstones are gone; one offset is a transaction's end."""
        return end - place.position > 1 and place.stood_ms > 0 and self._age.may_lack_tombstones(place.stood_ms)

    def _require_fit(self, position: AgentPosition, start: int, newest: FoundMark) -> None:
        """Raises CutOffError for a position from which the table cannot be gone on with."""
        offset, end = position.place.position, newest.end
        if not start <= offset <= end:
            raise CutOffError(f"it was told up to {offset}, and the table has {start} to {end}")
        if newest.place < offset and newest.name != position.mark:
            raise CutOffError(f"the mark before {offset} is not there any more")
        if self._is_too_old(position.place, end):
            raise CutOffError("it was away for longer than tombstones are kept")

    def _cut_off(self, error: Exception) -> None:
        log.warning("agent %s, shard %d begins anew: %s", self._agent.name, self._shard, error)
        self._begin_anew()

    def _number(self, name: bytes) -> int | None:
        value = self._store.named(name)
        return None if value is None else int(_NUMBER.unpack(value)[0])

    def _clear(self) -> None:
        self._store.clear()
        self._store.write((), {b"identity": self._identity})

    def _remember(self) -> AgentPosition | None:
        """Take what the memory has behind what the copy has of it; the newest position there is."""
        since, mine = self._number(b"memory"), stored_place(self._store, self._shard)
        if mine is None or since is None:
            since = -1
        found = self._read_memory(since)
        position = found.position
        if mine is not None and position is not None and position.place.position < mine.position:
            self._clear()  # another one went on from further back than where this copy stands
            found = self._read_memory(-1)
            position = found.position
        if mine is not None and position is None:
            position = AgentPosition(mine, self._config.table_identity.hex(), self._stored_mark()[1])
        if position is not None and position.table != self._config.table_identity.hex():
            what = f"{self._memory}[{self._shard}] is the memory of an agent of another journal: delete that topic"
            raise RowError(what, topic=self._memory, partition=self._shard)
        rows = [(STATE_PREFIX + key, value) for key, value in found.state.items()]
        self._store.write(rows, {}, durable=False)
        self._memory_end = found.end
        return position

    def _stored_mark(self) -> tuple[Mark, int]:
        """The copy's, and what the next one calls it."""
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

    def _begin_anew(self) -> None:
        """From the newest mark, with a copy of before it; the state that it had is deleted with the first telling."""
        state = dict(self._store.scan(STATE_PREFIX))
        self._clear()
        self._store.write(state.items(), {}, durable=False)
        self._held, self._held_bytes, self._late_end = {}, 0, 0
        self._place = _NOWHERE
        while True:
            began = self._age.clocks()
            newest = self._newest_mark()
            last = self._copy_up_to(self._place.position, newest.place + 1)
            if last is not None:
                self._place = place_behind(last)
            if not self._age.is_long_since(began):
                break
        self._mark, self._name = self._stored_mark()
        require_counted(self._store, {self._shard: self._mark})
        self._first = self._old_known = True

    def _newest_mark(self) -> FoundMark:
        marks = MarkReader(self._kafka, self._topic, self._clock)
        try:
            found = marks.newest(self._shard, self._config.request_timeout_s)
        finally:
            marks.close()
        self._age.see(found.timestamp)
        return found

    def _catch_up(self, position: AgentPosition, start: int) -> None:
        """Bring the copy to where the agent stands, and no further."""
        mine = stored_place(self._store, self._shard)
        self._place, self._name = position.place, position.mark
        self._old_known = mine is not None and mine.position == self._place.position
        self._copy_up_to(start if mine is None else mine.position, self._place.position)
        self._mark = self._stored_mark()[0]
        self._store.write((), self._named(self._place))

    def _copy_up_to(self, start: int, end: int) -> LogRecord | None:
        """Rows before `end` straight into the copy, untold; the last one of them."""
        reader, shard = self._require_reader(), self._shard
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
            rows.append((self._key_of(record), record.value))
            if len(rows) >= _DIRECT_ROWS:
                self._store.write(rows, {}, durable=False)
                rows.clear()
        self._store.write(rows, {}, durable=False)
        self._store.flush()
        return record

    def _key_of(self, record: LogRecord) -> bytes:
        if record.key is None:
            raise self._row_error(record, "a row without a key")
        return record.key

    # ---- telling ---------------------------------------------------------------------------------------------------

    def follow(self, should_stop: Callable[[], bool]) -> None:
        """Tell the agent until `should_stop`. Raises AgentError, ReopenError, OperatingError, CorruptionError."""
        reader = self._require_reader()
        while True:
            if self._first:
                self._tell({}, self._place)
            if should_stop():
                return
            try:
                records = reader.poll(self._wait_s())
                if records:
                    self._age.see(records[-1].timestamp)
                self._old_ms = self._age.old_ms()
                for record in records:
                    self._take(record)
                    if should_stop():
                        return
            except (GapError, CutOffError) as error:
                self._cut_off(error)
                self._seek()
            else:
                self._on_time()

    def _wait_s(self) -> float:
        if not self._agent.every_s:
            return _POLL_S
        return max(0.0, min(_POLL_S, self._told_at + self._agent.every_s - self._clock()))

    def _take(self, record: LogRecord) -> None:
        key = self._key_of(record)
        if record.offset >= self._late_end and self._since.may_be_old(record.offset, record.timestamp, self._old_ms):
            self._late_end = max(self._late_end, self._newest_mark().place + 1)
        self._held[key] = record.value
        self._held_bytes += len(key) + len(record.value or b"")
        if not self._is_mark(key, record):
            if self._held_bytes > 2 * self._config.held_bytes_max:
                raise self._row_error(record, f"more than {self._config.held_bytes_max} bytes of rows without a mark")
            return
        mark = mark_of(self._topic, record)
        self._require_chained(mark, record)
        place = place_behind(record)
        if place.position < self._late_end and self._held_bytes <= self._config.held_bytes_max:
            return
        if place.position == self._late_end:
            self._require_counted(mark)
        self._mark, self._name = mark, mark_name(record.value or b"")
        held, self._held, self._held_bytes = self._held, {}, 0
        self._tell(held, place)
        if place.position >= self._late_end:
            self._old_known = True

    def _is_mark(self, key: bytes, record: LogRecord) -> bool:
        try:
            return row_type(key) is RowType.MARK
        except RowError as error:
            raise self._row_error(record, error.reason) from None

    def _require_chained(self, mark: Mark, record: LogRecord) -> None:
        """A mark that does not name the one before it is not of its history, unless marks in between were compacted
        away: then those up to the newest are late, and their rows are counted."""
        if record.offset < self._late_end or mark.previous == self._name:
            return
        may_be_old = self._since.may_be_old(record.offset, self._place.stood_ms, self._old_ms)
        if mark.offset < self._mark.offset or not may_be_old:
            raise CutOffError(
                f"the mark at WAL offset {mark.offset} does not follow the one that it was told up to, at "
                f"{self._mark.offset}"
            )
        self._late_end = self._newest_mark().place + 1

    def _require_counted(self, mark: Mark) -> None:
        """Raises CutOffError if the copy has other rows than the mark says, before it is told of them."""
        try:
            require_counted(Overlaid(self._store, self._held), {self._shard: mark})
        except (CountError, RowError) as error:
            raise CutOffError(str(error)) from error

    def _on_time(self) -> None:
        now = self._clock()
        if self._agent.every_s and now - self._told_at >= self._agent.every_s:
            self._tell(None, self._place)
        now_ms, stood_ms = int(self._age.now_ms()), self._place.stood_ms
        if stood_ms and now_ms - stood_ms > self._config.delete_retention_ms / _POSITION_AGAIN_SHARE:
            _, end = self._require_reader().start_and_end(self._shard, self._config.request_timeout_s)
            if end - self._place.position <= 1:
                self._commit([], AgentState(self._store), {}, self._place._replace(stood_ms=now_ms))

    def _tell(self, held: Mapping[bytes, bytes | None] | None, place: Place) -> None:
        """One telling, up to the mark before `place`; None: nothing has changed but the time."""
        state = AgentState(self._store)
        if self._first:
            for key, _ in list(self._store.scan(STATE_PREFIX)):
                state.written[key[len(STATE_PREFIX) :]] = None
        changes = Changes(
            self._shard,
            self._mark,
            self._store,
            held or {},
            state,
            now_ms=int(self._wall_ms()),
            first=self._first,
            old_known=self._old_known or place.position > self._late_end,
        )
        outputs = self._calls.call(self._agent, self._shard, [changes])
        now = self._told_at = self._clock()
        if outputs or state.written or self._first or (now - self._sent_at >= _POSITION_EVERY_S and held is not None):
            self._commit(outputs, state, held or {}, place)
        elif held is not None:
            self._store.write(held.items(), self._named(place))
            self._place = place
        self.told += 1

    def _commit(self, outputs: list[Sent], state: AgentState, held: Mapping[bytes, bytes | None], place: Place) -> None:
        """Outputs, state and position in one Kafka transaction, then rows, state and position in one local batch."""
        producer, timeout_s = self._require_producer(), self._config.request_timeout_s
        stands = AgentPosition(place, self._config.table_identity.hex(), self._name)
        records = [
            *outputs,
            *state_records(self._memory, self._shard, state.written),
            position_record(self._memory, self._shard, stands),
        ]
        offset = producer.send(records, timeout_s)[-1]
        clean = producer.commit_transaction(timeout_s)
        self._memory_end = offset + 1
        rows = [*held.items(), *((STATE_PREFIX + key, value) for key, value in state.written.items())]
        self._store.write(rows, self._named(place))
        self._place, self._first = place, False
        self._sent_at = self._clock()
        if not clean:
            raise ReopenError("a repeated EndTxn may still arrive")

    def _named(self, place: Place) -> dict[bytes, bytes]:
        return note_checkpoint(self._shard, *place) | {b"memory": _NUMBER.pack(self._memory_end)}

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """What was told and not committed will be told again. The store stays open: it is its owner's."""
        if self._reader is not None:
            self._reader.close()
        if self._producer is not None:
            self._producer.close()

    def _require_reader(self) -> Reader:
        if self._reader is None:
            raise DeadlineError("the session is not open")
        return self._reader

    def _require_producer(self) -> TransactionalProducer:
        if self._producer is None:
            raise DeadlineError("the session is not open")
        return self._producer

    def _row_error(self, record: LogRecord, reason: str) -> RowError:
        return RowError(reason, topic=self._topic, partition=record.partition, offset=record.offset)
