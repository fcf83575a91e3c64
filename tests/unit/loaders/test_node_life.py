"""What becomes of a node whose owner cannot be active, that is asked to hand over, is told to end, or was overtaken.

The cluster is simulated, and its nodes' group grants the duty to whoever joins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from journal.config import Settings
from journal.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    JournalError,
    KafkaUnavailableError,
    OutcomeUnknownError,
    StateError,
)
from journal.kafka.ports import FOLLOW_MS, READ_MS, GroupMember, LogRecord
from journal.topics.control_keys import EPOCH_KEY, IDENTITY_KEY, RELEASED_KEY, node_key
from journal.topics.control_reading import read_control
from journal.topics.control_rows import ControlRows
from journal.topics.names import control_topic, node_group, wal_topic
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import Epoch, Identity, Mark, NodeStatus, Released
from journal.wire.frames import FORMAT, MAGIC
from loaders.node.liveness import FORGOTTEN_AFTER_MS
from loaders.node.node import Node
from loaders.node.outlook import RECENT_S
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedPlainProducer
from tests.simulation.readers import SimulatedReader
from tests.support.activations import write_mark
from tests.support.children.loaders import KeptState
from tests.support.paced import PAUSE_S, PacedTimeline
from tests.support.waiting import wait_until

IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=b"j" * 16, name="j", shards=1)
ME, OTHER = "me", "other"
LIMIT_S = 30.0
REPORTS = 3
"""So many reports later a node has taken several turns."""
OLD_S = RECENT_S + 0.1
"""Rows that were looked at so long ago are not decided by."""


class Member:
    """A `Membership` in a group that grants the duty at once, unless a test makes it wait."""

    granted = True
    lapsed = False
    ended = False
    problem = ""

    def leave(self, timeout_s: float = 0.0) -> None: ...


class Lost(Faults):
    """Requests of these names have no answer; all are noted."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.seen: list[str] = []

    def at(self, request: str, node: str) -> Fault:
        self.seen.append(request)
        return Fault.LOSE_REQUEST if request in self.names else Fault.NONE


