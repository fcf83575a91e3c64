"""The messages that took effect in a shard, read from the WAL alone, because a replay has no old tables.

The worker's own engine folds the WAL, from its first frame to the shard's mark. Its base only knows which records live
and which operations transactions have staged. So a replay sees each message where the worker saw it: a plain one at its
frame, one of a transaction at the COMMIT, and one of a rolled-back transaction not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from pyroaring import BitMap64

from journal.errors import FrameError, GapError
from journal.fold.engine import Fold
from journal.fold.rows import Added, Change
from journal.kafka.ports import Kafka, LogRecord, Reader
from journal.limits import VIRTUAL_SHARDS
from journal.process.clocks import Clock
from journal.topics.marks import records_between
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, UPDATE, Identity, Mark, Skipped, Trim
from journal.v1.store_pb2 import CHUNK, MESSAGE
from journal.wal.reading import WalReader
from journal.wire.frames import Frame, decode_frame
from journal.wire.ids import sequence_of
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG, record_id_of
from streams.routes.replay_range import ReplayRange, moment

_STAGED_PREFIX_BYTES = 11
_PROGRESS_FRAMES = 256

Told = Callable[[int, int], None]
"""A function that is called with the number of offsets that were read, and the number of all."""


class FrameMessages(NamedTuple):
    """Messages of the range that took effect with one frame, and the time when the frame was appended, in ms since
    1970."""

    offset: int
    timestamp: int
    messages: list[Added]


class _Living:
    """A base with only those rows that decide which operations take effect."""

    def __init__(self) -> None:
        self._records = BitMap64()
        self._staged: dict[bytes, dict[bytes, bytes]] = {}

    def get(self, key: bytes) -> bytes | None:
        return b"" if len(key) == RECORD_KEY_BYTES and record_id_of(key) in self._records else None

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        return list(self._staged.get(prefix, {}).items())

    def write(self, changes: Iterable[Change]) -> None:
        for key, value in changes:
            if key[:1] == RECORD_TAG and len(key) == RECORD_KEY_BYTES:
                (self._records.discard if value is None else self._records.add)(record_id_of(key))
            elif key[:1] == b"x":
                self._stage(key, value)

    def _stage(self, key: bytes, value: bytes | None) -> None:
        prefix = key[:_STAGED_PREFIX_BYTES]
        if value is not None:
            self._staged.setdefault(prefix, {})[key] = value
        elif (rows := self._staged.get(prefix)) is not None:
            rows.pop(key, None)
            if not rows:
                del self._staged[prefix]


class ShardHistory:
    """The history of one shard. One thread uses it, once."""

    def __init__(
        self,
        kafka: Kafka,
        identity: Identity,
        mark: Mark,
        range_: ReplayRange,
        *,
        skips: Collection[int],
        trim: Trim | None,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        """The history up to `mark`, without the WAL offsets in `skips`; `trim` is the last trim of the shard."""
        self._kafka = kafka
        self._identity = identity
        self._end = mark.offset + 1
        self._shard = mark.shard
        self._range = range_
        self._skips = skips
        self._trim = trim
        self._clock = clock
        self._timeout_s = timeout_s
        self._topic = wal_topic(identity.name)
        self._start = 0
        self._living = _Living()
        self._chunks: dict[int, int] = {}
        """The offset of the frame that adds each part of a large body, by the part's id, until the part is deleted."""
        self._bodies: WalReader | None = None

    def require_range(self) -> None:
        """Raises GapError if deleted frames may have had messages of the range."""
        reader = self._kafka.reader(self._topic)
        try:
            start = self._start = reader.start_and_end(self._shard, self._timeout_s)[0]
            if not start:
                return
            for record in self._records(reader):
                first = self._decoded(record)
                if first is not None:
                    self._require_behind(first, record.timestamp)
                    return
        finally:
            reader.close()
        raise self._gone("nothing else of the shard has taken effect")

    def frames(self, told: Told) -> Iterator[FrameMessages]:
        """Frames with messages of the range, in WAL order. Call `require_range` before.

        Raises GapError if one of their transactions began in deleted frames, and FrameError for a record that is no
        frame and was not skipped.
        """
        reader = self._kafka.reader(self._topic)
        fold: Fold | None = None
        total = self._end - self._start
        try:
            for count, record in enumerate(self._records(reader)):
                if count % _PROGRESS_FRAMES == 0:
                    told(record.offset - self._start, total)
                frame = self._decoded(record)
                if fold is None:
                    if frame is None and self._start:
                        continue
                    fold = self._begin(frame)
                yield from self._messages(fold, frame, record)
            told(total, total)
        finally:
            reader.close()

    def _records(self, reader: Reader) -> Iterator[LogRecord]:
        name, stall_s = f"{self._topic}[{self._shard}]", self._timeout_s
        return records_between(
            reader, self._shard, self._start, self._end, clock=self._clock, stall_s=stall_s, name=name
        )

    def _begin(self, first: Frame | None) -> Fold:
        """A fold to which `first` can be applied as the first frame. All that it knows of earlier frames comes from
        `first` and from the trim's control row."""
        mark = Mark(shard=self._shard, offset=self._start - 1)
        if self._start and first is not None:
            is_marker = first.nonce != b""
            mark.number, mark.epoch = first.previous, first.epoch - is_marker
        return Fold(mark, self._living, updates_row_bytes_max=0, tell_added=frozenset((MESSAGE,)))

    def _messages(self, fold: Fold, frame: Frame | None, record: LogRecord) -> Iterator[FrameMessages]:
        if record.offset in self._skips:
            fold.skip(Skipped(shard=self._shard, offset=record.offset), record.timestamp, frame)
        elif frame is not None:
            if self._start:
                self._require_staged(fold, frame, record)
            self._note_chunks(frame, record.offset)
            fold.apply(record.offset, record.timestamp, frame)
        holds, timestamp = self._range.holds, record.timestamp
        messages = [each for each in fold.added() if holds(each[0], timestamp)]
        self._living.write(fold.changes())
        fold.checkpointed()
        if messages:
            yield FrameMessages(record.offset, timestamp, messages)
        if self._chunks and frame is not None:
            for op in frame.operations():
                if op.type == DELETE:
                    self._chunks.pop(op.id, None)

    def _decoded(self, record: LogRecord) -> Frame | None:
        try:
            return decode_frame(record.value, self._identity.journal, self._shard, self._identity.shards)
        except FrameError as error:
            if record.offset in self._skips:
                return None
            raise FrameError(error.reason, topic=self._topic, partition=self._shard, offset=record.offset) from None

    # ---- deleted frames ----------------------------------------------------------------------------------------------

    def _require_behind(self, first: Frame, first_ms: int) -> None:
        """Raises GapError unless the range lies behind the first frame that is left."""
        range_ = self._range
        if range_.of_ids:
            if sequence_of(range_.first_id) <= first.issued:
                left = (first.issued + 1) * VIRTUAL_SHARDS
                raise self._gone(f"messages with ids below {left} may have been there: begin at {left}")
        elif range_.from_ms <= first_ms:
            raise self._gone(f"what is left was appended at {moment(first_ms)} and later: begin after that")

    def _require_staged(self, fold: Fold, frame: Frame, record: LogRecord) -> None:
        """Raises GapError if a COMMIT in the range settles operations that were staged before the WAL's start."""
        range_ = self._range
        if not range_.of_ids and not range_.from_ms <= record.timestamp < range_.to_ms:
            return
        if not any(op.type == COMMIT for op in frame.operations()):
            return
        staged = {part.header.tx: part.header.staged for part in fold.transaction_parts()}
        for op in frame.operations():
            if op.type == COMMIT and staged.get(op.tx, 0) < op.covers:
                raise self._gone(f"transaction {op.tx}, committed at offset {record.offset}, began there")
            if op.tx and op.type in (ADD, UPDATE, DELETE):
                staged[op.tx] = staged.get(op.tx, 0) + 1

    def _gone(self, what: str) -> GapError:
        trim, why = self._trim, f"the WAL before offset {self._start} is gone"
        if trim is not None:
            why += f" (trimmed by {trim.operator}, {moment(trim.timestamp)}"
            why += "; the archive has it)" if trim.archived else ")"
        return GapError(f"{why}; {what}", topic=self._topic, partition=self._shard, offset=self._start)

    # ---- large bodies ----------------------------------------------------------------------------------------------

    def _note_chunks(self, frame: Frame, offset: int) -> None:
        for op in frame.operations():
            if op.kind == CHUNK and op.type == ADD:
                self._chunks[op.id] = offset

    def row(self, key: bytes) -> bytes | None:
        """The row of a part of a large body, read from the frame that adds it; None if the frame is deleted."""
        chunk = record_id_of(key)
        offset = self._chunks.get(chunk)
        if offset is None:
            return None
        if self._bodies is None:
            identity = self._identity
            self._bodies = WalReader(self._kafka, identity.name, identity.journal, identity.shards, self._clock)
        for _, frame in self._bodies.frames(self._shard, offset, offset + 1, self._timeout_s):
            for op in frame.operations():
                if op.id == chunk and op.type == ADD:
                    return op.SerializeToString()
        return None

    def close(self) -> None:
        if self._bodies is not None:
            self._bodies.close()
