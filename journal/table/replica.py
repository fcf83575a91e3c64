"""The replica: a local copy of table partitions, which follows the table topic.

A new copy of a shard is *building*: rows go straight to the store, where nobody may read them yet. The shard becomes
readable at the mark that was its partition's newest when reading began, or at a later mark. Older marks in a compacted
topic describe no state, because rows of keys that were written again later are missing. From then on, the shard's rows
are held back until their mark arrives, and are written in one batch, with the mark and the copy's place in the log. So
a reader always sees the state of a mark. A shard that becomes readable while others are still building already works
like that, but it is no more durable than the others: the places of all copies are stored together, after one flush,
once every shard is readable.

The cleaner compacts no rows younger than min.compaction.lag. So the state of a mark is complete if the mark was younger
than that when it was read; so is the state of the mark that was the newest at any moment within that time. A readable
shard may meet older rows, after its process was away, slow or stopped. It then goes back to building, on top of its
present rows, up to the newest mark.

An existing copy is used again if it belongs to the same topic and journal, its place is inside the log, and it stood at
the end of the log not longer ago than tombstones are kept, by the brokers' clock. Otherwise it is dropped, because it
could hold records that were deleted. The place is kept with the leader epoch of its mark's record, so that the brokers
can tell whether the log was truncated before it (KIP-320). The copy first reads the mark at which it stands again, and
each further mark must name the one before it. If one does not, Kafka has lost acknowledged rows (all brokers lost power
at once, say). The copy is then dropped too, because its next state would be one that never was.

Old marks may have been compacted away. So a copy that was built on top of an older state is *doubted*: before it
becomes readable its rows are counted, and if the numbers are not those of its marks it is built from nothing. A
copy on which the WAL is folded (a worker's, or a read-only load's) is also doubted when it was built from nothing: the
cleaner may have removed rows because of newer ones that Kafka has lost since, and the fold would stand on a table that
lacks rows. (A node's load counts the rows itself.)
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
from journal.process.commands import command
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
"""The lengths of the keys of most rows: of records, and of their first row of updates."""
_YES = b"\x01"
_NO = b"\x00"


class CopyState(Enum):
    """Whether a copy of one shard can be read."""

    BUILDING = "building"
    READABLE = "readable"


@dataclass(slots=True)
class _Shard:
    place: CopyPlace
    """The place of the last complete state."""
    end: int
    end_captured: Clocks
    since: Opening
    state: CopyState
    mark: Mark
    name: int
    """The name of the shard's mark, which the next mark must give as its predecessor."""
    held: list[Change] = field(default_factory=list)
    proved: bool = True
    """Whether the copy's mark, or a newer one, was found in the table. Only then is it certain that the copy holds
    nothing that the table has lost."""
    at_mark: bool = True
    found: CopyPlace | None = None
    """The place behind the last mark read while the shard is building."""