class NodesKafka(SimulatedKafka):
    """One with the nodes' group, and with a WAL whose ends can be slow to come."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker)
        self.wal_is_slow: Callable[[], bool] = lambda: False
        self.wal_asked = threading.Event()
        self.wal_answers = threading.Event()
        self.broken = False
        """The control rows that come raise what nobody foresaw."""
        self.blind = False
        """The node cannot read control rows."""
        self.polled: Callable[[Callable[[], list[LogRecord]]], list[LogRecord]] = lambda poll: poll()
        """Control rows as they come to the node."""
        self.member = Member()
        self.exhausted = False
        """No producer can be made."""

    def membership(self, group: str, topic: str, name: str, **times: int) -> Member:
        return self.member

    def plain_producer(self) -> SimulatedPlainProducer:
        if self.exhausted:
            raise ConfigError("no more threads")
        producer = super().plain_producer()
        producer.connect = lambda *_: False  # type: ignore[method-assign]  # so that none is kept ready
        return producer

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> SimulatedReader:
        if topic == control_topic("j"):
            self._require_sight()
        reader = super().reader(topic, committed=committed, wait_ms=wait_ms)
        if topic == control_topic("j") and wait_ms == FOLLOW_MS:
            self._break_later(reader)
        if topic == wal_topic("j") and not committed:
            self._slow_down(reader)
        return reader

    def _require_sight(self) -> None:
        if self.blind:
            raise KafkaUnavailableError("the control topic's leader does not answer")

    def _break_later(self, reader: SimulatedReader) -> None:
        poll = reader.poll

        def broken(timeout_s: float) -> list[LogRecord]:
            if self.broken:
                raise RuntimeError("nobody foresaw this")
            self._require_sight()
            return self.polled(lambda: poll(timeout_s))

        reader.poll = broken  # type: ignore[method-assign]

    def _slow_down(self, reader: SimulatedReader) -> None:
        bounds = reader.bounds

        def slow(*asked: Any) -> Any:
            # other threads make their connections ready
            if threading.current_thread().name == "kafka-journal-node" and self.wal_is_slow():
                self.wal_asked.set()
                assert self.wal_answers.wait(LIMIT_S)
            return bounds(*asked)

        reader.bounds = slow  # type: ignore[method-assign]


class Scene:
    """A journal, its workers, and a node."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = settings
        self.faults = Lost()
        timeline = PacedTimeline()
        timeline.pass_to(time.time())  # reports are compared with the clock of the wall
        self.broker = SimulatedBroker(timeline, self.faults)
        for topic, config in topic_configs(settings).items():
            self.broker.create_topic(topic, 1, 1, config)
        self.broker.groups[node_group("j")] = [GroupMember(f"{name}-1", name, "host", ()) for name in (ME, OTHER)]
        self.write(control_topic("j"), IDENTITY_KEY, IDENTITY)
        self.kafka = NodesKafka(self.broker)
        monkeypatch.setattr("loaders.node.node.kafka_of", lambda settings: self.kafka)

    def write(self, topic: str, key: bytes, row: Any) -> None:
        self.broker.write(topic, 0, [(key, row.SerializeToString())])

    def rows(self) -> ControlRows:
        return read_control(SimulatedKafka(self.broker, "test"), "j", time.monotonic, LIMIT_S)

    def work(self, step: str, done: int, total: int) -> None:
        """What workers do at the gate of an activation: it is this node's progress."""
        if step == "gate" and not done:
            claim = self.rows().epoch
            write_mark(self.broker, Mark(shard=0, offset=claim.epoch, epoch=claim.epoch, nonce=claim.nonce))

    def node(
        self,
        on_active: Callable[[ActiveNode], None] = lambda active: None,
        *,
        loader: Callable[[], KeptState] = KeptState,
        **flags: Any,
    ) -> Node:
        settings = self.settings.model_copy(update=flags)
        return Node(settings, loader=loader, on_active=on_active, progress=self.work)

    # ---- another node ----------------------------------------------------------------------------------------------

    def other(self, role: Role, *, fit: bool = False) -> None:
        """Its report, which counts for long."""
        status = NodeStatus(name=OTHER, role=role.value, fit=fit, report_ms=60_000)
        self.write(control_topic("j"), node_key(OTHER), status)

    def other_activates(self, epoch: int) -> None:
        self.write(control_topic("j"), EPOCH_KEY, Epoch(epoch=epoch, node=OTHER, nonce=b"other"))
        self.other(Role.ACTIVE)

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def pass_turns(self, holds: Callable[[NodeStatus], bool] = lambda status: True) -> None:
        """Wait for some reports of the node of which that holds."""
        seen: set[int] = set()
        until = time.monotonic() + LIMIT_S
        while len(seen) <= REPORTS:
            row = self.rows().nodes.get(ME)
            if row is not None and holds(row.status):
                seen.add(row.status.timestamp)
            assert time.monotonic() < until, row
            time.sleep(PAUSE_S)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    settings = Settings(
        journal="j",
        bootstrap_servers="b:1",
        shards=1,
        replication=1,
        min_insync=1,
        directory=tmp_path,
        node=ME,
        fence_check_ms=9000,  # nobody counts as silent while a test lasts
        node_report_ms=100,
        activation_retry_ms=10,
    )
    return Scene(settings, monkeypatch)


@pytest.fixture
def running(scene: Scene) -> Iterator[Node]:
    """The active node."""
    with closing(scene.node(preferred=True, fail_back=True)) as node:
        node.start()
        node.wait_for(Role.ACTIVE, LIMIT_S)
        yield node


def is_fit_standby(status: NodeStatus) -> bool:
    return status.fit and status.role == Role.STANDBY.value


def refuse(active: ActiveNode) -> None:
    raise RuntimeError("the broker's port is taken")


def test_the_active_node_deletes_the_reports_of_nodes_that_are_long_gone(scene: Scene) -> None:
    scene.other(Role.STANDBY)
    scene.broker.timeline.pass_to(scene.broker.timeline.now() + FORGOTTEN_AFTER_MS / 1000 + 1)
    with closing(scene.node()) as node:
        node.start()
        node.wait_for(Role.ACTIVE, LIMIT_S)
        wait_until(lambda: scene.rows().nodes.keys() == {ME})


def test_a_node_warns_of_another_one_with_its_name_that_comes_later(
    scene: Scene, running: Node, caplog: pytest.LogCaptureFixture
) -> None:
    twin = NodeStatus(name=ME, role=Role.STANDBY.value, host="elsewhere", pid=7, report_ms=60_000)

    def warned() -> bool:
        # each report of either node replaces the other's, so the twin reports until it is seen
        scene.write(control_topic("j"), node_key(ME), twin)
        return "a node me reported from elsewhere, pid 7" in caplog.text

    wait_until(warned)


