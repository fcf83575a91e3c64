"""A journal that is destroyed: refused while it is used, and never half a journal that looks whole."""

from __future__ import annotations

import pytest

from journal.config import Settings
from journal.errors import ActiveNodeError, FatalProducerError, JournalError, NoJournalError
from journal.kafka.ports import GroupMember, Sent
from journal.topics.control_reading import read_control
from journal.topics.made_and_checked import init_journal, open_journal
from journal.topics.names import node_group, sources_group, worker_group, writer_id
from journal.upkeep.control_repair import ControlRepairer
from journal.upkeep.destroying import Destroyer
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import CrashAt, Fault, Faults, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline

SETTINGS = Settings(journal="j", bootstrap_servers="b:1", shards=2)
LIMIT_S = 10.0
OWN = {"j.wal", "j.table", "j.control", "j.agent.alerts"}
OTHERS = {"j-2.wal", "other.control", "landed"}
MEMBER = GroupMember("m", "worker one", "host-1", ())


class Scene:
    """A journal that has been written to, beside topics and groups of others."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.broker = SimulatedBroker(Timeline(), faults or Faults())
        self.kafka = SimulatedKafka(self.broker)
        self.local = True
        """Whether this machine keeps something of the journal."""
        self.init()
        cluster = self.kafka.cluster()
        for topic in (*OTHERS, "j.agent.alerts"):
            cluster.create(topic, 1, 1, {}, LIMIT_S)
        producer = self.kafka.plain_producer()
        producer.send([Sent(topic, 0, b"k", b"v") for topic in ("j.wal", "j.table")], LIMIT_S)
        producer.close()
        self.broker.groups |= {worker_group("j"): [], node_group("j"): [], worker_group("j-2"): [MEMBER]}
        self.broker.group_offsets |= {sources_group("j"): {("t", 0): 1}, sources_group("j-2"): {("t", 0): 1}}

    def init(self) -> None:
        now = self.broker.timeline.now
        init_journal(self.kafka, SETTINGS, lambda: b"A" * 16, clock=now, wall_ms=now, timeout_s=LIMIT_S)

    def destroy(self, node: str = "another") -> None:
        now = self.broker.timeline.now
        kafka = SimulatedKafka(self.broker, node)
        destroyer = Destroyer(kafka, SETTINGS, operator="eve@host", nonce=b"n" * 16, clock=now, wall_ms=now)
        destroyer.delete(destroyer.plan(), self.forget)

    def forget(self) -> None:
        self.local = False

    def repair_control(self) -> None:
        now = self.broker.timeline.now
        ControlRepairer(self.kafka, SETTINGS, clock=now, wall_ms=now, uuid=b"A" * 16).plan()

    def open(self) -> None:
        open_journal(self.kafka, SETTINGS, clock=self.broker.timeline.now, timeout_s=LIMIT_S)


def require_gone(scene: Scene) -> None:
    assert set(scene.broker.topics) == OTHERS
    assert {*scene.broker.groups, *scene.broker.group_offsets} == {worker_group("j-2"), sources_group("j-2")}
    assert not scene.local


def test_a_destroyed_journal_leaves_nothing_and_touches_nothing_of_others() -> None:
    scene = Scene()
    scene.destroy()
    require_gone(scene)
    scene.destroy()
    require_gone(scene)
    with pytest.raises(NoJournalError, match="there is no journal j: run `kafka-journal init -j j`"):
        scene.open()


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE])
def test_a_kill_at_any_request_leaves_a_whole_journal_or_one_that_everybody_refuses(fault: Fault) -> None:
    counting = CrashAt("first")
    Scene(counting).destroy("first")
    assert counting.step > 10
    refused = 0
    for step in range(1, counting.step + 1):
        scene = Scene(CrashAt("first", fault, step))
        with pytest.raises(SimulatedCrash):
            scene.destroy("first")
        scene.broker.timeline.wait(30.0, lambda: False)  # whatever is late has come
        if "j.control" not in scene.broker.topics:
            require_gone(scene)
            continue
        if read_control(scene.kafka, "j", scene.broker.timeline.now, LIMIT_S).destroyed is None:
            assert set(scene.broker.topics) >= OWN, f"{fault} at step {step}"
            assert scene.local
            scene.open()
        else:
            refused += 1
            for use in (scene.open, scene.init, scene.repair_control):
                with pytest.raises(JournalError) as refusal:
                    use()
                said = str(refusal.value)
                assert "eve@host has begun" in said or "is missing" in said, f"{use} after {fault} at step {step}"
        scene.destroy()
        require_gone(scene)
    assert refused > 3


@pytest.mark.parametrize("group", [worker_group("j"), node_group("j")])
def test_a_journal_with_a_member_is_refused_and_nothing_is_changed(group: str) -> None:
    scene = Scene()
    scene.broker.groups[group] = [MEMBER]
    with pytest.raises(ActiveNodeError, match=f"worker one at host-1 is a member of {group}"):
        scene.destroy()
    assert set(scene.broker.topics) == OWN | OTHERS
    scene.open()


def test_a_node_that_is_active_unseen_is_fenced_before_anything_is_deleted() -> None:
    scene = Scene()
    active = scene.kafka.transactional_producer(writer_id("j"))
    active.init(LIMIT_S)
    now = scene.broker.timeline.now
    destroyer = Destroyer(scene.kafka, SETTINGS, operator="eve", nonce=b"n" * 16, clock=now, wall_ms=now)
    found: list[int] = []

    def look() -> None:
        with pytest.raises(FatalProducerError):
            active.send([Sent("j.control", 0, b"k", b"v")], LIMIT_S)
        found.append(read_control(scene.kafka, "j", now, LIMIT_S).epoch.epoch)

    destroyer.delete(destroyer.plan(), look)
    assert found == [1]


@pytest.mark.parametrize("left", [{"j.wal", "j.table"}, {"j.control"}, {"j.wal"}])
def test_what_is_left_of_a_journal_is_destroyed_too(left: set[str]) -> None:
    scene = Scene()
    for topic in OWN - left:
        scene.broker.delete_topic(topic)
    scene.destroy()
    require_gone(scene)
