"""The library on a real Kafka: lifecycle, appends, transactions, refusals, and what the next node loads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from journal.append.state import JournalState
from journal.config import Settings
from journal.errors import (
    ClosedError,
    FencedError,
    FullError,
    GateTimeoutError,
    JournalError,
    LockedError,
    RecordExistsError,
    RecordMissingError,
    RolledBackError,
    StateError,
    TopicError,
    TransactionUnknownError,
)
from journal.journal import BlockingJournal, Journal
from journal.limits import Limits
from journal.v1.journal_pb2 import ADD, DELETE
from tests.support.in_process import Collected, made_journal, running_worker


@pytest.fixture
def settings(bootstrap: str, tmp_path: Path) -> Settings:
    return made_journal(bootstrap, tmp_path, shards=2)


def test_what_one_node_appends_the_next_one_loads(settings: Settings) -> None:
    async def first() -> None:
        async with Journal.open(settings) as journal:
            assert journal.state is JournalState.STARTED
            report = await journal.activate()
            assert (report.epoch, journal.state, journal.current) == (1, JournalState.ACTIVE, True)
            await journal.add(1, kind=45, data=b"one")
            await journal.update(1, kind=32, data=b"seen")
            await journal.update(1, kind=33, data=b"old", replaceable=True, subject=9)
            await journal.update(1, kind=33, data=b"new", replaceable=True, subject=9)
            await journal.add(2, kind=45, data=b"two")
            await journal.delete(2)
            assert journal.try_delete(2) is None
            assert journal.try_update(2, kind=1, data=b"") is None
            committed = journal.begin()
            operation = journal.add(3, kind=45, data=b"three", tx=committed)
            journal.delete(1, tx=committed)
            journal.rollback(committed)
            with pytest.raises(RolledBackError):
                await operation
            in_doubt = journal.begin()
            journal.delete(1, tx=in_doubt)
            journal.add(4, kind=46, data=b"four", tx=in_doubt)
            await journal.prepare(in_doubt, b"xid")

    async def second() -> None:
        loaded = Collected()
        async with Journal.open(settings) as journal:
            report = await journal.activate(loader=loaded)
            assert report.epoch == 2
            assert loaded.records == {1: (45, b"one")}
            assert loaded.updates == {1: [(32, b"seen", 0), (33, b"new", 9)]}
            ((tx, (data, operations)),) = loaded.in_doubt.items()
            assert data == b"xid"
            assert sorted((op.type, op.id) for op in operations) == [(ADD, 4), (DELETE, 1)]
            assert loaded.counts is not None
            assert (loaded.counts.records, loaded.counts.updates, loaded.counts.prepared) == (1, 2, 1)
            with pytest.raises(LockedError):
                journal.delete(1)
            await journal.commit(tx)
            with pytest.raises(RecordMissingError):
                journal.delete(1)
            assert journal.new_id(5) > 0

    async def third() -> None:
        loaded = Collected()
        async with Journal.open(settings) as journal:
            await journal.activate(loaded)
        assert loaded.records == {4: (46, b"four")}
        assert loaded.in_doubt == {}

    with running_worker(settings):
        asyncio.run(first())
        asyncio.run(second())
        asyncio.run(third())


def test_ids_go_on_above_what_any_epoch_issued(settings: Settings) -> None:
    issued: set[int] = set()
    with running_worker(settings):
        for _ in range(3):
            with BlockingJournal(settings) as journal:
                journal.activate()
                ids = [journal.new_id(shard) for shard in range(10)]
                for record_id in ids[:-1]:
                    journal.add(record_id, 1, b"")
                rolled_back = journal.begin()
                journal.add(ids[-1], 1, b"", tx=rolled_back)
                journal.rollback(rolled_back)
                journal.flush().wait()
                assert not issued.intersection(ids)
                issued.update(ids)


def test_a_newer_node_fences_the_active_one_which_says_so_once(settings: Settings) -> None:
    told: list[JournalError] = []
    with running_worker(settings), BlockingJournal(settings, on_critical=told.append, copy_name="a") as older:
        older.activate()
        older.add(1, 1, b"").wait()
        with BlockingJournal(settings, copy_name="b") as newer:
            newer.activate()
            with pytest.raises(FencedError):
                older.add(2, 1, b"").wait(60)
            with pytest.raises(FencedError):
                older.add(3, 1, b"")
            assert older.state is JournalState.FENCED
            assert not older.current
            assert [type(error) for error in told] == [FencedError]
            newer.add(2, 1, b"").wait()


def test_appends_are_refused_before_active_and_after_close(settings: Settings) -> None:
    journal = BlockingJournal(settings)
    with pytest.raises(StateError):
        journal.add(1, 1, b"")
    with running_worker(settings):
        journal.start()
        with pytest.raises(StateError, match="started"):
            journal.add(1, 1, b"")
        journal.activate()
        kept = journal.add(1, 1, b"")
        journal.close()
    kept.wait(0)
    assert journal.state is JournalState.CLOSED
    with pytest.raises((StateError, ClosedError)):
        journal.add(2, 1, b"")


def test_a_gate_without_a_worker_times_out_and_can_be_tried_again(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2, gate_timeout_ms=1000)
    with BlockingJournal(settings) as journal:
        with pytest.raises(GateTimeoutError, match=r"shard 0 stands at epoch 0.*is a worker running"):
            journal.activate()
        assert journal.state is JournalState.STARTED
        with running_worker(settings):
            assert journal.activate().epoch == 2


def test_a_full_queue_refuses_at_once_and_room_comes_in_turn(bootstrap: str, tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=10, transaction_buffer_operations_max=10)
    settings = made_journal(bootstrap, tmp_path, shards=1, limits=limits)

    async def scenario() -> int:
        refused = 0
        async with Journal.open(settings) as journal:
            await journal.activate()
            for number in range(1, 200):
                while True:
                    try:
                        journal.add(number, 1, b"x")
                        break
                    except FullError:
                        refused += 1
                        await journal.room()
            await journal.flush()
        return refused

    with running_worker(settings):
        assert asyncio.run(scenario()) > 0
        loaded = Collected()
        with BlockingJournal(settings) as journal:
            journal.activate(loaded)
    assert sorted(loaded.records) == list(range(1, 200))


def test_refusals_change_nothing(settings: Settings) -> None:
    with running_worker(settings):
        with BlockingJournal(settings) as journal:
            journal.activate()
            journal.add(1, 1, b"kept")
            for refused, error in (
                (lambda: journal.add(1, 1, b"again"), RecordExistsError),
                (lambda: journal.update(2, 1, b""), RecordMissingError),
                (lambda: journal.commit(77), TransactionUnknownError),
            ):
                with pytest.raises(error):
                    refused()
        loaded = Collected()
        with BlockingJournal(settings) as journal:
            journal.activate(loaded)
    assert loaded.records == {1: (1, b"kept")}


def test_a_loader_that_raises_leaves_nobody_active(settings: Settings) -> None:
    class Refusing(Collected):
        def begin(self, marks: object) -> None:
            raise ValueError("not today")

    with running_worker(settings), BlockingJournal(settings) as journal:
        with pytest.raises(ValueError, match="not today"):
            journal.activate(Refusing())
        assert journal.state is JournalState.STARTED
        assert journal.activate().epoch == 2


def test_a_journal_that_was_never_made_is_named_with_what_makes_it(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path).model_copy(update={"journal": "never-made"})
    with pytest.raises(TopicError, match="kafka-journal init -j never-made"):
        BlockingJournal(settings).start()
