"""The replica: a local copy of table partitions, following the table topic.

A copy made from nothing is *building*: rows go straight to the store, which is no state yet and unreadable. A shard is
readable from its partition's newest mark, as captured when reading began, or a later one: in a compacted topic the rows
behind older marks describe no state, as keys that were written again later are missing. From then on its rows are held
back until their mark, and written with it and the position in one batch, so that what can be read is always the state
of a mark. A shard that was built and can be read before others that are being built goes on like that, but is no more
durable than they are: their positions are noted together, behind one flush, once every shard can be read.

The cleaner leaves alone what was written within min.compaction.lag. So a mark that was younger when it was read has its
state behind it, and so has the newest one of any moment within that time. A readable shard that meets older rows (it
was away, or slow, or its process was stopped) is building again: on top of what it has, up to the newest mark.

A copy that exists is used again if it is of the same topic and journal, its position is inside the log, and it stood at
the end more recently than tombstones are kept, by the brokers' clock. Otherwise it is dropped: it could hold records
that were deleted. The position is that of the last state, and it is kept with the leader epoch of its mark's record, so
that the brokers tell whether the log was truncated before it (KIP-320). It first looks for the mark of that state, and
each mark that it takes must name the one before it: otherwise Kafka has lost what it had acknowledged (all that had it
lost power, say), and the copy is dropped too, for it would go on from a state that is nobody's.

Marks of long ago may have been compacted away. A copy that was built on top of an older state is *doubted*: before it
becomes readable its rows are counted, and it is built from nothing if they are not as many as its marks say. A worker's
copy is doubted when it was built from nothing, too: the cleaner may have taken rows away for tombstones that Kafka then
lost, and a fold on top of such a table would go on as if it were whole. (What a node loads is counted by the load.)
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Protocol, cast

from journal.disk.ports import LocalStore
from journal.errors import CountError, DeadlineError, GapError, LocalDamageError, RowError
from journal.fold.rows import Change
from journal.kafka.ports import Kafka, LogRecord, RecordRun
from journal.load.loading import require_counted
from journal.process.clocks import Clock
from journal.table.age import (
    NO_EPOCH,
    Clocks,
    CopyPlace,
    CutOffError,
    Opening,
    TableAge,
    note_checkpoint,
    place_behind,
    stored_place,
)
from journal.topics.marks import FoundMark, MarkReader, mark_of
from journal.topics.names import table_topic
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG, RowType, mark_key, row_type
from journal.wire.rows import mark_name

log = logging.getLogger(__name__)

_IDENTITY = b"identity"
_BUILDING = b"building"
_RECORD_TAG_BYTE = RECORD_TAG[0]
_RECORD_ROW_BYTES = (RECORD_KEY_BYTES, RECORD_KEY_BYTES + 1)
"""Bytes of the keys of most rows: records, and the first of their updates."""
_YES = b"\x01"
_NO = b"\x00"


class CopyState(Enum):
    """What a copy of one shard is good for."""

    BUILDING = "building"
    READABLE = "readable"


@dataclass(slots=True)
class _Shard:
    place: CopyPlace
    """Behind the last state."""
    end: int
    end_captured: Clocks
    since: Opening
    state: CopyState
    mark: Mark
    name: int
    """What the next mark calls it."""
    held: list[Change] = field(default_factory=list)
    proved: bool = True
    """Its mark was found in the table, or a newer one: it does not hold what the table has lost."""
    at_mark: bool = True
    found: CopyPlace | None = None
    """Behind the last mark read, while it is building."""


class CopyListener(Protocol):
    """Told what becomes of the state that can be read. Called in the middle of a poll: it takes notes, and raises
    nothing."""

    def checkpointed(self, changes: Sequence[Change]) -> None:
        """The store has rows of one shard up to its next mark; that shard could be read before, and can be now."""

    def lost(self) -> None:
        """The store may have changed otherwise: what was known of it is worth nothing."""


class Replica:
    """A copy of `shards` of a table topic in `store`. Not thread-safe: one owner."""

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        shards: Collection[int],
        store: LocalStore,
        identity: bytes,
        *,
        clock: Clock,
        wall_ms: Clock,
        delete_retention_ms: int,
        min_compaction_lag_ms: int,
        held_bytes_max: int,
        counts_rows: bool = False,
    ) -> None:
        """`identity` is bytes that differ for another cluster, topic or journal; `wall_ms` is ms since 1970.

        With `counts_rows` the rows of a copy that was built from nothing are counted, for owners that load none.
        """
        self.identity = identity
        self._topic = topic
        self._store = store
        self._clock = clock
        self._age = TableAge(
            clock, wall_ms, delete_retention_ms=delete_retention_ms, min_compaction_lag_ms=min_compaction_lag_ms
        )
        self._old_ms = 0.0
        """Rows of before may have been compacted when the last poll read them."""
        self._whole = self._age.clocks()
        """When the copy last lacked nothing: tombstones of later have to be read before they are gone."""
        self._doubted = False
        """Its rows have to be counted before they are a state."""
        self._is_fresh = False
        """Whether the copy was built from the topic and no load has yet found as many rows as the marks say."""
        self._counts_rows = counts_rows
        self._held_bytes_max = held_bytes_max
        self._held_bytes = 0
        self._timeout_s = 0.0
        self._kafka = kafka
        self._reader = kafka.reader(topic)
        self._numbers = tuple(shards)
        self._shards: dict[int, _Shard] = {}
        self._unnoted: dict[int, dict[bytes, bytes]] = {}
        """Shards that can be read again, and what is to be noted of them once all can: so one flush serves all."""
        self._listener: CopyListener | None = None

    def listen(self, listener: CopyListener | None) -> None:
        """Tell `listener`, and no other, from now on."""
        self._listener = listener

    def _lose(self) -> None:
        if self._listener is not None:
            self._listener.lost()

    # ---- opening ---------------------------------------------------------------------------------------------------

    def open(self, timeout_s: float) -> None:
        """Decide whether the copy can be used, and seek to where it stands.

        May be called again after an error: what was held back is dropped, and read again from where the copy stands.
        """
        self._timeout_s = timeout_s
        self._open()

    def _open(self, *, anew: bool = False) -> None:
        self._held_bytes = 0
        self._unnoted.clear()
        now, timeout_s = self._age.clocks(), self._timeout_s
        ends = self._reader.bounds(self._numbers, timeout_s)
        places = {shard: stored_place(self._store, shard) for shard in self._numbers}
        newest = {} if anew else self._newest_marks(self._behind(places, ends))
        if anew or not self._is_usable(places, ends, newest):
            self._lose()
            self._store.clear()
            self._store.write((), {_IDENTITY: self.identity, _BUILDING: _YES})
            places = dict.fromkeys(self._numbers)
            self._is_fresh = True
        self._whole = now
        state = CopyState.READABLE if self._store.named(_BUILDING) == _NO else CopyState.BUILDING
        self._doubted = state is CopyState.BUILDING and (self._counts_rows or any(places.values()))
        for shard, (start, end) in ends.items():
            place, row = places[shard] or CopyPlace(start, 0, NO_EPOCH), self._store.get(mark_key(shard))
            mark = _no_mark(shard) if row is None else Mark.FromString(row)
            name = 0 if row is None else mark_name(row)
            copy = self._shards[shard] = _Shard(place, end, now, self._age.opening(end), state, mark, name)
            copy.proved = place.position == start or row is None
        if state is CopyState.BUILDING:
            self._capture_ends(self._numbers)
            self._lose()
        self._seek()
        self._note_ends()

    def _seek(self) -> None:
        """To where the copy stands: its mark is right before, unless the cleaner has dropped it for a newer one."""
        copies = self._shards.items()
        self._reader.seek(
            {shard: copy.place.position - (not copy.proved) for shard, copy in copies},
            {shard: copy.place.leader_epoch for shard, copy in copies if copy.place.leader_epoch != NO_EPOCH},
        )

    def _capture_ends(self, shards: Collection[int]) -> None:
        """The offsets behind the newest marks. What lies behind one (a foreign row, say) belongs to no state yet."""
        now = self._age.clocks()
        for shard, found in self._newest_marks(shards).items():
            copy = self._shards[shard]
            copy.end, copy.end_captured = found.place + 1, now

    def _newest_marks(self, shards: Collection[int]) -> dict[int, FoundMark]:
        if not shards:
            return {}
        with closing(MarkReader(self._kafka, self._topic, self._clock)) as marks:
            newest = marks.newest_of(shards, self._timeout_s)
        self._age.see(max(found.timestamp for found in newest.values()))
        return newest

    def _behind(self, places: Mapping[int, CopyPlace | None], ends: Mapping[int, tuple[int, int]]) -> list[int]:
        """The shards of which the log may have something that the copy lacks. One offset is a transaction marker: no
        row, no tombstone."""
        known = ((shard, place) for shard, place in places.items() if place is not None)
        return [shard for shard, place in known if ends[shard][1] - place.position > 1]

    def _is_usable(
        self,
        places: Mapping[int, CopyPlace | None],
        ends: Mapping[int, tuple[int, int]],
        behind: Iterable[int],
    ) -> bool:
        if self._store.named(_IDENTITY) != self.identity:
            return False
        for shard, place in places.items():
            start, end = ends[shard]
            if place is None or not start <= place.position <= end:
                return False
        stood = [place.stood_ms for shard in behind if (place := places[shard]) is not None and place.stood_ms]
        return not stood or not self._age.may_lack_tombstones(min(stood))

    # ---- counting --------------------------------------------------------------------------------------------------

    def _require_counted(self) -> None:
        """Raises CutOffError for a copy that has other rows than its marks say, and CountError (or RowError, for rows
        that do not fit together) if it was just built from the topic: it is the table then."""
        try:
            with self.counting():
                require_counted(self._store, self.marks())
        except LocalDamageError as error:
            raise CutOffError(str(error)) from error

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Around what compares the copy's rows with its marks. Another number is damage of the copy, unless it was just
        built from the topic: then it is the topic's, and raised as it is."""
        try:
            yield
        except (CountError, RowError) as error:
            if self._is_fresh and isinstance(error, RowError):
                raise  # a loader raises such errors too, of what its records say
            if self._is_fresh:
                name = self._topic.removesuffix(table_topic(""))
                what = f"{error}: {self._topic} itself is so. `kafka-journal verify -j {name}` names where"
                raise CountError(
                    f"{what}, and `kafka-journal repair table SHARD -j {name}` mends numbers of rows"
                ) from error
            self._store.write((), {_IDENTITY: b""})  # whoever opens it next drops it
            what = f"the local copy is not what its marks say, and is built anew when it is used again: {error}"
            raise LocalDamageError(what) from error
        self._is_fresh = False

    # ---- following -------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> int:
        """Take in what has arrived, waiting for the first row at most `timeout_s`. How many rows that were."""
        began = self._age.clocks()
        if self._age.is_too_long_since(self._whole):
            self.open(self._timeout_s)  # whoever was not asked, or stopped, for so long may have to be dropped
        try:
            taken = self._take_in(timeout_s)
        except (GapError, CutOffError) as error:
            log.warning("%s does not go on where its local copy stands, which is built anew: %s", self._topic, error)
            self._open(anew=True)
            self._doubted = True  # what the table has lost may be more than that
            return 0
        if self._is_at_end():
            self._whole = began
        return taken

    def _take_in(self, timeout_s: float) -> int:
        runs = self._reader.poll_runs(timeout_s)
        for run in runs:
            self._age.see(run.records(len(run.offsets) - 1)[0].timestamp)
        self._old_ms = self._age.old_ms()
        direct: list[Iterable[Change]] = []
        for run in runs:
            self._take_run(run, direct)
        if direct:
            self._store.write(chain.from_iterable(direct), {}, durable=False)
        self._note_ends()
        for shard, copy in self._shards.items():
            if not copy.proved and self._reader.position(shard) >= copy.end:
                raise CutOffError(f"shard {shard}: the mark at WAL offset {copy.mark.offset} is not there any more")
        return sum(len(run.offsets) for run in runs)

    def _take_run(self, run: RecordRun, direct: list[Iterable[Change]]) -> None:
        """Hot path: what lies between the marks of a shard that is building goes to `direct` as it is; zipped, as that
        makes no tuple for a row that the store takes one by one."""
        copy = self._shards[run.partition]
        first = 0
        if copy.state is CopyState.BUILDING and run.offsets[0] >= copy.place.position:
            keys, values, tag, (short, long) = run.keys(), run.values(), _RECORD_TAG_BYTE, _RECORD_ROW_BYTES
            others = [n for n, key in enumerate(keys) if not key or key[0] != tag or not short <= len(key) <= long]
            for place in [*others, len(keys)]:
                if place > first:
                    direct.append(cast(Iterable[Change], zip(keys[first:place], values[first:place], strict=True)))
                    copy.at_mark = False
                first = place + 1
                for record in run.records(place, first):
                    self._take(record, direct)
                if self._shards[run.partition].state is CopyState.READABLE:
                    break
        for record in run.records(first):
            self._take(record, direct)

    def _take(self, record: LogRecord, direct: list[Iterable[Change]]) -> None:
        copy = self._shards[record.partition]
        key = record.key
        if record.offset < copy.place.position:
            if key != mark_key(record.partition) or mark_name(record.value or b"") != copy.name:
                raise CutOffError(f"shard {record.partition}: another row is where the copy's mark was")
            copy.proved = True
            return
        if key is None:
            raise self._row_error(record, "a row without a key")
        try:
            is_mark = row_type(key) is RowType.MARK
        except RowError as error:
            raise self._row_error(record, error.reason) from None
        copy.at_mark = is_mark
        if copy.state is CopyState.READABLE and copy.since.may_be_old(record.offset, record.timestamp, self._old_ms):
            self._take_old(copy, record, direct)
        if is_mark:
            self._take_mark(copy, record, direct)
        if copy.state is CopyState.BUILDING:
            direct.append([(key, record.value)])
            if is_mark and record.offset + 1 >= copy.end:
                self._store.write(chain.from_iterable(direct), {}, durable=False)
                direct.clear()
                self._note_ends({record.partition: record.offset + 1})
            return
        copy.held.append((key, record.value))
        self._held_bytes += len(key) + len(record.value or b"")
        if is_mark:
            self._write_held(record.partition, copy, place_behind(record))
        elif self._held_bytes > self._held_bytes_max:
            self._take_old(copy, record, direct)
            if copy.state is CopyState.READABLE:
                raise self._row_error(record, f"more than {self._held_bytes_max} bytes of rows without a mark")

    def _take_old(self, copy: _Shard, record: LogRecord, direct: list[Iterable[Change]]) -> None:
        """Build on from the last state, if there is a mark to build up to.

        None is there for rows that nobody had written when the end was captured, not long ago, and for the newest.
        """
        if record.offset + 1 >= copy.end and not self._age.is_long_since(copy.end_captured):
            return
        self._capture_ends((record.partition,))
        if record.offset + 1 < copy.end:
            self._build_on(copy, record.partition, direct)

    def _build_on(self, copy: _Shard, shard: int, direct: list[Iterable[Change]]) -> None:
        self._lose()
        self._store.write((), {_BUILDING: _YES})
        self._unnoted.pop(shard, None)
        self._doubted = True
        copy.state = CopyState.BUILDING
        copy.proved = True  # there is a newer mark to build up to
        direct.append(list(copy.held))
        self._forget_held(copy)

    def _take_mark(self, copy: _Shard, record: LogRecord, direct: list[Iterable[Change]]) -> None:
        mark = mark_of(self._topic, record)
        if copy.state is CopyState.READABLE:
            self._require_chained(copy, mark, record, direct)
        copy.mark, copy.name = mark, mark_name(record.value or b"")
        copy.found = place_behind(record)
        copy.proved = True

    def _require_chained(self, copy: _Shard, mark: Mark, record: LogRecord, direct: list[Iterable[Change]]) -> None:
        """A mark that does not name the copy's is not of its history, unless marks in between were compacted away."""
        if mark.previous == copy.name and copy.proved:
            return
        if mark.offset < copy.mark.offset or not copy.since.may_be_old(
            record.offset, copy.place.stood_ms, self._old_ms
        ):
            raise CutOffError(
                f"shard {record.partition}: the mark at WAL offset {mark.offset} does not follow the copy's, at "
                f"{copy.mark.offset}"
            )
        self._capture_ends((record.partition,))
        self._build_on(copy, record.partition, direct)

    def _write_held(self, shard: int, copy: _Shard, place: CopyPlace) -> None:
        named = note_checkpoint(shard, *place)
        try:
            if shard in self._unnoted:
                self._store.write(copy.held, {}, durable=False)
                self._unnoted[shard] = named
            else:
                self._store.write(copy.held, named)
        except BaseException:
            self._lose()  # whether it was written is not known
            raise
        if self._listener is not None:
            self._listener.checkpointed(list(copy.held))
        self._forget_held(copy)
        copy.place = place

    def _forget_held(self, copy: _Shard) -> None:
        self._held_bytes -= sum(len(key) + len(value or b"") for key, value in copy.held)
        copy.held.clear()

    def _note_ends(self, at: Mapping[int, int] | None = None) -> None:
        """Make building shards readable that stand at a mark at or beyond their captured end.

        `at` has their positions in the middle of a batch; between batches they are the reader's.
        """
        for shard in self._shards if at is None else at:
            copy = self._shards[shard]
            if copy.state is not CopyState.BUILDING or not copy.at_mark:
                continue
            position = self._reader.position(shard) if at is None else at[shard]
            if position < copy.end:
                continue
            if self._age.is_long_since(copy.end_captured):
                self._capture_ends((shard,))
                if position < copy.end:
                    continue
            copy.state = CopyState.READABLE
            copy.place = copy.found or copy.place
            self._unnoted[shard] = note_checkpoint(shard, *copy.place)
        if self._unnoted and self.readable:
            if self._doubted:
                self._require_counted()
                self._doubted = False
            self._store.flush()  # a position is never there without its rows
            named = {name: value for noted in self._unnoted.values() for name, value in noted.items()}
            self._store.write((), named | {_BUILDING: _NO})
            self._unnoted.clear()

    # ---- what it holds ---------------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether every shard is the state of its mark."""
        return all(copy.state is CopyState.READABLE for copy in self._shards.values())

    def mark(self, shard: int) -> Mark:
        """The newest mark of a shard that this copy stands at; an empty one (offset -1) before the first."""
        copy = self._shards[shard]
        return copy.mark if copy.state is CopyState.READABLE else _no_mark(shard)

    def marks(self) -> dict[int, Mark]:
        return {shard: self.mark(shard) for shard in self._shards}

    def lag(self, shard: int) -> int:
        """Offsets between what this copy holds and the end last captured; 0 or less: caught up with that."""
        return self._shards[shard].end - self._reader.position(shard)

    def ends(self, timeout_s: float) -> dict[int, int]:
        """Where the table ends now, by shard; asks the brokers."""
        return self._reader.ends(self._numbers, timeout_s)

    def behind(self, ends: Mapping[int, int]) -> int:
        """Offsets before `ends` that this copy has not read."""
        return sum(max(0, end - self._reader.position(shard)) for shard, end in ends.items())

    def catch_up(self, timeout_s: float) -> None:
        """Follow until every shard is readable and stands at or beyond its end as last captured."""
        until = self._clock() + timeout_s
        while not self._is_at_end():
            left = until - self._clock()
            if left <= 0:
                behind = max(self._shards, key=self.lag)
                raise DeadlineError(f"{self._topic}[{behind}]: the copy is {self.lag(behind)} offsets behind")
            self.poll(left)

    def _is_at_end(self) -> bool:
        return all(
            copy.state is CopyState.READABLE and copy.proved and self.lag(shard) <= 0
            for shard, copy in self._shards.items()
        )

    def close(self) -> None:
        """Stop following. The store stays open: it is its owner's."""
        self._reader.close()

    def _row_error(self, record: LogRecord, reason: str) -> RowError:
        return RowError(reason, topic=self._topic, partition=record.partition, offset=record.offset)


def copy_identity(cluster_id: str, topic_id: str, partitions: int, journal: bytes) -> bytes:
    """What a local copy is a copy of."""
    return f"{cluster_id}/{topic_id}/{partitions}/{journal.hex()}".encode()


def _no_mark(shard: int) -> Mark:
    return Mark(shard=shard, offset=-1)
