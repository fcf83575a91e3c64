"""A journal in a local RocksDB has the same meaning as one in Kafka, whatever process is killed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from journal.append.completion import Completion
from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.operations import Append
from journal.append.state import JournalState
from journal.append.writing import Claim
from journal.cli.script import apply_operation, parse_line
from journal.disk.rocks import RocksStore
from journal.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    CountError,
    FullError,
    InvalidOperationError,
    LocalStorageError,
    LockedError,
    OutcomeUnknownError,
    RecordExistsError,
    RecordMissingError,
    RolledBackError,
    StateError,
    TransactionUnknownError,
)
from journal.fold.rows import Change
from journal.limits import Limits
from journal.load.loading import NullLoader
from journal.local.journal import LocalJournal
from journal.local.writer import LocalWriter, marks_of
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, UPDATE, Identity, Mark, Record
from journal.wire.ids import is_volatile, shard_of
from journal.wire.keys import record_id_of, record_key
from tests.support.build import JOURNAL, NONCE, unchained
from tests.support.children.loaders import CollectingLoader
from tests.support.fold import always, fold_entries
from tests.support.golden import WalEntry, outcome_of_rows
from tests.support.in_process import Collected
from tests.support.node_history import check_history, parse_history
from tests.support.processes.child import Child, program
from tests.support.script_model import ScriptModel, random_script

KIND = 7
LIMIT_S = 10.0


def loaded(directory: Path) -> Collected:
    """The state that the next activation loads."""
    loader = Collected()
    with LocalJournal(directory) as journal:
        journal.activate(loader)
    return loader


@contextmanager
def active(directory: Path, **more: Any) -> Iterator[LocalJournal]:
    with LocalJournal(directory, **more) as journal:
        journal.activate()
        yield journal


# ---- operations --------------------------------------------------------------------------------------------------


def test_every_operation_takes_effect_and_is_there_after_a_reopen(tmp_path: Path) -> None:
    with active(tmp_path / "a") as journal:
        first, second, third = (journal.new_id(shard) for shard in (0, 1, 2))
        journal.add(first, KIND, b"first").wait()
        journal.add(second, KIND, b"second")
        journal.update(first, 2, b"kept")
        journal.update(first, 2, b"old", replaceable=True, subject=9)
        journal.update(first, 2, b"new", replaceable=True, subject=9)
        journal.delete(second)
        assert journal.try_delete(second) is None
        assert journal.try_update(second, 2, b"") is None
        journal.append_all([(ADD, third, KIND, b"third", False, 0), (DELETE, first, 0, b"", False, 0)]).wait()
        journal.append_all([(ADD, first, KIND, b"again", False, 0), (UPDATE, third, 3, b"with it", False, 0)]).wait()
        assert journal.read(first) == b"again"
        assert journal.read(third) == b"third"
        assert journal.read(second) is None
    state = loaded(tmp_path / "a")
    assert state.records == {first: (KIND, b"again"), third: (KIND, b"third")}
    assert state.updates == {third: [(3, b"with it", 0)]}


def test_what_a_completion_is_done_for_can_be_read_at_once_and_its_offsets_are_applied(tmp_path: Path) -> None:
    with active(tmp_path / "a") as journal:
        for data in (b"one", b"two", b"three"):
            record_id = journal.new_id(5)
            completion = journal.add(record_id, KIND, data)
            completion.wait()
            ((shard, (_, last)),) = completion.offsets.items()
            assert journal.applied(shard) == last
            assert journal.read(record_id) == data
            assert journal.read_at(record_id, completion.offsets[shard]) == data


def test_an_operation_that_the_state_does_not_allow_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with active(tmp_path / "a") as journal:
        record_id = journal.new_id()
        journal.add(record_id, KIND, b"there")
        with pytest.raises(RecordExistsError):
            journal.add(record_id, KIND, b"twice")
        with pytest.raises(RecordMissingError):
            journal.update(record_id + 1024, KIND, b"")
        with pytest.raises(RecordMissingError):
            journal.append_all(
                [(DELETE, record_id, 0, b"", False, 0), (UPDATE, record_id, KIND, b"", False, 0)],
            )
        with pytest.raises(TransactionUnknownError):
            journal.commit(77)
    assert loaded(tmp_path / "a").records == {record_id: (KIND, b"there")}


@pytest.mark.parametrize(
    ("count", "data", "bound"), [(5, b"", "queue_operations_max"), (3, b"x" * 3000, "queue_bytes_max")]
)
def test_operations_that_no_group_has_room_for_are_refused_at_once(
    tmp_path: Path, count: int, data: bytes, bound: str
) -> None:
    limits = Limits(
        queue_operations_max=4,
        queue_bytes_max=8192,
        data_bytes_max=3072,
        transaction_buffer_operations_max=1,
        transaction_buffer_bytes_max=8192,
    )
    with active(tmp_path / "a", limits=limits, room_timeout_ms=3_600_000) as journal:
        operations = [(ADD, journal.new_id(), KIND, data, False, 0) for _ in range(count)]
        with pytest.raises(InvalidOperationError, match=bound):
            journal.append_all(operations)
        journal.append_all(operations[:2]).wait()
    assert len(loaded(tmp_path / "a").records) == 2


def test_random_scripts_leave_what_a_model_of_them_says(tmp_path: Path) -> None:
    small = Limits(transaction_buffer_operations_max=10, updates_row_bytes_max=100)
    for seed in range(5):
        directory = tmp_path / str(seed)
        script = random_script(seed, lines=600, transactions=40)
        model = ScriptModel(3)
        with active(directory, shards=3, limits=small) as journal:
            for line in script:
                append(journal, line)
        model.apply(script)
        loader = CollectingLoader()
        with LocalJournal(directory) as journal:
            journal.activate(loader)
        assert loader.lines == model.dump()


def append(journal: LocalJournal, line: Mapping[str, object]) -> Completion:
    return apply_operation(journal, parse_line(json.dumps(line), 1), 1)


def test_a_script_waits_for_room_in_a_full_queue_and_blames_no_line_for_it(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=1, transaction_buffer_operations_max=1)
    with active(tmp_path / "a", limits=limits, room_timeout_ms=0) as journal:
        for number in range(1, 201):
            append(journal, {"op": "add", "id": number})
    assert len(loaded(tmp_path / "a").records) == 200


def test_an_event_loop_awaits_completions_and_a_full_queue_refuses_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = Limits(queue_operations_max=1, transaction_buffer_operations_max=1)
        journal = LocalJournal(tmp_path / "a", limits=limits, room_timeout_ms=0)
        journal.start()
        await asyncio.to_thread(journal.activate)
        added: list[int] = []
        refused = 0
        while len(added) < 200:
            record_id = journal.new_id()
            try:
                journal.add(record_id, KIND, b"x")
                added.append(record_id)
            except FullError:
                refused += 1
                await journal.room()
        await journal.flush()
        assert refused
        assert [journal.read(record_id) for record_id in added] == [b"x"] * 200
        await asyncio.to_thread(journal.close)

    asyncio.run(scenario())


# ---- transactions ------------------------------------------------------------------------------------------------


def test_a_transaction_takes_effect_at_its_commit_and_never_after_a_rollback(tmp_path: Path) -> None:
    with active(tmp_path / "a") as journal:
        kept, dropped = journal.new_id(0), journal.new_id(1)
        first, second = journal.begin(), journal.begin()
        in_first = journal.add(kept, KIND, b"kept", tx=first)
        in_second = journal.add(dropped, KIND, b"dropped", tx=second)
        with pytest.raises(LockedError):
            journal.add(kept, KIND, b"other")
        assert journal.read(kept) is None
        journal.commit(first, then=[(UPDATE, kept, 2, b"behind it", False, 0)]).wait()
        journal.rollback(second).wait()
        in_first.wait()
        with pytest.raises(RolledBackError):
            in_second.wait()
        assert journal.read(kept) == b"kept"
    state = loaded(tmp_path / "a")
    assert state.records == {kept: (KIND, b"kept")}
    assert state.updates == {kept: [(2, b"behind it", 0)]}


def test_a_prepared_transaction_survives_reopens_with_its_locks_until_it_is_settled(tmp_path: Path) -> None:
    with active(tmp_path / "a", shards=4) as journal:
        ids = [journal.new_id(shard) for shard in range(4)]
        journal.add(ids[0], KIND, b"before")
        tx = journal.begin()
        journal.delete(ids[0], tx=tx)
        for record_id in ids[1:]:
            journal.add(record_id, KIND, b"prepared", tx=tx)
        journal.prepare(tx, b"xid").wait()
    for _ in range(3):
        state = loaded(tmp_path / "a")
        assert state.records == {ids[0]: (KIND, b"before")}
        (data, operations) = state.in_doubt[tx]
        assert data == b"xid"
        assert sorted(op.id for op in operations) == sorted(ids)
    with LocalJournal(tmp_path / "a") as journal:
        assert journal.activate().in_doubt == [tx]
        with pytest.raises(LockedError):
            journal.delete(ids[0])
        journal.commit(tx).wait()
    assert set(loaded(tmp_path / "a").records) == set(ids[1:])


@pytest.mark.parametrize("committed", [True, False])
def test_operations_of_a_prepared_transaction_take_effect_with_its_outcome(tmp_path: Path, committed: bool) -> None:
    with active(tmp_path / "a") as journal:
        tx, record_id = journal.begin(), journal.new_id()
        operation = journal.add(record_id, KIND, b"", tx=tx)
        journal.prepare(tx, b"xid").wait()
        assert not operation.done
        if committed:
            journal.commit(tx).wait()
            operation.wait()
        else:
            settled = journal.rollback(tx)
            assert settled.done or not operation.done
            settled.wait()
            with pytest.raises(RolledBackError):
                operation.wait(LIMIT_S)
        assert operation.done


def test_the_outcome_of_a_group_in_doubt_at_a_close_is_unknown(tmp_path: Path) -> None:
    with active(tmp_path / "a") as journal:
        in_doubt, open_ = journal.begin(), journal.begin()
        prepared = journal.add(journal.new_id(), KIND, b"", tx=in_doubt)
        cut_off = journal.add(journal.new_id(), KIND, b"", tx=open_)
        journal.prepare(in_doubt).wait()
    with pytest.raises(OutcomeUnknownError, match=f"transaction {in_doubt} is in doubt"):
        prepared.wait()
    with pytest.raises(ClosedError):
        cut_off.wait()


def test_the_next_epoch_drops_what_was_staged_and_not_prepared(tmp_path: Path) -> None:
    limits = Limits(transaction_buffer_operations_max=5)
    with active(tmp_path / "a", limits=limits) as journal:
        tx = journal.begin()
        for number in range(20):
            journal.add(journal.new_id(number), KIND, b"staged", tx=tx)
        journal.flush().wait()
    state = loaded(tmp_path / "a")
    assert state.records == {}
    assert state.in_doubt == {}
    assert sum(mark.staged for mark in state.marks.values()) == 0
    assert sum(mark.dropped for mark in state.marks.values()) == 20


# ---- lifecycle ---------------------------------------------------------------------------------------------------


def test_each_activation_is_the_next_epoch_and_issues_ids_that_none_before_it_did(tmp_path: Path) -> None:
    issued: set[int] = set()
    for epoch in range(1, 5):
        with LocalJournal(tmp_path / "a") as journal:
            assert journal.activate().epoch == epoch
            assert journal.current
            ids = [journal.new_id(number) for number in range(10)]
            assert not issued.intersection(ids)
            issued.update(ids)
            journal.add(ids[-1], KIND, b"").wait()


def test_a_volatile_id_is_never_issued_again(tmp_path: Path) -> None:
    issued: list[int] = []
    for _ in range(3):
        with active(tmp_path / "a") as journal:
            issued += [journal.new_volatile_id(3) for _ in range(4)]
    assert len(set(issued)) == len(issued)
    assert all(is_volatile(each) and shard_of(each, 4) == 3 for each in issued)


class _Refusing(NullLoader):
    def complete(self, counts: object) -> None:
        raise ValueError("not this state")


def test_an_activation_whose_loader_fails_may_be_tried_again(tmp_path: Path) -> None:
    with LocalJournal(tmp_path / "a") as journal:
        with pytest.raises(ValueError, match="not this state"):
            journal.activate(_Refusing())
        assert journal.state is JournalState.STARTED
        assert journal.activate().epoch == 2
        journal.add(journal.new_id(), KIND, b"").wait()


def test_appends_before_active_and_after_close_are_refused_and_close_writes_what_was_accepted(tmp_path: Path) -> None:
    journal = LocalJournal(tmp_path / "a")
    with pytest.raises(StateError):
        journal.new_id()
    journal.start()
    with pytest.raises(StateError):
        journal.new_id()
    with pytest.raises(StateError):
        journal.read(1024)
    journal.activate()
    with pytest.raises(StateError):
        journal.activate()
    record_id = journal.new_id()
    completion = journal.add(record_id, KIND, b"accepted")
    cut_off = journal.add(journal.new_id(), KIND, b"open", tx=journal.begin())
    journal.close()
    journal.close()
    completion.wait(0)
    with pytest.raises(ClosedError):
        cut_off.wait(0)
    with pytest.raises(ClosedError):
        journal.add(record_id, KIND, b"")
    with pytest.raises(ClosedError):
        journal.read(record_id)
    with pytest.raises(ClosedError):
        journal.applied(0)
    with pytest.raises(ClosedError):
        journal.start()
    assert loaded(tmp_path / "a").records == {record_id: (KIND, b"accepted")}


def test_a_directory_that_is_in_use_of_another_shape_or_of_something_else_is_refused(tmp_path: Path) -> None:
    with LocalJournal(tmp_path / "a", shards=3) as journal:
        assert journal.shards == 3
        with pytest.raises(LocalStorageError, match="cannot open"):
            LocalJournal(tmp_path / "a").start()
    with pytest.raises(ConfigError, match="made with 3 shards, not 4"):
        LocalJournal(tmp_path / "a", shards=4).start()
    with LocalJournal(tmp_path / "a") as journal:
        assert journal.shards == 3
    other = RocksStore(tmp_path / "b")
    other.write([(b"m\0\0", Mark(shard=0).SerializeToString())], {})
    other.close()
    with pytest.raises(ConfigError, match="something else"):
        LocalJournal(tmp_path / "b").start()
    with pytest.raises(ConfigError):
        LocalJournal(tmp_path / "c", shards=1025)


def test_a_directory_with_other_rows_than_its_marks_say_is_to_be_restored(tmp_path: Path) -> None:
    with active(tmp_path):
        pass
    store = RocksStore(tmp_path)
    store.write([(record_key(1 << 10), Record(type=ADD, id=1 << 10).SerializeToString())], {})
    store.close()
    with (
        LocalJournal(tmp_path) as journal,
        pytest.raises(CountError, match=r"says 0 records.*restore it from a backup"),
    ):
        journal.activate(NullLoader())


def test_a_directory_that_another_process_has_is_refused(tmp_path: Path) -> None:
    opening = "import sys; from pathlib import Path; from journal.local.journal import LocalJournal\n"
    opening += "LocalJournal(Path(sys.argv[1])).start()"
    with active(tmp_path / "a"):
        ended = subprocess.run([sys.executable, "-c", opening, str(tmp_path / "a")], capture_output=True, text=True)
    assert "LocalStorageError" in ended.stderr


def test_a_local_journal_imports_no_kafka_client() -> None:
    asking = "import sys, journal.local.journal; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asking], check=False).returncode == 0


# ---- kills -------------------------------------------------------------------------------------------------------


def acknowledged(history: Path) -> int:
    return history.read_text().count('{"done":') if history.exists() else 0


@pytest.mark.parametrize("shards", [1, 4])
def test_after_sigkill_in_mid_write_nothing_acknowledged_is_lost_and_no_group_is_partial(
    tmp_path: Path, shards: int
) -> None:
    directory, history = tmp_path / "journal", tmp_path / "history"
    node = Child("the node", program("local_node", directory, history, shards, shards), tmp_path / "node.log")
    for kill in range(3):
        wanted = acknowledged(history) + 300 + 500 * kill
        with node.start():
            node.wait_until(lambda wanted=wanted: acknowledged(history) >= wanted, "acknowledgements")  # type: ignore[misc]
    loader = CollectingLoader()
    with LocalJournal(directory) as journal:
        journal.activate(loader)
    activations = parse_history(history.read_text())
    assert [activation.epoch for activation in activations] == [1, 2, 3]
    verdict = check_history([*activations, loader.activation()], shards)
    assert verdict.faults == []
    assert verdict.acknowledged >= 300 + 800 + 1300


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from journal.errors import JournalError
from journal.local.journal import LocalJournal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
critical = []
journal = LocalJournal(Path(sys.argv[1]), on_critical=critical.append)
journal.start()
journal.activate()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
told = []
try:
    while True:
        record_id = journal.new_id()
        completion = journal.add(record_id, 7, bytes(1000))
        completion.wait()
        told.append(record_id)
except JournalError as error:
    print(type(error).__name__, journal.state.value, journal.current)
try:
    journal.new_id()
except JournalError as error:
    print(type(error).__name__, [type(one).__name__ for one in critical])
print(*told)
"""


