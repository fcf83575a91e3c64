"""A journal that is closed while it activates: the activation ends first, and does nothing more that others see."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from journal.activate.activation import FENCE_STEP, ActivationReport
from journal.activate.copy import TableCopy
from journal.append.state import JournalState
from journal.cli.activating import activated_journal
from journal.config import Settings
from journal.disk.slots import hold
from journal.errors import ClosedError, FencedError, StateError
from journal.journal import BlockingJournal, Journal
from journal.kafka.ports import Sent
from journal.load.loading import NullLoader
from journal.local.journal import LocalJournal
from journal.process.progress import no_progress
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.control_reading import read_control
from journal.topics.names import control_topic, table_topic, wal_topic, writer_id
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import ADD, Epoch, Identity, Mark
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.keys import mark_key
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.activations import FollowedBroker

LIMIT_S = 10.0
SOON_S = 0.1
IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=b"j" * 16, name="j", shards=1)
KEPT = [Sent(wal_topic("j"), 0, None, b"kept")]


class Held(Faults):
    """Lets a request wait: the nth such one of a node, until it is released."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()
        self._request = ""
        self._left = 0

    def hold(self, request: str, nth: int = 1) -> None:
        self._request, self._left = request, nth

    def here(self) -> None:
        self.reached.set()
        assert self.released.wait(LIMIT_S)

    def at(self, request: str, node: str) -> Fault:
        if request == self._request and self._left:
            self._left -= 1
            if not self._left:
                self.here()
        return Fault.NONE


class Scene:
    """A journal of one shard, whose table is at each claim at once, and a copy of it."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(
            journal="j", bootstrap_servers="b:1", shards=1, replication=1, min_insync=1, directory=directory
        )
        self.held = Held()
        self.broker = FollowedBroker(Timeline(), self.held)
        self.kafka = SimulatedKafka(self.broker)
        for topic, config in topic_configs(self.settings).items():
            self.broker.create_topic(topic, 1, 1, config)
        self._row(IDENTITY_KEY, IDENTITY)
        self.broker.write(table_topic("j"), 0, [(mark_key(0), Mark(shard=0, offset=-1).SerializeToString())])
        self.copy = TableCopy(self.settings, kafka=self.kafka)
        self.copy.open()

    def _row(self, key: bytes, row: Identity | Epoch) -> None:
        sent = control_row("j", key, row)
        self.broker.write(control_topic("j"), 0, [(sent.key, sent.value)])

    def wait_at_the_gate(self) -> None:
        """No worker will ever mark the next activation's epoch."""
        self.broker.follows = False

    @property
    def written(self) -> int:
        """WAL offsets that are taken."""
        log = self.broker.log(wal_topic("j"), 0)
        assert log is not None
        return log.end

    @property
    def released_by(self) -> str:
        released = read_control(self.kafka, "j", self.broker.timeline.now, LIMIT_S).released
        return "" if released is None else released.node

    def close_amid(
        self, journal: BlockingJournal, activate: Callable[[], ActivationReport]
    ) -> tuple[Future[ActivationReport], Future[None]]:
        """An activation that has come to where it is held, and a close that waits for it; both in their threads."""
        pool = ThreadPoolExecutor(2)
        activating = pool.submit(activate)
        assert self.held.reached.wait(LIMIT_S)
        closing = pool.submit(journal.close)
        pool.shutdown(wait=False)
        with pytest.raises(TimeoutError):
            closing.result(SOON_S)
        assert not activating.done()
        self.held.released.set()
        return activating, closing

    def require_given_back(self) -> None:
        self.copy.lend()
        self.copy.give_back()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.copy.close()


def test_a_journal_that_is_closed_before_it_fences_fences_nobody(scene: Scene) -> None:
    active = scene.kafka.transactional_producer(writer_id("j"))
    active.init(LIMIT_S)
    active.send(KEPT, LIMIT_S)

    def hold(step: str, done: int, total: int) -> None:
        if step == FENCE_STEP:
            scene.held.here()

    journal = BlockingJournal(scene.settings, copy=scene.copy, progress=hold)
    journal.start()
    activating, closing = scene.close_amid(journal, journal.activate)
    with pytest.raises(ClosedError, match="while it was being activated"):
        activating.result(LIMIT_S)
    closing.result(LIMIT_S)
    assert active.commit_transaction(LIMIT_S)
    assert journal.state is JournalState.CLOSED
    scene.require_given_back()


def test_a_journal_that_is_closed_before_it_claims_takes_no_epoch(scene: Scene) -> None:
    journal = BlockingJournal(scene.settings, copy=scene.copy)
    journal.start()
    scene.held.hold("init")
    activating, closing = scene.close_amid(journal, journal.activate)
    with pytest.raises(ClosedError):
        activating.result(LIMIT_S)
    closing.result(LIMIT_S)
    assert scene.written == 0
    scene.require_given_back()


