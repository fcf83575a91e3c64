"""The judge. It reads the simulated broker's log, folds it with `verify`'s fold, and compares what everybody saw.

What counts is the place in the WAL: of an operation, of the next epoch's marker, of a mark. Nothing here comes from the
engine, the writer or the loader. Every complaint begins with the name of the invariant (DESIGN, section 3).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random

from journal.errors import FencedError, NotTakenInError, OutcomeUnknownError
from journal.topics.names import wal_topic
from journal.verify.frame_check import parse_frame
from tests.simulation.fold_check import FoldCheck, Placed, Skipped
from tests.simulation.history import History, Tenure, Unit
from tests.simulation.partition import ABORTED, COMMITTED, OPEN
from tests.simulation.recording import RecordingBroker
from tests.simulation.reference import Reference, Seen
from tests.simulation.setting import JOURNAL, LIMITS, UUID
from tests.simulation.taking_in import GROUP, SOURCE, is_taken_back, judge
from tests.support.frames import ReadFrame, read_frame

_PROVEN = (FencedError, NotTakenInError)
"""What tells the caller of a group that was sent that it is known not to be there."""


class Checker:
    """Judges one seed after its end: `violations` has what does not hold."""

    def __init__(self, broker: RecordingBroker, history: History, chance: Random) -> None:
        self.violations = list(history.violations)
        self._history = history
        self._chance = chance
        self._shards = history.shards
        if history.losses:
            history.tenures = [tenure for tenure in history.tenures if tenure.active_at is not None]
        self._wal = [list(_frames(broker, shard, history)) for shard in range(history.shards)]
        self._garbage = [list(_garbage(broker, shard, history)) for shard in range(history.shards)]
        self._uncommitted = [frame for shard in range(history.shards) for frame in _uncommitted(broker, shard, history)]
        self._transactions = broker.transactions
        self._offsets = broker.group_offsets.get(GROUP, {})
        self._markers: list[dict[int, Placed]] = [{} for _ in self._wal]

    def check(self) -> list[str]:
        """All violations."""
        if wal_topic(JOURNAL) in self._history.lost_topics:
            self._check_tenures()  # what was lost is nowhere: loads alone say whether that was noticed
            return self.violations
        for shard in self._wal:
            self._check_chain(shard)
        self._check_groups()
        self._check_marks()
        if not self.violations:
            self._check_fates()
            self._check_tenures()
            self._check_ids()
        self._check_taken_in()
        FoldCheck(self._history, self._wal, self._garbage, self._markers, self.violations, self._chance).check()
        return self.violations

    def _violate(self, what: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(what)

    # ---- the WAL alone -----------------------------------------------------------------------------------------

    def _check_chain(self, shard: list[Placed]) -> None:
        number = epoch = group = 0
        for placed in shard:
            frame = placed.frame
            where = f"shard {placed.shard} offset {placed.offset}"
            if frame.previous != number or frame.number != number + 1:
                self._violate(f"chain: {where}: frame {frame.number} after {frame.previous}, and {number} was the last")
            if frame.epoch < epoch:
                self._violate(f"fenced: {where}: a frame of epoch {frame.epoch} behind the marker of {epoch}")
            if frame.group < group:
                self._violate(f"ordered: {where}: group {frame.group} after {group}")
            if frame.is_marker:
                if frame.epoch <= epoch:
                    self._violate(f"fenced: {where}: epoch {frame.epoch} begins after epoch {epoch}")
                self._markers[placed.shard][frame.epoch] = placed
            elif frame.epoch != epoch:
                self._violate(f"chain: {where}: epoch {frame.epoch} begins without a marker")
            number, epoch, group = frame.number, frame.epoch, frame.group
            if len(placed.value) > LIMITS.frame_bytes_max:
                self._violate(f"bounded: {where}: a frame of {len(placed.value)} bytes")

    def _check_groups(self) -> None:
        """A group has one last frame in each shard that it touches; markers and READY are in all."""
        lasts: Counter[tuple[int, int]] = Counter()
        sizes: Counter[int] = Counter()
        epochs: dict[int, set[int]] = defaultdict(set)
        transactions: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for shard in self._wal:
            for place, placed in enumerate(shard):
                frame = placed.frame
                ends = place + 1 == len(shard) or shard[place + 1].frame.group != frame.group
                lasts[placed.shard, frame.group] += frame.last
                sizes[frame.group] += len(frame.operations)
                epochs[frame.group].add(frame.epoch)
                transactions[frame.group].add(self._transactions[wal_topic(JOURNAL), placed.shard, placed.offset])
                if ends != frame.last:
                    self._violate(f"atomic: group {frame.group} is not whole in shard {placed.shard}")
        for (shard_number, group), count in lasts.items():
            if count != 1:
                self._violate(f"atomic: group {group} ends {count} times in shard {shard_number}")
        for group, size in sizes.items():
            if size > LIMITS.queue_operations_max + self._shards:
                self._violate(f"bounded: group {group} has {size} operations")
            if len(transactions[group]) > 1:
                self._violate(f"atomic: group {group} is in {len(transactions[group])} transactions")
            if len(epochs[group]) > 1:
                self._violate(f"exactly once: group {group} is in epochs {sorted(epochs[group])}")
        for epoch in {epoch for markers in self._markers for epoch in markers}:
            if any(epoch not in markers for markers in self._markers):
                self._violate(f"atomic: epoch {epoch} did not begin in every shard")

    def _check_marks(self) -> None:
        ends = {(placed.shard, placed.offset) for shard in self._wal for placed in shard if placed.frame.last}
        for shard, offset in sorted(self._history.marks - ends - self._history.garbage):
            self._violate(f"atomic: a mark of shard {shard} stands at {offset}, which is not a group's end")

    # ---- what was acknowledged ---------------------------------------------------------------------------------

    def _check_fates(self) -> None:
        """By position: what was acknowledged is there once, before the next marker; what was called failed is not."""
        places: dict[bytes, list[Placed]] = defaultdict(list)
        sent = {operation.data for frame in self._uncommitted for operation in frame.operations}
        for shard in self._wal:
            for placed in shard:
                for operation in placed.frame.operations:
                    if operation.data:
                        places[operation.data].append(placed)
        for tenure in self._history.tenures:
            for call, unit in tenure.calls:
                if unit is not None and tenure.ended and fate_of(unit) == "pending":
                    self._violate(f"bounded: epoch {tenure.epoch} ended, and nobody was told of {call}")
                if unit is None or not call.data:
                    continue
                found = places.get(call.data, [])
                what = f"epoch {tenure.epoch}: {call.verb} {call.id or call.tx}"
                fate = fate_of(unit)
                if fate == "done":
                    if len(found) != 1:
                        self._violate(f"durable: {what} was acknowledged and is {len(found)} times in the WAL")
                    elif found[0].frame.epoch != tenure.epoch or self._is_behind_newer(found[0], tenure.epoch):
                        self._violate(f"fenced: {what} was acknowledged and is behind a newer marker")
                elif fate == "failed" and found:
                    self._violate(f"outcome: {what} was called failed and is in the WAL: {unit.completion.error!r}")
                elif fate == "failed" and call.data in sent and not isinstance(unit.completion.error, _PROVEN):
                    self._violate(f"outcome: {what} was sent, and nothing proves it failed: {unit.completion.error!r}")
                elif len(found) > 1:
                    self._violate(f"exactly once: {what} is {len(found)} times in the WAL")

    def _is_behind_newer(self, placed: Placed, epoch: int) -> bool:
        return any(
            newer > epoch and marker.offset < placed.offset for newer, marker in self._markers[placed.shard].items()
        )

    def _check_tenures(self) -> None:
        """Each load shows the load before and, after it, a prefix of the calls: all acknowledged ones at least."""
        tenures = sorted(self._history.tenures, key=lambda one: one.epoch)
        if len({one.epoch for one in tenures}) != len(tenures):
            self._violate("superseded: two loads were of the same epoch")
        before: Tenure | None = None
        for tenure in tenures:
            if before is None:
                if tenure.load.seen != Seen({}, {}):
                    self._violate(f"gated: epoch {tenure.epoch} loads what nobody wrote")
            else:
                self._check_follows(before, tenure)
            before = tenure

    def _check_follows(self, before: Tenure, after: Tenure) -> None:
        state = Reference.of(before.load.seen)
        found, calls = after.load.seen, [each for each in before.calls if not is_taken_back(each[1])]
        cut_off = next((n for n, (_, unit) in enumerate(calls) if unit and fate_of(unit) != "done"), len(calls))
        for call, _ in calls[:cut_off]:
            state.apply(call)
        for call, unit in calls[cut_off:]:
            if unit is not None and fate_of(unit) == "done":
                self._violate(f"ordered: epoch {before.epoch}: {call} was acknowledged after one that was not")
        acknowledged = _at_load(state).seen(self._shards)
        if acknowledged == found:
            return
        # the transaction that was being written when it ended: one group, or several that share it
        place = cut_off
        while place < len(calls):
            last = calls[place][1]
            if last is None or fate_of(last) not in ("unknown", "pending"):
                break
            while place < len(calls) and calls[place][1] in (None, last):
                state.apply(calls[place][0])
                place += 1
            if _at_load(state).seen(self._shards) == found:
                return
        what = f"durable: epoch {after.epoch} does not load what epoch {before.epoch} left: "
        self._violate(what + _first_difference(acknowledged, found))

    def _check_taken_in(self) -> None:
        """What a node takes in is there once, and so far as its offset was committed."""
        data = [operation.data for shard in self._wal for placed in shard for operation in placed.frame.operations]
        for what in judge(self._offsets.get(SOURCE, 0), data):
            self._violate(what)

    def _check_ids(self) -> None:
        """An id that the journal makes was in no frame before, whatever became of it."""
        for tenure in self._history.tenures:
            used = {
                operation.id
                for shard in self._wal
                for placed in shard
                if placed.frame.epoch < tenure.epoch
                for operation in placed.frame.operations
            }
            again = used.intersection(tenure.issued)
            if again or len(set(tenure.issued)) != len(tenure.issued):
                self._violate(f"exactly once: epoch {tenure.epoch} issues ids again: {sorted(again)}")


def _at_load(state: Reference) -> Reference:
    """What the next epoch's load finds of a state."""
    loaded = state.copy()
    loaded.new_epoch()
    return loaded