def test_a_disk_that_refuses_makes_the_outcome_unknown_and_the_journal_failed_and_loses_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "a")], capture_output=True, text=True, check=True
    )
    failed, refused, told = ended.stdout.splitlines()
    assert failed == "OutcomeUnknownError failed False"
    assert refused == "OutcomeUnknownError ['OutcomeUnknownError']"
    acknowledged = {int(record_id) for record_id in told.split()}
    assert acknowledged
    assert acknowledged <= loaded(tmp_path / "a").records.keys()


@pytest.mark.parametrize("is_written", [False, True])
def test_whatever_a_write_raises_leaves_the_outcome_unknown_and_what_a_read_raises_is_a_failure(
    tmp_path: Path, is_written: bool
) -> None:
    class Raising(RocksStore):
        """A store whose third write raises an unforeseen error, before or after it has written."""

        writes = 0

        def write(
            self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True, synced: bool = False
        ) -> None:
            self.writes += 1
            if self.writes != 3 or is_written:
                super().write(rows, named, durable=durable, synced=synced)
            if self.writes == 3:
                raise MemoryError

    def group(record_id: int) -> Group:
        group = Group(1, 900_000)
        group.put(0, ADD, record_id, 1, b"data")
        return group

    identity = Identity(journal=JOURNAL, shards=1)
    store = Raising(tmp_path / "a")
    try:
        writer = LocalWriter(store, identity, Claim(1, "node", NONCE), Limits(), wall_ms=lambda: 0.0)
        writer.write(group(1024))
        unknown = group(2048)
        with pytest.raises(OutcomeUnknownError):
            writer.write(unknown)
        assert isinstance(unknown.completion.error, OutcomeUnknownError)
        foreign = Group(1, 900_000)
        foreign.put(0, ADD, -1, 1, b"no id")
        with pytest.raises(CorruptionError):
            writer.write(foreign)
        assert isinstance(foreign.completion.error, CorruptionError)  # nothing of it was written
    finally:
        store.close()


