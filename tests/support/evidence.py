"""What is in a journal's topics, read with plain clients and judged with `journal.verify`: no code of the engine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter

from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Identity, Mark
from journal.verify import Loaded, verify_shard
from journal.verify.state import fingerprint
from journal.verify.wal_fold import Happening, ShardFold
from tests.simulation.reference import Call, Verb
from tests.support.frames import ReadFrame, read_frame
from tests.support.script_model import Line
from tests.support.topic_reader import READ_TIMEOUT_S, read_topic

_TYPES: dict[Verb, int] = {"add": ADD, "update": UPDATE, "delete": DELETE}

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp in ms, key, value."""


@dataclass(frozen=True)
class Evidence:
    """A journal's committed records as they lie in Kafka."""

    uuid: bytes
    wal: list[list[Row]]
    table: list[list[Row]]

    @property
    def shards(self) -> int:
        return len(self.wal)


def read_evidence(bootstrap: str, journal: str) -> Evidence:
    """Everything that is committed now."""
    control = _read(bootstrap, f"{journal}.control")[0]
    identity = Identity.FromString(next(value for _, _, key, value in control if key == b"journal" and value))
    return Evidence(identity.journal, _read(bootstrap, f"{journal}.wal"), _read(bootstrap, f"{journal}.table"))


def _read(bootstrap: str, topic: str) -> list[list[Row]]:
    return read_topic(
        bootstrap, topic, lambda record: (record.offset() or 0, record.timestamp()[1], record.key(), record.value())
    )


# ---- judging it ----------------------------------------------------------------------------------------------


def verify_all(evidence: Evidence, load: Sequence[Line]) -> list[str]:
    """What `verify` finds in the tables and in a load made when they stood where they stand; nothing may be refused."""
    faults: list[str] = []
    for shard in range(evidence.shards):
        table = [(key or b"", value) for _, _, key, value in evidence.table[shard]]
        until = evidence.wal[shard][-1][0]
        loaded = Loaded(until, load)
        report = verify_shard(
            shard, evidence.shards, evidence.uuid, wal=evidence.wal[shard], table=table, loaded=loaded
        )
        faults += report.lines()
        if report.offset != until:
            faults.append(f"shard {shard}: the tables stand at {report.offset}, the WAL ends at {until}")
    return faults


def order_faults(evidence: Evidence, should: Sequence[Sequence[Call]]) -> list[str]:
    """Whether what took effect in each shard is what should have, once each; and nothing was refused.

    A frame has its operations by kind, so the operations of each kind and those of each record must be in order.
    """
    faults: list[str] = []
    for shard, wal in enumerate(evidence.wal):
        happened: list[Happening] = []
        fold = ShardFold(shard, evidence.shards, evidence.uuid, happened=happened.append)
        for offset, timestamp, _, value in wal:
            fold.take(offset, timestamp, value)
        mark = fold.state.mark
        faults += [f"shard {shard}: {finding}" for finding in fold.state.findings]
        if mark.rejected or mark.stale:
            faults.append(f"shard {shard}: {mark.rejected} rejected operations, {mark.stale} stale frames")
        told = [(one.type, one.id, one.data) for one in happened]
        wanted = [(_TYPES[call.verb], call.id, fingerprint(call.data)) for call in should[shard]]
        for among in (0, 1):  # the type, and the record
            in_groups = [sorted(each, key=itemgetter(among)) for each in (wanted, told)]
            for place, (one, other) in enumerate(zip_longest(*in_groups)):
                if one != other:
                    faults.append(f"shard {shard}: {one} should have happened {place}th, and {other} did")
                    break
    return faults


def frames_of(wal: Sequence[Row]) -> Iterator[tuple[int, ReadFrame]]:
    """Offset and frame of each record."""
    for offset, _, _, value in wal:
        yield offset, read_frame(value)


def settled_evidence(bootstrap: str, journal: str) -> Evidence:
    """Everything that is committed, once the worker has brought the tables to the WAL's end."""
    until = time.monotonic() + READ_TIMEOUT_S
    while True:
        evidence = read_evidence(bootstrap, journal)
        behind = [
            shard for shard in range(evidence.shards) if _mark(evidence.table[shard]) < evidence.wal[shard][-1][0]
        ]
        if not behind:
            return evidence
        assert time.monotonic() < until, f"the tables of shards {behind} do not reach the WAL's end"
        time.sleep(0.1)


def _mark(rows: Sequence[Row]) -> int:
    """The WAL offset of the newest mark."""
    marks = (Mark.FromString(value).offset for _, _, key, value in reversed(rows) if (key or b"")[:1] == b"m" and value)
    return next(marks, -1)
