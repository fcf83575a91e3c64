"""A copy of the tables that is followed on a real Kafka: warm activations one after the other, what they survive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from journal.activate.copy import TableCopy
from journal.append.state import JournalState
from journal.cli.reading import loaded_snapshot, opened_journal
from journal.config import Settings
from journal.errors import ClosedError, FencedError, GateTimeoutError, JournalError, LocalStorageError, StateError
from journal.journal import BlockingJournal
from tests.support.children.loaders import KeptState
from tests.support.in_process import made_journal, running_worker

DEADLINE_S = 60.0


@pytest.fixture
def settings(bootstrap: str, tmp_path: Path) -> Settings:
    return made_journal(bootstrap, tmp_path, shards=2)


@pytest.fixture
def standby(settings: Settings) -> Iterator[TableCopy]:
    with closing(TableCopy(settings, copy_name="standby")) as copy:
        copy.open()
        copy.follow(KeptState)
        yield copy


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, what()
        time.sleep(0.01)


def wait_until_fit(copy: TableCopy) -> None:
    wait_for(lambda: copy.fitness().fit, copy.fitness)


def work(journal: BlockingJournal, first: int, *, in_doubt: int = 0) -> None:
    """Adds, updates and deletes of both shards, committed; a transaction in doubt if asked for."""
    ids = [journal.new_id(shard) for shard in range(first, first + 40)]
    for record_id in ids:
        journal.add(record_id, 45, b"%d" % record_id)
    for record_id in ids[::2]:
        journal.update(record_id, 32, b"seen")
        journal.update(record_id, 33, b"state", replaceable=True, subject=7)
    for record_id in ids[::5]:
        journal.delete(record_id)
    if in_doubt:
        journal.delete(ids[1], tx=in_doubt)
        journal.add(journal.new_id(3), 46, b"in doubt", tx=in_doubt)
        journal.prepare(in_doubt, b"xid")
    journal.flush().wait(DEADLINE_S)


def dumped(settings: Settings, directory: Path) -> KeptState:
    state = KeptState()
    with (
        opened_journal(settings) as (kafka, rows),
        loaded_snapshot(settings, kafka, rows, now=True, copies=directory) as snapshot,
    ):
        snapshot.tell(state)
    return state


def assert_is(state: object, expected: KeptState) -> None:
    assert isinstance(state, KeptState)
    assert (state.records, state.in_doubt, state.counts) == (expected.records, expected.in_doubt, expected.counts)


def test_a_standby_that_followed_an_active_node_activates_with_what_it_has(
    settings: Settings, standby: TableCopy, tmp_path: Path
) -> None:
    with running_worker(settings):
        with BlockingJournal(settings, copy_name="active") as active:
            active.activate()
            work(active, 0)
            wait_until_fit(standby)
            work(active, 40, in_doubt=77)
        with BlockingJournal(settings, copy=standby) as journal:
            report = journal.activate()
            assert (report.warm, report.in_doubt) == (True, [77])
            expected = dumped(settings, tmp_path / "copies")
            assert_is(journal.loader, expected)
            assert expected.records
            record_id = next(iter(expected.records))
            assert journal.read(record_id) == expected.records[record_id][1]
            journal.commit(77).wait(DEADLINE_S)
            work(journal, 3)
        with pytest.raises(ClosedError):
            journal.read(record_id)


def test_the_copy_of_a_fenced_journal_follows_on_and_a_new_journal_activates_warm(
    settings: Settings, standby: TableCopy, tmp_path: Path
) -> None:
    told: list[JournalError] = []
    with running_worker(settings):
        first = BlockingJournal(settings, copy=standby, on_critical=told.append)
        first.start()
        first.activate()
        work(first, 0)
        with BlockingJournal(settings, copy_name="other") as other:
            other.activate()
            wait_for(lambda: first.state is JournalState.FENCED, lambda: first.state)
            with BlockingJournal(settings, copy=standby) as too_early, pytest.raises(StateError, match="close that"):
                too_early.activate()
            first.close()
            wait_until_fit(standby)
            work(other, 10)
        with BlockingJournal(settings, copy=standby) as second:
            report = second.activate()
            assert (report.warm, report.epoch) == (True, 3)
            assert_is(second.loader, dumped(settings, tmp_path / "copies"))
            with pytest.raises(FencedError):
                first.add(1, 1, b"")
            work(second, 20)
    assert [type(error) for error in told] == [FencedError]


def test_an_activation_that_timed_out_at_the_gate_keeps_the_state_for_the_next_try(
    bootstrap: str, tmp_path: Path
) -> None:
    patient = made_journal(bootstrap, tmp_path, shards=2)
    settings = patient.model_copy(update={"gate_timeout_ms": 1000})
    with closing(TableCopy(settings, copy_name="standby")) as standby:
        standby.open()
        standby.follow(KeptState)
        with running_worker(patient), BlockingJournal(patient, copy_name="active") as active:
            active.activate()
            work(active, 0)
        wait_until_fit(standby)
        with BlockingJournal(settings, copy=standby) as journal:
            with pytest.raises(GateTimeoutError):
                journal.activate()
            wait_until_fit(standby)
            with running_worker(patient):
                wait_for(lambda: activated(journal), lambda: journal.state)
                assert journal.report is not None
                assert journal.report.warm
                assert_is(journal.loader, dumped(settings, tmp_path / "copies"))


def activated(journal: BlockingJournal) -> bool:
    try:
        journal.activate()
    except GateTimeoutError:
        return False
    return True


def test_a_damaged_copy_is_recognised_and_built_anew(settings: Settings, tmp_path: Path) -> None:
    with running_worker(settings):
        with BlockingJournal(settings, copy_name="standby") as active:
            active.activate()
            work(active, 0)
        directory = settings.journal_directory / "standby"
        (manifest,) = directory.glob("MANIFEST-*")
        manifest.write_bytes(b"not a manifest")
        with closing(TableCopy(settings, copy_name="standby")) as standby:
            standby.open()
            standby.follow(KeptState)
            wait_until_fit(standby)
            with BlockingJournal(settings, copy=standby) as journal:
                assert journal.activate().warm
                assert_is(journal.loader, dumped(settings, tmp_path / "copies"))


def test_a_copy_has_one_process_at_a_time(settings: Settings, standby: TableCopy) -> None:
    with closing(TableCopy(settings, copy_name="standby")) as second, pytest.raises(LocalStorageError, match="another"):
        second.open()
