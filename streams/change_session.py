"""One `on_change` agent in one shard, from taking it over to losing it: its copy, its position, its transactions.

Taking over initialises the shard's transactional id, which fences whoever had it; then the agent's memory says where it
stands, and the local copy is brought there and no further. From there on rows are held back until their mark, the agent
is told, and what it gives, its state and the position behind the mark are one Kafka transaction, then one local batch.

In a compacted topic marks that are older than min.compaction.lag may have lost rows before them; so an agent that was
away for so long is told all of that time as one change, up to the mark that was then the newest.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from journal.errors import DeadlineError, OperatingError, RowError
from journal.kafka.control import memory_topic, table_topic
from journal.kafka.marks import MarkReader, records_between
from journal.kafka.ports import Clock, Kafka, LogRecord, Reader, Sent, TransactionalProducer
from journal.local.ports import LocalStore
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import RowType, mark_key, row_type
from streams.agents import Agent, AgentCalls
from streams.change_memory import (
    AgentPosition,
    Remembered,
    agent_id,
    position_record,
    read_memory,
    state_records,
)
from streams.changes import STATE_PREFIX, AgentState, Changes

log = logging.getLogger(__name__)

_NUMBER = struct.Struct(">q")
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
        self._tombstones_ms = config.delete_retention_ms - config.delete_retention_ms // 10
        self._producer: TransactionalProducer | None = None
        self._reader: Reader | None = None
        self._position = 0
        self._memory_end = 0
        self._mark = self._newest = Mark(shard=shard, offset=-1)
        """What the agent was told up to, and the newest that was read."""
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
        start, end = self._reader.start_and_end(self._shard, config.request_timeout_s)
        if not self._is_usable(start, end):
            self._clear()
        remembered = self._remember()
        if remembered.position is not None and self._is_too_old(remembered.position, end):
            log.warning("agent %s, shard %d: away for too long, it begins anew", self._agent.name, self._shard)
            self._begin_anew()
        else:
            self._catch_up(remembered, start, end)
        row = self._store.get(mark_key(self._shard))
        self._mark = Mark(shard=self._shard, offset=-1) if row is None else Mark.FromString(row)
        self._sent_at = self._told_at = self._clock()
        self._reader.seek({self._shard: self._position})

    def _is_usable(self, start: int, end: int) -> bool:
        """Whether the copy can be gone on with: one that was away for too long may have rows that were deleted."""
        position, stood = self._number(b"position"), self._number(b"stood")
        if self._store.named(b"identity") != self._identity or position is None or stood is None:
            return False
        return start <= position <= end and self._wall_ms() - stood <= self._tombstones_ms

    def _number(self, name: bytes) -> int | None:
        value = self._store.named(name)
        return None if value is None else int(_NUMBER.unpack(value)[0])

    def _clear(self) -> None:
        self._store.clear()
        self._store.write((), {b"identity": self._identity})

    def _remember(self) -> Remembered:
        """The memory behind what the copy has of it, which the copy then has; its position is the newest there is."""
        since = self._number(b"memory")
        found = self._read_memory(-1 if since is None else since)
        mine = self._number(b"position")
        if since is not None and found.position is not None and mine is not None and found.position.offset < mine:
            self._clear()  # another one went on from further back than where this copy stands
            found = self._read_memory(-1)
        if since is not None and found.position is None and mine is not None:
            found.position = AgentPosition(mine, self._config.table_identity.hex(), self._number(b"stood") or 0)
        if found.position is not None and found.position.table != self._config.table_identity.hex():
            what = f"{self._memory}[{self._shard}] is the memory of an agent of another journal: delete that topic"
            raise RowError(what, topic=self._memory, partition=self._shard)
        rows = [(STATE_PREFIX + key, value) for key, value in found.state.items()]
        self._store.write(rows, {}, durable=False)
        self._memory_end = found.end
        return found

    def _read_memory(self, since: int) -> Remembered:
        return read_memory(
            self._kafka,
            self._memory,
            self._shard,
            since,
            clock=self._clock,
            timeout_s=self._config.request_timeout_s,
        )

    def _is_too_old(self, position: AgentPosition, end: int) -> bool:
        """Whether rows may have been deleted behind it whose tombstones are gone; one offset is a transaction's end."""
        return end - position.offset > 1 and self._wall_ms() - position.stood_ms > self._tombstones_ms

    def _begin_anew(self) -> None:
        """From the newest mark, with a copy of before it; the state that it had is deleted with the first telling."""
        state = dict(self._store.scan(STATE_PREFIX))
        self._clear()
        self._store.write(state.items(), {}, durable=False)
        self._first = True
        self._copy_up_to(0, self._newest_mark_end())

    def _newest_mark_end(self) -> int:
        marks = MarkReader(self._kafka, self._topic, self._clock)
        try:
            return marks.newest(self._shard, self._config.request_timeout_s).place + 1
        finally:
            marks.close()

    def _catch_up(self, remembered: Remembered, start: int, end: int) -> None:
        position, mine = remembered.position, self._number(b"position")
        if position is None:
            self._begin_anew()
            return
        if not start <= position.offset <= end:
            what = f"the agent stands at {position.offset}, and the table holds {start} to {end}"
            raise RowError(what, topic=self._topic, partition=self._shard, offset=position.offset)
        self._old_known = mine is not None and mine == position.offset
        self._copy_up_to(start if mine is None else mine, position.offset)
        self._store.flush()
        self._store.write((), self._named(position.offset))

    def _copy_up_to(self, start: int, end: int) -> None:
        """Rows before `end` straight into the copy, untold."""
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
        for record in records:
            if record.key is None:
                raise self._row_error(record, "a row without a key")
            rows.append((record.key, record.value))
            if len(rows) >= _DIRECT_ROWS:
                self._store.write(rows, {}, durable=False)
                rows.clear()
        self._store.write(rows, {}, durable=False)
        self._store.flush()
        self._position = max(start, end)

    def _note_mark(self, record: LogRecord) -> bool:
        """Whether it is a mark, which then is the newest."""
        try:
            if row_type(record.key or b"") is not RowType.MARK:
                return False
            mark = Mark.FromString(record.value or b"")
        except (RowError, DecodeError) as error:
            raise self._row_error(record, str(error)) from None
        self._newest = mark
        return True

    # ---- telling ---------------------------------------------------------------------------------------------------

    def follow(self, should_stop: Callable[[], bool]) -> None:
        """Tell the agent until `should_stop`. Raises AgentError, ReopenError, OperatingError, CorruptionError."""
        reader = self._require_reader()
        if self._first:
            self._tell({}, self._position)
        while not should_stop():
            for record in reader.poll(self._wait_s()):
                self._take(record)
                if should_stop():
                    return
            self._on_time()

    def _wait_s(self) -> float:
        if not self._agent.every_s:
            return _POLL_S
        return max(0.0, min(_POLL_S, self._told_at + self._agent.every_s - self._clock()))

    def _take(self, record: LogRecord) -> None:
        if record.key is None:
            raise self._row_error(record, "a row without a key")
        self._look_whether_late(record)
        self._held[record.key] = record.value
        self._held_bytes += len(record.key) + len(record.value or b"")
        if not self._note_mark(record):
            if self._held_bytes > 2 * self._config.held_bytes_max:
                raise self._row_error(record, f"more than {self._config.held_bytes_max} bytes of rows without a mark")
            return
        if record.offset + 1 < self._late_end and self._held_bytes <= self._config.held_bytes_max:
            return
        self._mark = self._newest
        held, self._held, self._held_bytes = self._held, {}, 0
        self._tell(held, record.offset + 1)
        if record.offset + 1 >= self._late_end:
            self._old_known = True

    def _look_whether_late(self, record: LogRecord) -> None:
        """Half of the lag, as the brokers' clocks may differ from ours."""
        young_since_ms = self._wall_ms() - self._config.min_compaction_lag_ms / 2
        if record.offset >= self._late_end and record.timestamp <= young_since_ms:
            self._late_end = max(self._late_end, self._newest_mark_end())

    def _on_time(self) -> None:
        now = self._clock()
        if self._agent.every_s and now - self._told_at >= self._agent.every_s:
            self._tell(None, self._position)
        stood_ms = self._number(b"stood") or 0
        if self._wall_ms() - stood_ms > self._config.delete_retention_ms / _POSITION_AGAIN_SHARE:
            self._commit([], AgentState(self._store), {}, self._position)

    def _tell(self, held: Mapping[bytes, bytes | None] | None, position: int) -> None:
        """One telling, up to the mark before `position`; None: nothing has changed but the time."""
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
            old_known=self._old_known or position > self._late_end,
        )
        outputs = self._calls.call(self._agent, self._shard, [changes])
        now = self._told_at = self._clock()
        if outputs or state.written or self._first or (now - self._sent_at >= _POSITION_EVERY_S and held is not None):
            self._commit(outputs, state, held or {}, position)
        elif held is not None:
            self._store.write(held.items(), self._named(position))
            self._position = position
        self.told += 1

    def _commit(
        self, outputs: list[Sent], state: AgentState, held: Mapping[bytes, bytes | None], position: int
    ) -> None:
        """Outputs, state and position in one Kafka transaction, then rows, state and position in one local batch."""
        producer, timeout_s = self._require_producer(), self._config.request_timeout_s
        stands = AgentPosition(position, self._config.table_identity.hex(), int(self._wall_ms()))
        records = [
            *outputs,
            *state_records(self._memory, self._shard, state.written),
            position_record(self._memory, self._shard, stands),
        ]
        offset = producer.send(records, timeout_s)[-1]
        clean = producer.commit_transaction(timeout_s)
        self._memory_end = offset + 1
        rows = [*held.items(), *((STATE_PREFIX + key, value) for key, value in state.written.items())]
        self._store.write(rows, self._named(position))
        self._position, self._first = position, False
        self._sent_at = self._clock()
        if not clean:
            raise ReopenError("a repeated EndTxn may still arrive")

    def _named(self, position: int) -> dict[bytes, bytes]:
        return {
            b"position": _NUMBER.pack(position),
            b"memory": _NUMBER.pack(self._memory_end),
            b"stood": _NUMBER.pack(int(self._wall_ms())),
        }

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