# ---- handing over --------------------------------------------------------------------------------------------------


def test_a_hand_over_that_was_given_up_does_not_come_later(scene: Scene, running: Node) -> None:
    with pytest.raises(DeadlineError, match="other is not fit to take over"):
        running.hand_over(OTHER, 0.05)
    scene.other(Role.STANDBY, fit=True)
    scene.pass_turns()
    assert running.role is Role.ACTIVE
    running.hand_over(OTHER, LIMIT_S)
    assert scene.rows().released.to == OTHER  # type: ignore[union-attr]


def test_a_node_that_is_fenced_has_not_handed_over(scene: Scene, running: Node) -> None:
    threading.Timer(0.1, scene.other_activates, (2,)).start()
    with pytest.raises(StateError, match=r"did not hand over|not active"):  # or it was before this was asked for
        running.hand_over(OTHER, LIMIT_S)


@pytest.mark.parametrize("overtaken", [False, True])
def test_only_a_newer_epoch_says_that_another_node_took_over(scene: Scene, overtaken: bool) -> None:
    """A node that is cut off from Kafka knows of no other, and says so."""
    told: list[JournalError] = []
    settings = scene.settings.model_copy(update={"fence_check_ms": 500})
    node = Node(settings, loader=KeptState, on_active=lambda _: None, on_fenced=told.append, progress=scene.work)
    with closing(node):
        node.start()
        node.wait_for(Role.ACTIVE, LIMIT_S)
        if overtaken:
            scene.other_activates(2)
        else:
            scene.kafka.member.problem, scene.kafka.member.lapsed = "cut off from Kafka: refused", True
            scene.faults.names = frozenset({"produce", "init"})
        wait_until(lambda: bool(told))
        scene.faults.names = frozenset()
        scene.kafka.member.lapsed = False
    assert type(told[0]) is (FencedError if overtaken else OutcomeUnknownError)
    assert ("cut off from Kafka: refused" in str(told[0])) is not overtaken


def test_a_preferred_node_that_was_told_to_hand_over_does_not_ask_for_the_journal_back(
    scene: Scene, running: Node
) -> None:
    scene.other(Role.STANDBY, fit=True)
    running.hand_over(OTHER, LIMIT_S)
    scene.other_activates(2)
    scene.pass_turns(is_fit_standby)
    assert scene.rows().hand_over is None


def test_a_preferred_node_that_comes_asks_for_the_journal(scene: Scene) -> None:
    scene.other_activates(1)
    with closing(scene.node(preferred=True, fail_back=True)) as node:
        node.start()
        scene.pass_turns(is_fit_standby)
        assert scene.rows().hand_over.to == ME  # type: ignore[union-attr]


# ---- activations that fail -----------------------------------------------------------------------------------------


def test_a_preferred_node_whose_owner_cannot_be_active_leaves_the_journal_where_it_is(scene: Scene) -> None:
    def other_was_faster(active: ActiveNode) -> None:
        scene.other_activates(active.report.epoch + 1)
        refuse(active)

    with closing(scene.node(other_was_faster, preferred=True, fail_back=True)) as node:
        node.start()
        scene.pass_turns(is_fit_standby)
        assert scene.rows().hand_over is None


def test_a_node_whose_activation_has_just_failed_is_named_by_nobody(scene: Scene) -> None:
    with closing(scene.node(refuse, activation_retry_ms=60_000)) as node:
        node.start()
        scene.pass_turns(lambda status: status.why_not == "its activation has just failed" and not status.fit)


# ---- ending --------------------------------------------------------------------------------------------------------


def test_an_activation_that_waits_for_its_fence_ends_with_the_node(scene: Scene) -> None:
    scene.faults.names = frozenset({"init"})
    node = scene.node()
    node.start()
    node.wait_for(Role.ACTIVATING, LIMIT_S)
    wait_until(lambda: "init" in scene.faults.seen)
    node.close(LIMIT_S / 2)
    assert node.role is Role.STOPPED


def test_a_node_that_ends_of_what_nobody_foresaw_lets_the_journal_go(scene: Scene, running: Node) -> None:
    scene.other(Role.STANDBY)
    scene.pass_turns()
    scene.kafka.broken = True
    running.wait_for(Role.STOPPED, LIMIT_S)
    assert scene.rows().released is not None