# ---- rows --------------------------------------------------------------------------------------------------------


class Steps:
    """A clock and a wall clock that move only when asked."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def random_groups(chance: random.Random, shards: int, groups: int) -> list[list[Append]]:
    """Operations of all kinds, allowed or not."""
    made: list[list[Append]] = []
    for _ in range(groups):
        group: list[Append] = []
        for _ in range(chance.randrange(1, 12)):
            record_id, tx = chance.randrange(1, 40), chance.choice((0, 0, 0, 1, 2, 3))
            shard, covers = record_id % shards, chance.randrange(4)
            op = chance.choice((ADD, ADD, UPDATE, UPDATE, DELETE, PREPARE, COMMIT, ROLLBACK))
            data = chance.randbytes(chance.randrange(40))
            if op in (PREPARE, COMMIT, ROLLBACK):
                group.append(
                    Append(shard, op, tx=tx or 1, covers=covers, data=data if op == PREPARE else b"", shards=1)
                )
            elif op == UPDATE:
                subject = chance.randrange(3)
                group.append(Append(shard, op, record_id, 2, data, chance.random() < 0.5, subject, tx))
            else:
                group.append(Append(shard, op, record_id, 1 if op == ADD else 0, data if op == ADD else b"", tx=tx))
        made.append(group)
    return made


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_that_the_engine_folds_from_the_same_frames(tmp_path: Path, seed: int) -> None:
    chance, shards, steps = random.Random(seed), 3, Steps()
    limits = Limits(updates_row_bytes_max=60)
    identity = Identity(journal=JOURNAL, shards=shards)
    wal: dict[int, list[WalEntry]] = {shard: [] for shard in range(shards)}
    store = RocksStore(tmp_path / "a")

    def note(group: Group) -> None:
        for record in group.records(""):
            entries = wal[record.partition]
            entries.append(WalEntry(len(entries), int(steps.now), record.value or b"", skip=False))

    for epoch in (1, 2):
        marks = marks_of(store, shards).values()
        before = FrameNumbers(tuple(mark.number for mark in marks), max(mark.group for mark in marks))
        writer = LocalWriter(store, identity, Claim(epoch, "n", NONCE), limits, wall_ms=steps)
        markers = Group(shards, limits.frame_bytes_max)
        for shard in range(shards):
            markers.put(shard, MARKER, 0, 0, NONCE)
        assert writer.numbers == markers.seal(FrameOrigin(JOURNAL, epoch, "n"), before)
        note(markers)
        for operations in random_groups(chance, shards, 40):
            group = Group(shards, limits.frame_bytes_max)
            for op in operations:
                group.put_append(op)
            writer.write(group)
            note(group)
    rows = {key: value for prefix in (b"r", b"m", b"t", b"x") for key, value in store.scan(prefix)}
    store.close()
    assert {key[:1] for key in rows} == {b"r", b"m", b"t", b"x"}
    for shard, entries in wal.items():
        mine = {key: value for key, value in rows.items() if shard_of_row(key, shards) == shard}
        group_by_group = fold_entries(entries, JOURNAL, shard, shards, updates_row_bytes_max=60, checkpoint=always)
        at_once = fold_entries(entries, JOURNAL, shard, shards, updates_row_bytes_max=60)
        assert unchained(mine) == unchained(group_by_group.rows)
        # A row that was written more than once may have other bytes with the same meaning.
        assert outcome_of_rows(mine, shard) == outcome_of_rows(at_once.rows, shard)
        assert (group_by_group.stopped, at_once.stopped) == (None, None)


def shard_of_row(key: bytes, shards: int) -> int:
    match key[:1]:
        case b"r":
            return shard_of(record_id_of(key), shards)
        case b"m":
            return int.from_bytes(key[1:3], "big")
        case _:
            return int.from_bytes(key[9:11], "big")
