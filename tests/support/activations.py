"""Activations of a journal on a simulated cluster, one after the other; control rows, WAL and tables may be lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from journal.activate.activation import Activation
from journal.append.writing import Activated, Claim
from journal.errors import JournalError
from journal.kafka.ports import LogRecord
from journal.limits import Limits
from journal.load.loading import NullLoader
from journal.process.background import InBackground, at_once
from journal.process.clocks import Timing
from journal.table.replica import Replica
from journal.topics.control_keys import EPOCH_KEY, IDENTITY_KEY, control_row
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Epoch, Identity, Mark
from journal.wal.config import WriterConfig
from journal.wire.frames import FORMAT, MAGIC, decode_frame
from journal.wire.keys import mark_key
from journal.wire.rows import mark_name
from tests.simulation.broker import Answer, Instance, SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL
from tests.support.deposed import DeposedKafka, write_anew

LIMIT_S = 2.0
SHARDS = 2
WAL, TABLE, CONTROL = wal_topic("j"), table_topic("j"), control_topic("j")
WEEK_MS = 7 * 24 * 3600 * 1000


def write_mark(broker: SimulatedBroker, mark: Mark) -> None:
    """A checkpoint of journal j without rows, which follows the one before it, unless it is the same."""
    log, key = broker.topics[TABLE].logs[mark.shard], mark_key(mark.shard)
    marks = [row.value for row in log.fetch(mark.shard, log.start, 100_000, committed=True) if row.key == key]
    last = Mark.FromString(marks[-1] or b"") if marks else Mark(offset=-1)
    if (last.offset, last.epoch, last.nonce) != (mark.offset, mark.epoch, mark.nonce):
        mark.previous = mark_name(marks[-1] or b"") if last.offset >= 0 else 0
        broker.write(TABLE, mark.shard, [(key, mark.SerializeToString())])


class FollowedBroker(SimulatedBroker):
    """A cluster on which the tables of journal j are at a claim as soon as it is committed."""

    follows = True
    _followed = (0, b"")

    def end_transaction(self, transactional_id: str, instance: Instance, *, commit: bool) -> Answer | None:
        answer = super().end_transaction(transactional_id, instance, commit=commit)
        if self.follows and commit and answer is None:
            self._follow()
        return answer

    def _follow(self) -> None:
        rows = self.topics[CONTROL].logs[0].fetch(0, 0, 1000, committed=True)
        claims = [Epoch.FromString(row.value or b"") for row in rows if row.key == EPOCH_KEY]
        if not claims or (claims[-1].epoch, claims[-1].nonce) == self._followed:
            return
        epoch, nonce = self._followed = claims[-1].epoch, claims[-1].nonce
        for shard, log in enumerate(self.topics[WAL].logs):
            last = log.fetch(shard, log.start, 1000, committed=True)[-1]
            write_mark(self, Mark(shard=shard, offset=last.offset, epoch=epoch, nonce=nonce))


class Activations:
    """A journal whose tables follow its WAL at once."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        self.kafka = DeposedKafka(self.broker)
        self._nonces = count(1)
        self.follows = True
        """Whether a worker serves the shards."""
        self.broker.create_topic(WAL, SHARDS, 1, {})
        self.broker.create_topic(TABLE, SHARDS, 1, {"cleanup.policy": "compact"})
        self.broker.create_topic(CONTROL, 1, 1, {"cleanup.policy": "compact"})
        self.write_identity()

    def write_identity(self, uuid: bytes = JOURNAL) -> None:
        row = Identity(magic=MAGIC, format=FORMAT, journal=uuid, name="j", shards=SHARDS)
        self.broker.write(CONTROL, 0, [(IDENTITY_KEY, row.SerializeToString())])

    def same_table(self) -> None:
        """The table is still the one that copies were made of."""

    def activate(
        self,
        at: Callable[[str], None] = lambda step: None,
        *,
        beside: InBackground = at_once,
        request_s: float = LIMIT_S,
    ) -> Activated:
        """`at` is told of each step; `beside` makes the calls that need not be waited for."""
        now, pause = self.broker.timeline.now, self.broker.timeline.pass_to

        def progress(step: str, done: int, total: int) -> None:
            at(step)
            if step == "gate" and self.follows:
                self.checkpoint()

        store = SimulatedStore(Disk(), Faults(), "node")
        replica = Replica(
            self.kafka,
            TABLE,
            range(SHARDS),
            store,
            b"copy",
            clock=now,
            wall_ms=lambda: now() * 1000,
            delete_retention_ms=WEEK_MS,
            min_compaction_lag_ms=WEEK_MS,
            held_bytes_max=100_000,
        )
        replica.open(LIMIT_S)
        activated = Activation(
            self.kafka,
            WriterConfig("j", JOURNAL, SHARDS, 0.0, 0.0, 0.0, 1 << 20),
            Limits(),
            lambda epoch: Claim(epoch, "node", next(self._nonces).to_bytes(16, "big")),
            replica,
            store,
            Timing(now, lambda seconds: pause(now() + seconds), request_s, 10 * LIMIT_S, LIMIT_S, wall_s=now),
            require_same_table=self.same_table,
            gate_s=LIMIT_S,
            wall_ms=lambda: now() * 1000,
            progress=progress,
            beside=beside,
        ).run(NullLoader())
        activated.writer.close()
        return activated

    def checkpoint(self) -> None:
        """The worker's, up to the end of every shard."""
        for shard in range(SHARDS):
            mark = Mark(shard=shard, offset=-1)
            for record in self.records(shard):
                frame = decode_frame(record.value, JOURNAL, shard, SHARDS)
                mark.offset, mark.number, mark.group, mark.epoch = record.offset, frame.number, frame.group, frame.epoch
                mark.nonce = frame.nonce or mark.nonce
            write_mark(self.broker, mark)

    def records(self, shard: int) -> list[LogRecord]:
        log = self.broker.log(WAL, shard)
        assert log is not None
        return log.fetch(shard, log.start, 1000, committed=True)

    def ends(self) -> list[int]:
        return [log.end for log in self.broker.topics[WAL].logs]

    def lose_control(self, epoch: int | None) -> None:
        """The control partition has only its identity left, and an earlier epoch; None: nothing at all."""
        write_anew(self.broker, CONTROL, [])
        if epoch is not None:
            self.write_identity()
            row = control_row("j", EPOCH_KEY, Epoch(journal=JOURNAL, epoch=epoch, nonce=b"e" * 16))
            self.broker.write(CONTROL, 0, [(row.key, row.value)])

    def lose_wal(self, shard: int, keep: int) -> None:
        """All but the first `keep` frames of a shard."""
        kept = [(record.key, record.value) for record in self.records(shard)[:keep]]
        write_anew(self.broker, WAL, kept, shard)


def fails(scene: Activations, **arguments: Callable[[str], None]) -> JournalError:
    with pytest.raises(JournalError) as caught:
        scene.activate(**arguments)
    return caught.value