class CopyListener(Protocol):
    """A listener is called when the readable state of a copy changes. The calls come in the middle of a poll, so it
    must only take notes, and raise nothing."""

    def checkpointed(self, changes: Sequence[Change]) -> None:
        """The store now has the rows of one shard up to its next mark. The shard was readable before and still is."""

    def lost(self) -> None:
        """The store may have changed in other ways: the listener must forget all that it knows of the state."""


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

        With `counts_rows` the rows of a copy that was built from nothing are counted. An owner that folds the WAL on
        top needs this: what the fold finds missing it takes off the mark's numbers, so that a count behind it shows
        less. For other owners their load counts.
        """
        self.identity = identity
        self._topic = topic
        self._store = store
        self._clock = clock
        self._age = TableAge(
            clock, wall_ms, delete_retention_ms=delete_retention_ms, min_compaction_lag_ms=min_compaction_lag_ms
        )
        self._old_ms = 0.0
        """Rows that were appended before this time may have been compacted when the last poll read them."""
        self._whole = self._age.clocks()
        """When the copy last stood at the end of the log. Tombstones written later have to be read before the cleaner
        drops them."""
        self._doubted = False
        """Whether the rows have to be counted before the copy becomes readable."""
        self._is_fresh = False
        """Whether the copy was just built from the topic, and no load has yet confirmed the marks' numbers of rows."""
        self._counts_rows = counts_rows
        self._held_bytes_max = held_bytes_max
        self._held_bytes = 0
        self._timeout_s = 0.0
        self._kafka = kafka
        self._reader = kafka.reader(topic)
        self._numbers = tuple(shards)
        self._shards: dict[int, _Shard] = {}
        self._unnoted: dict[int, dict[bytes, bytes]] = {}
        """The places of shards that are readable again. They are stored together once all shards are readable, so that
        one flush is enough."""
        self._listener: CopyListener | None = None

    def listen(self, listener: CopyListener | None) -> None:
        """From now on call `listener` instead of the listener before it; with None, nobody is called."""
        self._listener = listener

    def _lose(self) -> None:
        if self._listener is not None:
            self._listener.lost()

    # ---- opening ---------------------------------------------------------------------------------------------------

    def open(self, timeout_s: float) -> None:
        """Decide whether the copy can be used, and seek to the place where it stands.

        It may be called again after an error: rows held back are dropped, and read again from the place of the last
        state.
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
        """Seek to the place where the copy stands, or to its mark right before, which is read again as a proof that the
        table still has it."""
        copies = self._shards.items()
        self._reader.seek(
            {shard: copy.place.position - (not copy.proved) for shard, copy in copies},
            {shard: copy.place.leader_epoch for shard, copy in copies if copy.place.leader_epoch != NO_EPOCH},
        )

    def _capture_ends(self, shards: Collection[int]) -> None:
        """Capture the offsets behind the newest marks as ends. A row behind the newest mark (a foreign row, say)
        belongs to no state yet."""
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
        """The shards whose log may have rows that the copy lacks. A difference of one offset is a transaction marker,
        which is neither a row nor a tombstone."""
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
        """Raises CutOffError if the copy has other numbers of rows than its marks say. If the copy was just built from
        the topic, the table itself is at fault: then it raises CountError, or RowError for updates without a record."""
        try:
            with self.counting():
                require_counted(self._store, self.marks())
        except LocalDamageError as error:
            raise CutOffError(str(error)) from error

    @contextmanager
    def counting(self) -> Iterator[None]:
        """A context for code that compares the copy's rows with its marks. A difference means that the copy is damaged,
        and LocalDamageError is raised. If the copy was just built from the topic, the topic itself is at fault, and the
        error is raised as it is."""
        try:
            yield
        except (CountError, RowError) as error:
            if self._is_fresh and isinstance(error, RowError):
                raise  # a loader too raises such errors, about the content of its records
            if self._is_fresh:
                name = self._topic.removesuffix(table_topic(""))
                what = f"{error}: {self._topic} itself is so. `{command('verify', journal=name)}` names where"
                raise CountError(
                    f"{what}, and `{command('repair table', 'SHARD', journal=name)}` mends numbers of rows"
                ) from error
            self._store.write((), {_IDENTITY: b""})  # without an identity, the copy is dropped when it is opened next
            what = f"the local copy is not what its marks say, and is built anew when it is used again: {error}"
            raise LocalDamageError(what) from error
        self._is_fresh = False

    # ---- following -------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> int:
        """Read the rows that have arrived, and add them to the copy; returns their number. It waits at most `timeout_s`
        for the first row."""
        began = self._age.clocks()
        if self._age.is_too_long_since(self._whole):
            # the process was stopped or made no poll for so long that tombstones may be missed: check whether the copy
            # must be dropped
            self.open(self._timeout_s)
        try:
            taken = self._take_in(timeout_s)
        except (GapError, CutOffError) as error:
            log.warning("%s does not go on where its local copy stands, which is built anew: %s", self._topic, error)
            self._open(anew=True)
            self._doubted = True  # the table may have lost more than what was noticed
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
        """Hot path. Rows between the marks of a shard that is building go to `direct` unchanged, as zipped keys and
        values, because the store takes them one by one and needs no tuple for each."""
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
        """Go back to building on top of the last state, if there is a mark to build up to.

        There is none for the newest row, nor for rows that were appended after the end was captured a short while ago.
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
        """Require that the mark names the copy's mark as its predecessor. If it does not, either marks between them
        were compacted away, and the copy builds on, or the table has lost rows, and CutOffError is raised."""
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
            self._lose()  # the write may or may not have happened
            raise
        if self._listener is not None:
            self._listener.checkpointed(list(copy.held))
        self._forget_held(copy)
        copy.place = place

    def _forget_held(self, copy: _Shard) -> None:
        self._held_bytes -= sum(len(key) + len(value or b"") for key, value in copy.held)
        copy.held.clear()

    def _note_ends(self, at: Mapping[int, int] | None = None) -> None:
        """Make those building shards readable that stand at a mark at or beyond their captured end.

        `at` has the offsets that the shards have reached in the middle of a batch; without it, the reader's offsets
        count.
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
            self._store.flush()  # the rows must be on disk before the place is
            named = {name: value for noted in self._unnoted.values() for name, value in noted.items()}
            self._store.write((), named | {_BUILDING: _NO})
            self._unnoted.clear()

    # ---- what it holds ---------------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether every shard can be read, so that the copy holds the state of its marks."""
        return all(copy.state is CopyState.READABLE for copy in self._shards.values())

    def mark(self, shard: int) -> Mark:
        """The mark at which this copy of a shard stands; before the first one, an empty mark with offset -1."""
        copy = self._shards[shard]
        return copy.mark if copy.state is CopyState.READABLE else _no_mark(shard)

    def marks(self) -> dict[int, Mark]:
        return {shard: self.mark(shard) for shard in self._shards}

    def lag(self, shard: int) -> int:
        """Offsets from the place of this copy to the end that was last captured; 0 or less means that it has reached
        that end."""
        return self._shards[shard].end - self._reader.position(shard)

    def ends(self, timeout_s: float) -> dict[int, int]:
        """The end of the log of each shard of the table at present; the brokers are asked for it."""
        return self._reader.ends(self._numbers, timeout_s)

    def behind(self, ends: Mapping[int, int]) -> int:
        """The number of offsets before `ends` that this copy has not read."""
        return sum(max(0, end - self._reader.position(shard)) for shard, end in ends.items())

    def catch_up(self, timeout_s: float) -> None:
        """Follow the table until every shard is readable and has reached its end as last captured."""
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
        """Stop following. The store stays open, because its owner closes it."""
        self._reader.close()

    def _row_error(self, record: LogRecord, reason: str) -> RowError:
        return RowError(reason, topic=self._topic, partition=record.partition, offset=record.offset)


def copy_identity(cluster_id: str, topic_id: str, partitions: int, journal: bytes) -> bytes:
    """The identity of a local copy: cluster, topic, number of partitions and journal. A copy with another identity is
    dropped."""
    return f"{cluster_id}/{topic_id}/{partitions}/{journal.hex()}".encode()


def _no_mark(shard: int) -> Mark:
    return Mark(shard=shard, offset=-1)
