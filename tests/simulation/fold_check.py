"""Everything that was seen of the tables against `verify`'s fold of the committed WAL, shard by shard.

A table partition or a local copy must be the fold up to its mark; an activation's load, the fold up to its marker; a
read-only load, the fold up to its group in every shard.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import NamedTuple

from journal.topics.names import wal_topic
from journal.verify.compare import compare_states
from journal.verify.differences import Differences
from journal.verify.state import Part
from journal.verify.wal_fold import Happening, ShardFold
from tests.simulation.history import CapturedLoad, CopySeen, History, SnapshotLoad, Tenure
from tests.simulation.observers import Listener
from tests.simulation.setting import JOURNAL, UUID
from tests.support.frames import ReadFrame


class Placed(NamedTuple):
    """A committed frame and where it is."""

    shard: int
    offset: int
    timestamp: int
    value: bytes
    frame: ReadFrame


class Skipped(NamedTuple):
    """A committed record that is no frame."""

    offset: int
    timestamp: int
    value: bytes


class FoldCheck:
    """Adds to `violations` what is not as the fold has it."""

    def __init__(
        self,
        history: History,
        wal: list[list[Placed]],
        garbage: list[list[Skipped]],
        markers: list[dict[int, Placed]],
        violations: list[str],
        chance: Random,
    ) -> None:
        self.violations = violations
        self._history = history
        self._shards = history.shards
        self._wal = wal
        self._garbage = garbage
        self._markers = markers
        self._chance = chance

    def _violate(self, what: str) -> None:
        self.violations.append(what)

    def check(self) -> None:
        expected = {id(load): _Expected([], [], []) for load in (*self._history.tenures, *self._history.snapshots)}
        for shard, placed in enumerate(self._wal):
            happened: list[Happening] = []
            skips = {one.offset for one in self._garbage[shard]}
            fold = ShardFold(shard, self._shards, UUID, skips, topic=wal_topic(JOURNAL), happened=happened.append)
            copies: dict[int, list[CopySeen]] = defaultdict(list)
            for copy in self._history.copies:
                if copy.shard == shard:
                    copies[copy.offset].append(copy)
            ends = self._load_ends(shard)
            self._at(fold, copies.pop(-1, []), ends.pop(-1, []), expected)
            records: list[Placed | Skipped] = [*placed, *self._garbage[shard]]
            for one in sorted(records, key=lambda record: record.offset):
                fold.take(one.offset, one.timestamp, one.value)
                self._at(fold, copies.pop(one.offset, []), ends.pop(one.offset, []), expected)
            for finding in fold.state.findings:
                self._violate(f"chain: {finding}")
            for offset in copies:
                self._violate(f"exactly once: {copies[offset][0].where}: a mark at {offset}, where no frame is")
            if not self.violations and fold.state.mark.rejected:
                self._violate(f"accepted: shard {shard}: {fold.state.mark.rejected} operations mean nothing")
            self._check_happened(shard, placed, happened)
        for tenure in self._history.tenures:
            self._check_load(f"epoch {tenure.epoch}", tenure.load, expected[id(tenure)])
        for snapshot in self._history.snapshots:
            self._check_load(f"read-only load of group {snapshot.group}", snapshot.load, expected[id(snapshot)])
            if snapshot.now and snapshot.group < snapshot.groups_before:
                self._violate(f"gated: a load of now is of group {snapshot.group}, not {snapshot.groups_before}")

    def _load_ends(self, shard: int) -> dict[int, list[Tenure | SnapshotLoad]]:
        """The WAL offset up to which each load must see this shard, and nothing beyond."""
        ends: dict[int, list[Tenure | SnapshotLoad]] = defaultdict(list)
        for tenure in self._history.tenures:
            marker = self._markers[shard].get(tenure.epoch)
            if marker is None:
                self._violate(f"gated: epoch {tenure.epoch} was loaded and has no marker in shard {shard}")
            else:
                ends[marker.offset].append(tenure)
        for snapshot in self._history.snapshots:
            upto = [placed.offset for placed in self._wal[shard] if placed.frame.group <= snapshot.group]
            ends[upto[-1] if upto else -1].append(snapshot)
        return ends

    def _at(
        self,
        fold: ShardFold,
        copies: list[CopySeen],
        loads: list[Tenure | SnapshotLoad],
        expected: dict[int, _Expected],
    ) -> None:
        """The fold stands where these were seen, or must be."""
        shard = fold.state.mark.shard
        for copy in copies:
            differences = Differences(shard)
            compare_states(fold.state, copy.state, differences)
            for line in differences.lines():
                self._violate(f"exactly once: {copy.where}: {line}")
        for load in loads:
            into = expected[id(load)]
            into.offsets.append(fold.state.mark.offset)
            into.records.append((dict(fold.state.records), {i: list(u) for i, u in fold.state.updates.items() if u}))
            into.parts.append({tx: part for tx, part in fold.state.transactions.items() if part.prepared})

    def _check_load(self, name: str, load: CapturedLoad, expected: _Expected) -> None:
        for shard in range(len(expected.offsets)):
            records, updates = expected.records[shard]
            at = self._last_frame(shard, load.marks[shard].offset)
            if at != expected.offsets[shard]:
                what = f"shard {shard} at {at} instead of {expected.offsets[shard]}"
                self._violate(f"gated: {name}: {what}")
            elif load.packed[shard] != records:
                ids = sorted(i for i, _ in load.packed[shard].items() ^ records.items())
                self._violate(f"gated: {name}: shard {shard}: records {ids}")
            elif load.packed_updates[shard] != updates:
                self._violate(f"gated: {name}: shard {shard}: updates")
        counts = {tx: sum(len(p[tx].staged) for p in expected.parts if tx in p) for p in expected.parts for tx in p}
        told = {tx: len(operations) for tx, (_, operations) in load.seen.prepared.items()}
        if counts != told:
            self._violate(f"in doubt stays: {name}: transactions {told} instead of {counts}")

    def _last_frame(self, shard: int, offset: int) -> int:
        """Where the last frame is that a mark covers: what was skipped behind it changes nothing."""
        if (shard, offset) not in self._history.garbage:
            return offset
        return max((placed.offset for placed in self._wal[shard] if placed.offset < offset), default=-1)

    def _check_happened(self, shard: int, placed: list[Placed], happened: list[Happening]) -> None:
        if self.violations:
            return
        listener = Listener(shard, self._shards, self._chance)
        listener.listen((one.offset, one.timestamp, one.value) for one in placed)
        if listener.happened != happened:
            self._violate(f"exactly once: shard {shard}: told {len(listener.happened)} of {len(happened)} happenings")


class _Expected(NamedTuple):
    """What a load must be, shard by shard."""

    offsets: list[int]
    records: list[tuple[dict[int, bytes], dict[int, list[bytes]]]]
    parts: list[dict[int, Part]]
