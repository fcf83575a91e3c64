"""One `on_change` agent in one shard, from the opening of the session to its end: the agent's copy, position and
transactions.

A session begins with the init of the shard's transactional id, which fences the session before it. Then the agent's
memory gives its position, and the local copy is brought there and no further. From then on rows are held back until
their mark arrives, and the agent is called with them. Its outputs, its state and the position behind the mark are one
Kafka transaction, and then one local batch.

In a compacted topic, rows before a mark that is older than min.compaction.lag may be missing. So an agent that was away
for longer is told everything that changed meanwhile as one change. It goes up to the mark that is the newest when the
missing rows are noticed, and its rows are counted first. Any other mark must name the last one that the agent was told.
If a mark does not (Kafka has lost acknowledged rows, or the copy has missed tombstones), the agent begins anew.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping

from journal.disk.ports import LocalStore
from journal.errors import CountError, DeadlineError, GapError, ReopenError, RowError
from journal.kafka.ports import Kafka, LogRecord, Sent, TransactionalProducer
from journal.load.loading import require_counted
from journal.process.clocks import Clock
from journal.table.age import CopyPlace, CutOffError, place_behind
from journal.topics.marks import mark_of
from journal.topics.names import agent_id, memory_topic, table_topic
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import RowType, row_type
from journal.wire.rows import mark_name
from streams.agents.agents import Agent, AgentCalls
from streams.agents.change_copy import AgentCopy, ChangeConfig
from streams.agents.change_memory import AgentPosition, position_record, state_records
from streams.agents.changes import STATE_PREFIX, AgentState, Changes, Overlaid

log = logging.getLogger(__name__)

_NUMBER = struct.Struct(">q")
_NOWHERE = CopyPlace(0, 0)
_DIRECT_ROWS = 5000
_POSITION_EVERY_S = 1.0
"""How long an agent's position may be stored on this machine only, if the agent gives no output and no state. After
this time the position is written to Kafka with the next change."""
_POSITION_AGAIN_SHARE = 20
"""How many times an unchanged position is written again in the time for which tombstones are kept."""
_POLL_S = 0.25


class ChangeSession:
    """An agent's session in one shard. One thread owns it."""

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
        self._copy = AgentCopy(agent.name, shard, config, kafka, store, clock=clock, wall_ms=wall_ms)
        self._producer: TransactionalProducer | None = None
        self._old_ms = 0.0
        """Rows that were appended before this time may have been compacted when the last poll read them."""
        self._late_end = 0
        """The offset behind the newest mark of a part of the topic that may have been compacted. Marks before it are
        ignored."""
        self._held: dict[bytes, bytes | None] = {}
        self._held_bytes = 0
        self._sent_at = 0.0
        self._told_at = 0.0
        self.told = 0
        """The number of checkpoints that the agent was told, for metrics."""

    # ---- opening -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Fence the session before this one, and bring the copy to the agent's position. Raises OperatingError,
        CorruptionError."""
        config = self._config
        self._producer = self._kafka.transactional_producer(agent_id(config.journal, self._agent.name, self._shard))
        self._producer.init(config.request_timeout_s)
        self._copy.open()
        self._sent_at = self._told_at = self._clock()

    # ---- calling the agent -------------------------------------------------------------------------------------------

    def follow(self, should_stop: Callable[[], bool]) -> None:
        """Call the agent with each change until `should_stop`. Raises AgentError, ReopenError, OperatingError,
        CorruptionError."""
        copy = self._copy
        while True:
            if copy.first:
                self._tell({}, copy.place)
            if should_stop():
                return
            try:
                records = copy.reader.poll(self._wait_s())
                if records:
                    copy.age.see(records[-1].timestamp)
                self._old_ms = copy.age.old_ms()
                for record in records:
                    self._take(record)
                    if should_stop():
                        return
            except (GapError, CutOffError) as error:
                self._held, self._held_bytes, self._late_end = {}, 0, 0
                copy.begin_anew(error)
            else:
                self._on_time()

    def _wait_s(self) -> float:
        if not self._agent.every_s:
            return _POLL_S
        return max(0.0, min(_POLL_S, self._told_at + self._agent.every_s - self._clock()))

    def _take(self, record: LogRecord) -> None:
        copy, config = self._copy, self._config
        key = copy.key_of(record)
        if record.offset >= self._late_end and copy.since.may_be_old(record.offset, record.timestamp, self._old_ms):
            self._late_end = max(self._late_end, copy.newest_mark().place + 1)
        self._held[key] = record.value
        self._held_bytes += len(key) + len(record.value or b"")
        if not self._is_mark(key, record):
            if self._held_bytes > 2 * config.held_bytes_max:
                raise copy.row_error(record, f"more than {config.held_bytes_max} bytes of rows without a mark")
            return
        mark = mark_of(self._topic, record)
        self._require_chained(mark, record)
        place = place_behind(record)
        if place.position < self._late_end and self._held_bytes <= config.held_bytes_max:
            return
        if place.position == self._late_end:
            self._require_counted(mark)
        copy.mark, copy.name = mark, mark_name(record.value or b"")
        held, self._held, self._held_bytes = self._held, {}, 0
        self._tell(held, place)
        if place.position >= self._late_end:
            copy.old_known = True

    def _is_mark(self, key: bytes, record: LogRecord) -> bool:
        try:
            return row_type(key) is RowType.MARK
        except RowError as error:
            raise self._copy.row_error(record, error.reason) from None

    def _require_chained(self, mark: Mark, record: LogRecord) -> None:
        """Require that a mark names the one before it. If it does not, either marks between them were compacted away,
        and the rows up to the newest mark become one change whose rows are counted; or the table has lost rows, and
        CutOffError is raised."""
        if record.offset < self._late_end or mark.previous == self._copy.name:
            return
        may_be_old = self._copy.since.may_be_old(record.offset, self._copy.place.stood_ms, self._old_ms)
        if mark.offset < self._copy.mark.offset or not may_be_old:
            raise CutOffError(
                f"the mark at WAL offset {mark.offset} does not follow the one that it was told up to, at "
                f"{self._copy.mark.offset}"
            )
        self._late_end = self._copy.newest_mark().place + 1

    def _require_counted(self, mark: Mark) -> None:
        """Raises CutOffError if the copy, with the rows held back, has other numbers of rows than the mark says."""
        try:
            require_counted(Overlaid(self._store, self._held), {self._shard: mark})
        except (CountError, RowError) as error:
            raise CutOffError(str(error)) from error

    def _on_time(self) -> None:
        now = self._clock()
        if self._agent.every_s and now - self._told_at >= self._agent.every_s:
            self._tell(None, self._copy.place)
        now_ms, stood_ms = int(self._copy.age.now_ms()), self._copy.place.stood_ms
        is_due = stood_ms and now_ms - stood_ms > self._config.delete_retention_ms / _POSITION_AGAIN_SHARE
        if is_due and self._copy.is_at_end():
            self._commit([], AgentState(self._store), {}, self._copy.place._replace(stood_ms=now_ms))

    def _tell(self, held: Mapping[bytes, bytes | None] | None, place: CopyPlace) -> None:
        """Call the agent with the rows `held`, up to the mark before `place`. None for `held` means that only time has
        passed."""
        state = AgentState(self._store)
        if self._copy.first:
            for key, _ in list(self._store.scan(STATE_PREFIX)):
                state.written[key[len(STATE_PREFIX) :]] = None
        changes = Changes(
            self._shard,
            self._copy.mark,
            self._store,
            held or {},
            state,
            now_ms=int(self._wall_ms()),
            first=self._copy.first,
            old_known=self._copy.old_known or place.position > self._late_end,
        )
        outputs = self._calls.call(self._agent, self._shard, [changes])
        now = self._told_at = self._clock()
        is_due = held is not None and now - self._sent_at >= _POSITION_EVERY_S
        if outputs or state.written or self._copy.first or is_due:
            self._commit(outputs, state, held or {}, place)
        elif held is not None:
            self._store.write(held.items(), self._copy.named(place))
            self._copy.place = place
        self.told += 1

    def _commit(
        self, outputs: list[Sent], state: AgentState, held: Mapping[bytes, bytes | None], place: CopyPlace
    ) -> None:
        """Commit outputs, state and position in one Kafka transaction, then rows, state and position in one local
        batch."""
        producer, timeout_s = self._require_producer(), self._config.request_timeout_s
        stands = AgentPosition(place, self._config.table_identity.hex(), self._copy.name)
        records = [
            *outputs,
            *state_records(self._memory, self._shard, state.written),
            position_record(self._memory, self._shard, stands),
        ]
        offset = producer.send(records, timeout_s)[-1]
        clean = producer.commit_transaction(timeout_s)
        self._copy.memory_end = offset + 1
        rows = [*held.items(), *((STATE_PREFIX + key, value) for key, value in state.written.items())]
        self._store.write(rows, self._copy.named(place))
        self._copy.place, self._copy.first = place, False
        self._sent_at = self._clock()
        if not clean:
            raise ReopenError("a repeated EndTxn may still arrive")

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the session. If the agent was called with changes and the results were not committed, the next session
        calls it with these changes again. The store stays open, because its owner closes it."""
        self._copy.close()
        if self._producer is not None:
            self._producer.close()

    def _require_producer(self) -> TransactionalProducer:
        if self._producer is None:
            raise DeadlineError("the session is not open")
        return self._producer
