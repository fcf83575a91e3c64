"""A frame has its operations by kind, not in the order in which they were given, and has the effect of that order.

Calls are made of a journal, which seals their operations into frames. The fold of these frames by `journal.verify`,
which shares no code with writer and engine, must be the state that the simulation's reference makes of the calls alone.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from journal.append.core import Core
from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.operations import DeletedRecords, NewRecords
from journal.append.writing import Joining
from journal.errors import JournalError
from journal.limits import Limits
from journal.v1.journal_pb2 import ADD, DELETE, MARKER, UPDATE
from journal.verify import fold_shard
from journal.verify.state import VerifiedShard, fingerprint, unpack_record, unpack_update
from journal.wire.ids import make_id
from tests.simulation.reference import Call, Reference
from tests.support.build import JOURNAL, NONCE
from tests.support.cores import SHARDS, Committing, active_core

LIMITS = Limits(
    frame_bytes_max=4_096,
    data_bytes_max=1_000,
    transaction_buffer_operations_max=4,
    transaction_buffer_bytes_max=10_000,
)
FIRST = 101
"""The sequence of the first id that the journal issues; callers choose it too."""
KIND, UPDATE_KIND, END_KIND, SUBJECT = 1, 2, 3, 77
ORIGIN = FrameOrigin(JOURNAL, 3, "node")


class Sealing(Committing):
    """A writer that keeps the values of the frames of each shard."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[list[bytes]] = [[] for _ in range(SHARDS)]
        markers = Group(SHARDS, LIMITS.frame_bytes_max)
        for shard in range(SHARDS):
            markers.put(shard, MARKER, 0, 0, NONCE)
        self._seal(markers)

    def write(self, group: Group, joining: Joining) -> None:
        self._seal(group)
        super().write(group, joining)

    def _seal(self, group: Group) -> None:
        self.numbers: FrameNumbers = group.seal(ORIGIN, self.numbers)
        for record in group.records("wal"):
            self.values[record.partition].append(record.value or b"")


class Caller:
    """Calls a journal and, with what it accepts, the reference."""

    def __init__(self) -> None:
        self.writer = Sealing()
        self.core = active_core(self.writer, LIMITS)
        self.reference = Reference()

    def call(self, what: Callable[[Core], object], *calls: Call) -> None:
        try:
            what(self.core)
        except JournalError:
            return
        for each in calls:
            self.reference.apply(each)

    def step(self) -> None:
        self.core.step(0.0)

    def add(self, record_id: int, data: bytes, tx: int) -> None:
        self.call(lambda core: core.add(record_id, KIND, data, tx), Call("add", record_id, KIND, data, tx=tx))

    def update(self, record_id: int, kind: int, data: bytes, replaceable: bool, subject: int, tx: int) -> None:
        self.call(
            lambda core: core.update(record_id, kind, data, replaceable, subject, tx),
            Call("update", record_id, kind, data, replaceable, subject, tx),
        )

    def delete(self, record_id: int, tx: int) -> None:
        self.call(lambda core: core.delete(record_id, tx), Call("delete", record_id, tx=tx))

    def add_with_update(self, shard: int, data: bytes) -> None:
        try:
            record_id, _ = self.core.add_with_update(shard, KIND, data, UPDATE_KIND, SUBJECT)
        except JournalError:
            return
        for each in added(record_id, data):
            self.reference.apply(each)

    def delete_with_update(self, record_id: int, data: bytes) -> None:
        self.call(
            lambda core: core.delete_with_update(record_id, END_KIND, data, SUBJECT),
            Call("update", record_id, END_KIND, data, subject=SUBJECT),
            Call("delete", record_id),
        )

    def append_all(self, gone: list[int], new: list[int], again: int, data: bytes) -> None:
        """Delete records, add records of columns, and add, update and delete one more."""
        operations = [
            *([DeletedRecords(gone, END_KIND, data, SUBJECT)] if gone else []),
            *([NewRecords(KIND, new, [data] * len(new), UPDATE_KIND, SUBJECT)] if new else []),
            (ADD, again, KIND, data, False, 0),
            (UPDATE, again, END_KIND, data, True, SUBJECT),
            (DELETE, again, 0, b"", False, 0),
        ]
        ended = [Call("update", each, END_KIND, data, subject=SUBJECT) for each in gone]
        self.call(
            lambda core: core.append_all(operations),
            *ended,
            *(Call("delete", each) for each in gone),
            *(each for record_id in new for each in added(record_id, data)),
            Call("add", again, KIND, data),
            Call("delete", again),
        )

    def settle(self, verb: str, tx: int) -> None:
        ends: dict[str, Callable[[Core], object]] = {
            "prepare": lambda core: core.transactions.prepare(tx, b"xid"),
            "commit": lambda core: core.transactions.commit(tx),
            "rollback": lambda core: core.transactions.rollback(tx),
        }
        self.call(ends[verb], Call(verb, data=b"xid", tx=tx))  # type: ignore[arg-type]