def test_a_journal_that_is_closed_at_the_gate_waits_there_no_longer(scene: Scene) -> None:
    scene.wait_at_the_gate()
    at_gate = threading.Event()
    journal = BlockingJournal(
        scene.settings, copy=scene.copy, progress=lambda step, done, total: at_gate.set() if step == "gate" else None
    )
    journal.start()
    with ThreadPoolExecutor(1) as pool:
        activating = pool.submit(journal.activate)
        assert at_gate.wait(LIMIT_S)
        journal.close()
        with pytest.raises(ClosedError):
            activating.result(LIMIT_S)
    assert journal.state is JournalState.CLOSED
    scene.require_given_back()


def test_a_journal_that_is_closed_while_it_loads_writes_no_ready(scene: Scene) -> None:
    class Slow(NullLoader):
        def begin(self, marks: object) -> None:
            scene.held.here()

    journal = BlockingJournal(scene.settings, copy=scene.copy)
    journal.start()
    activating, closing = scene.close_amid(journal, lambda: journal.activate(Slow()))
    with pytest.raises(ClosedError):
        activating.result(LIMIT_S)
    closing.result(LIMIT_S)
    assert scene.written == 2  # the epoch's marker, and its transaction's
    assert scene.released_by == scene.settings.node


def test_an_activation_that_ends_behind_its_claim_says_that_it_left_unless_it_was_fenced(scene: Scene) -> None:
    class Failing(NullLoader):
        def __init__(self, error: Exception) -> None:
            self.error = error

        def begin(self, marks: object) -> None:
            raise self.error

    for error, left in ((FencedError("by another", epoch=2), ""), (LookupError("no room"), scene.settings.node)):
        journal = BlockingJournal(scene.settings, copy=scene.copy)
        with journal, pytest.raises(type(error)):
            journal.activate(Failing(error))
        assert scene.released_by == left


def test_a_journal_that_becomes_active_while_it_is_closed_is_closed_as_an_active_one(scene: Scene) -> None:
    journal = BlockingJournal(scene.settings, copy=scene.copy)
    journal.start()
    scene.held.hold("end_transaction", nth=2)
    activating, closing = scene.close_amid(journal, journal.activate)
    assert activating.result(LIMIT_S).epoch == 1
    closing.result(LIMIT_S)
    assert journal.state is JournalState.CLOSED
    assert scene.released_by == scene.settings.node
    scene.require_given_back()


def test_what_a_cancelled_activation_has_begun_is_over_when_the_journal_is_closed(scene: Scene) -> None:
    scene.wait_at_the_gate()
    steps: list[str] = []
    at_the_gate = threading.Event()

    def noted(step: str, done: int, total: int) -> None:
        steps.append(step)
        if step == "gate":
            at_the_gate.set()

    async def leave_at_the_gate() -> int:
        async with Journal.open(scene.settings, copy=scene.copy, progress=noted) as journal:
            activating = asyncio.ensure_future(journal.activate())
            assert await asyncio.to_thread(at_the_gate.wait, LIMIT_S)
            activating.cancel()
            with pytest.raises(asyncio.CancelledError):
                await activating
            assert journal.state is JournalState.LOADING
        assert journal.state is JournalState.CLOSED
        return len(steps)

    seen = asyncio.run(leave_at_the_gate())  # which waits for its threads
    assert len(steps) == seen
    assert steps[-1] == "gate"
    scene.require_given_back()


def test_an_activation_does_not_close_its_own_journal_and_ends_all_the_same(scene: Scene) -> None:
    refused: list[StateError] = []

    def close(step: str, done: int, total: int) -> None:
        try:
            journal.close()
        except StateError as error:
            refused.append(error)

    journal = BlockingJournal(scene.settings, copy=scene.copy, progress=close)
    journal.start()
    with pytest.raises(ClosedError):
        journal.activate()
    assert len(refused) == 1
    assert scene.written == 0
    journal.close()
    assert journal.state is JournalState.CLOSED


def test_a_second_activation_is_refused_while_one_is_under_way(scene: Scene) -> None:
    journal = BlockingJournal(scene.settings, copy=scene.copy)
    journal.start()
    scene.held.hold("init")
    with ThreadPoolExecutor(1) as pool:
        activating = pool.submit(journal.activate)
        assert scene.held.reached.wait(LIMIT_S)
        with pytest.raises(StateError, match="being activated"):
            journal.activate()
        scene.held.released.set()
        assert activating.result(LIMIT_S).epoch == 1
    journal.close()


def own_copy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journals that are given no copy open one of their own, of the scene's table; where it is."""
    monkeypatch.setattr("journal.activate.runtime.kafka_of", lambda settings: scene.kafka)
    return scene.settings.directory / "j" / "own"