def fate_of(unit: Unit) -> str:
    """done, failed, unknown, or pending for ever: its process crashed before it was told."""
    completion = unit.completion
    if not completion.done:
        return "pending"
    if completion.error is None:
        return "done"
    return "unknown" if isinstance(completion.error, OutcomeUnknownError) else "failed"


def _frames(broker: RecordingBroker, shard: int, history: History) -> Iterator[Placed]:
    log = broker.topics[wal_topic(JOURNAL)].logs[shard]
    for entry in [*log.trimmed, *log.entries]:
        if entry.state == COMMITTED and (shard, entry.offset) not in history.garbage:
            parse_frame(entry.value, UUID, shard, history.shards)
            yield Placed(shard, entry.offset, entry.timestamp, entry.value or b"", read_frame(entry.value))


def _uncommitted(broker: RecordingBroker, shard: int, history: History) -> Iterator[ReadFrame]:
    """What was written to a shard, and is not in it."""
    log = broker.topics[wal_topic(JOURNAL)].logs[shard]
    for entry in [*log.trimmed, *log.entries, *log.lost]:
        if entry.state in (OPEN, ABORTED) and entry.key != b"foreign":
            parse_frame(entry.value, UUID, shard, history.shards)
            yield read_frame(entry.value)


def _garbage(broker: RecordingBroker, shard: int, history: History) -> Iterator[Skipped]:
    log = broker.topics[wal_topic(JOURNAL)].logs[shard]
    for entry in [*log.trimmed, *log.entries]:
        if (shard, entry.offset) in history.garbage:
            yield Skipped(entry.offset, entry.timestamp, entry.value or b"")


def _first_difference(expected: Seen, found: Seen) -> str:
    for id in sorted({*expected.records, *found.records}):
        if expected.records.get(id) != found.records.get(id):
            return f"record {id}: {found.records.get(id)} instead of {expected.records.get(id)}"
    for tx in sorted({*expected.prepared, *found.prepared}):
        if expected.prepared.get(tx) != found.prepared.get(tx):
            return f"transaction {tx}: {found.prepared.get(tx)} instead of {expected.prepared.get(tx)}"
    return "nothing"