def added(record_id: int, data: bytes) -> tuple[Call, Call]:
    return Call("add", record_id, KIND, data), Call("update", record_id, UPDATE_KIND, b"", subject=SUBJECT)


IN_ONE_SHARD = [make_id(number, 2) for number in (1, 2, FIRST)]
ids = st.sampled_from([*IN_ONE_SHARD, IN_ONE_SHARD[0], make_id(3, 1)])
some_ids = st.lists(st.sampled_from(IN_ONE_SHARD), unique=True, max_size=2)
some_data = st.sampled_from([b"", b"a", b"b", b"x" * 900])
transactions = st.sampled_from([0, 0, 0, 7, 8])
Step = Callable[[Caller], None]


def calls_of(method: Callable[..., None], *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.builds(lambda *given_: lambda caller: method(caller, *given_), *arguments)


steps = st.one_of(
    calls_of(Caller.add, ids, some_data, transactions),
    calls_of(Caller.update, ids, st.integers(4, 5), some_data, st.booleans(), st.integers(0, 1), transactions),
    calls_of(Caller.delete, ids, transactions),
    calls_of(Caller.add_with_update, st.just(2), some_data),
    calls_of(Caller.delete_with_update, ids, some_data),
    calls_of(Caller.append_all, some_ids, some_ids, ids, some_data),
    calls_of(Caller.settle, st.sampled_from(["prepare", "commit", "commit", "rollback"]), st.sampled_from([7, 8])),
    calls_of(Caller.step),
)


def folded(shard: int, values: list[bytes]) -> VerifiedShard:
    return fold_shard(shard, SHARDS, JOURNAL, [(offset, 0, None, value) for offset, value in enumerate(values)])


def again_in_its_frame(caller: Caller) -> None:
    caller.add(IN_ONE_SHARD[2], b"a", 0)
    caller.delete(IN_ONE_SHARD[2], 0)


@given(st.lists(steps, max_size=40))
@example([again_in_its_frame, lambda caller: caller.add_with_update(2, b"b")])
@example([again_in_its_frame, lambda caller: caller.append_all([], IN_ONE_SHARD, make_id(3, 1), b"b")])
def test_the_frames_of_calls_have_the_effect_of_the_calls_in_their_order(calls: list[Step]) -> None:
    caller = Caller()
    for call in calls:
        call(caller)
    caller.core.begin_close()
    while caller.core.step(0.0):
        pass
    states = [folded(shard, values) for shard, values in enumerate(caller.writer.values)]
    assert [(state.findings, state.mark.rejected) for state in states] == [([], 0)] * SHARDS
    assert {
        record_id: (found.kind, found.data, [unpack_update(each)[:4] for each in state.updates.get(record_id, ())])
        for state in states
        for record_id, found in ((record_id, unpack_record(packed)) for record_id, packed in state.records.items())
    } == {
        record_id: (
            record.kind,
            fingerprint(record.data),
            [(kind, fingerprint(data), replaceable, subject) for kind, data, replaceable, subject in record.updates],
        )
        for record_id, record in caller.reference.records.items()
    }