def test_a_journal_whose_opening_was_cancelled_lets_go_of_what_it_opens_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = own_copy(scene, monkeypatch)
    scene.held.hold("admin")

    async def give_up() -> None:
        async def opened() -> None:
            async with Journal.open(scene.settings, copy_name="own"):
                raise AssertionError("it was cancelled before it was open")

        opening = asyncio.ensure_future(opened())
        assert await asyncio.to_thread(scene.held.reached.wait, LIMIT_S)
        opening.cancel()
        await asyncio.sleep(SOON_S)
        scene.held.released.set()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(give_up())
    slot = hold(directory)
    assert slot is not None, "the directory is held for ever"
    slot.release()


def test_a_journal_that_is_closed_while_it_starts_is_closed_when_it_has(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = own_copy(scene, monkeypatch)
    journal = BlockingJournal(scene.settings, copy_name="own")
    scene.held.hold("admin")
    with ThreadPoolExecutor(2) as pool:
        starting = pool.submit(journal.start)
        assert scene.held.reached.wait(LIMIT_S)
        closing = pool.submit(journal.close)
        with pytest.raises(TimeoutError):
            closing.result(SOON_S)
        scene.held.released.set()
        starting.result(LIMIT_S)
        closing.result(LIMIT_S)
    assert journal.state is JournalState.CLOSED
    slot = hold(directory)
    assert slot is not None
    slot.release()


def test_a_command_that_appends_and_is_ended_by_sigterm_closes_its_journal_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_copy(scene, monkeypatch)
    journals: list[BlockingJournal] = []

    def command(servers: str) -> None:
        settings = scene.settings.model_copy(update={"bootstrap_servers": servers})
        with activated_journal(settings, take_over=True, progress=no_progress) as (journal, _):
            journals.append(journal)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(LIMIT_S)

    with socket.create_server(("127.0.0.1", 0)) as somebody, pytest.raises(KeyboardInterrupt):
        command(f"127.0.0.1:{somebody.getsockname()[1]}")
    assert [journal.state for journal in journals] == [JournalState.CLOSED]
    assert scene.released_by == scene.settings.node


AFTER_CLOSE: list[Callable[[BlockingJournal], object]] = [
    lambda journal: journal.add(1024, 1, b""),
    lambda journal: journal.update(1024, 1, b""),
    lambda journal: journal.delete(1024),
    lambda journal: journal.try_update(1024, 1, b""),
    lambda journal: journal.try_delete(1024),
    lambda journal: journal.add_with_update(0, 1, b"", 2, 0),
    lambda journal: journal.delete_with_update(1024, 2, b"", 0),
    lambda journal: journal.append_all([(ADD, 1024, 1, b"", False, 0)]),
    lambda journal: journal.begin(),
    lambda journal: journal.prepare(7),
    lambda journal: journal.commit(7),
    lambda journal: journal.rollback(7),
    lambda journal: journal.new_id(),
    lambda journal: journal.new_ids([1]),
    lambda journal: journal.room(),
    lambda journal: journal.flush(),
    lambda journal: journal.read(1024),
    lambda journal: journal.read_at(1024, (0, 0)),
    lambda journal: journal.applied(0),
    lambda journal: journal.start(),
    lambda journal: journal.activate(),
]


@pytest.mark.parametrize("began", ["not at all", "with its start", "with its activation"])
def test_whatever_a_journal_is_asked_after_its_close_is_refused_as_such(scene: Scene, began: str) -> None:
    journal = BlockingJournal(scene.settings, copy=scene.copy)
    if began != "not at all":
        journal.start()
    if began == "with its activation":
        journal.activate()
    journal.close()
    for call in AFTER_CLOSE:
        with pytest.raises(ClosedError):
            call(journal)


def test_a_local_journal_is_closed_when_its_activation_has_ended(tmp_path: Path) -> None:
    directory = tmp_path / "local"
    with LocalJournal(directory) as before:
        before.activate()
        before.add(before.new_id(), 1, b"kept").wait()
    loading, go_on = threading.Event(), threading.Event()

    class Slow(NullLoader):
        def begin(self, marks: object) -> None:
            loading.set()
            assert go_on.wait(LIMIT_S)

    journal = LocalJournal(directory)
    journal.start()
    with ThreadPoolExecutor(2) as pool:
        activating = pool.submit(journal.activate, Slow())
        assert loading.wait(LIMIT_S)
        with pytest.raises(StateError, match="being activated"):
            journal.activate()
        closing = pool.submit(journal.close)
        with pytest.raises(TimeoutError):
            closing.result(SOON_S)
        go_on.set()
        with pytest.raises(ClosedError):
            activating.result(LIMIT_S)
        closing.result(LIMIT_S)
    assert journal.state is JournalState.CLOSED
    for call in (journal.new_id, journal.flush, journal.start, journal.activate, lambda: journal.read(1024)):
        with pytest.raises(ClosedError):
            call()
    with LocalJournal(directory) as after:
        assert after.activate().counts is not None