def test_an_active_node_that_ends_loads_nothing_any_more(scene: Scene) -> None:
    made: list[KeptState] = []

    def loader() -> KeptState:
        made.append(KeptState())
        return made[-1]

    with closing(scene.node(loader=loader)) as node:
        node.start()
        node.wait_for(Role.ACTIVE, LIMIT_S)
        loaders = len(made)
    assert len(made) == loaders


def test_a_node_that_cannot_be_active_and_ends_meanwhile_loads_nothing_any_more(scene: Scene) -> None:
    made: list[KeptState] = []
    begun, ending = threading.Event(), threading.Event()

    def loader() -> KeptState:
        made.append(KeptState())
        return made[-1]

    def end_first(active: ActiveNode) -> None:
        begun.set()
        assert ending.wait(LIMIT_S)
        refuse(active)

    node = scene.node(end_first, loader=loader)
    node.start()
    assert begun.wait(LIMIT_S)
    loaders = len(made)
    with pytest.raises(DeadlineError):
        node.close(0.0)
    ending.set()
    node.close(LIMIT_S)
    assert len(made) == loaders


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_node_that_cannot_say_that_it_left_lets_its_copy_go(scene: Scene, running: Node) -> None:
    scene.kafka.exhausted = True
    running.close(LIMIT_S)
    assert running.role is Role.STOPPED
    scene.kafka.exhausted = False
    again = scene.node()
    again.start()
    again.close(LIMIT_S)


# ---- deciding ------------------------------------------------------------------------------------------------------


def test_a_node_that_waited_for_the_wal_fences_nobody_who_was_faster(scene: Scene) -> None:
    scene.other_activates(1)
    with closing(scene.node()) as node:
        node.start()
        scene.pass_turns(is_fit_standby)
        scene.kafka.wal_is_slow = lambda: not node.active_node
        scene.write(control_topic("j"), RELEASED_KEY, Released(epoch=1, node=OTHER))
        assert scene.kafka.wal_asked.wait(LIMIT_S)
        scene.other_activates(2)
        time.sleep(OLD_S)
        scene.kafka.wal_answers.set()
        scene.pass_turns(is_fit_standby)
        assert "init" not in scene.faults.seen


@pytest.mark.parametrize("polls_later", [0, 1], ids=["in_that_poll", "in_the_next"])
def test_a_node_that_was_stopped_while_it_polled_fences_nobody_who_was_faster(scene: Scene, polls_later: int) -> None:
    late: list[LogRecord] = []
    stops, woke = threading.Event(), threading.Event()

    def stop_once(poll: Callable[[], list[LogRecord]]) -> list[LogRecord]:
        """Suspended with an answer of before in its socket, which the client hands over in this poll or in the next."""
        nonlocal late
        if late:
            records, late = late, []
            return records
        records = poll()
        if stops.is_set() or all(record.key != RELEASED_KEY for record in records):
            return records
        stops.set()
        scene.other_activates(2)
        time.sleep(OLD_S)
        if polls_later:
            records, late = [], records
        woke.set()
        return records

    scene.kafka.polled = stop_once
    scene.other_activates(1)
    with closing(scene.node()) as node:
        node.start()
        scene.pass_turns(is_fit_standby)
        scene.write(control_topic("j"), RELEASED_KEY, Released(epoch=1, node=OTHER, to=ME))
        assert woke.wait(LIMIT_S)
        wait_until(lambda: not late)
        scene.pass_turns(is_fit_standby)
        assert "init" not in scene.faults.seen


def test_a_node_that_cannot_read_the_control_rows_fences_nobody_who_was_faster(scene: Scene) -> None:
    scene.kafka.member.granted = False
    scene.other_activates(1)
    with closing(scene.node(activation_retry_ms=60_000)) as node:
        node.start()
        scene.pass_turns(is_fit_standby)
        scene.write(control_topic("j"), RELEASED_KEY, Released(epoch=1, node=OTHER))
        wait_until(lambda: not node.active_node)
        scene.kafka.blind = True
        scene.other_activates(2)
        time.sleep(OLD_S)
        scene.kafka.member.granted = True
        wait_until(
            lambda: (
                "init" in scene.faults.seen
                or node.status().reason.startswith("activation failed: the control topic's leader")
            )
        )
        assert "init" not in scene.faults.seen
