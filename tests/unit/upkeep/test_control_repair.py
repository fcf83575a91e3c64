"""`repair control`: the rows that it writes where control rows were lost, and activations after it."""

from __future__ import annotations

import pytest

from journal.config import Settings
from journal.errors import ControlLostError, CorruptionError, RepairError, RowError
from journal.kafka.ports import Kafka
from journal.topics.control_keys import EPOCH_KEY, IDENTITY_KEY, RELEASED_KEY, route_skip_key, skip_key
from journal.topics.control_reading import read_control
from journal.topics.names import writer_id
from journal.upkeep.control_repair import ControlRepairer
from journal.v1.journal_pb2 import Epoch, Mark
from loaders.node.liveness import last_active
from tests.simulation.faults import CrashAt, Fault, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.support.activations import CONTROL, LIMIT_S, SHARDS, WAL, Activations, fails, write_mark
from tests.support.build import JOURNAL, frame, marker
from tests.support.deposed import write_anew

SETTINGS = Settings(journal="j", bootstrap_servers="b:1", shards=8, replication=1)


def repairer(scene: Activations, *, kafka: Kafka | None = None, uuid: bytes = b"") -> ControlRepairer:
    now = scene.broker.timeline.now
    return ControlRepairer(kafka or scene.kafka, SETTINGS, clock=now, wall_ms=now, uuid=uuid)


def repair(scene: Activations, *, kafka: Kafka | None = None, uuid: bytes = b"") -> None:
    repairing = repairer(scene, kafka=kafka, uuid=uuid)
    repairing.write(repairing.plan())


def lost(epoch: int | None) -> Activations:
    scene = Activations()
    for _ in range(3):
        scene.activate()
    scene.lose_control(epoch)
    return scene


@pytest.mark.parametrize("epoch", [1, None])
def test_the_next_activation_takes_the_epoch_behind_the_newest_that_was(epoch: int | None) -> None:
    scene = lost(epoch)
    repair(scene)
    rows = read_control(scene.kafka, "j", scene.broker.timeline.now, LIMIT_S)
    identity = rows.require_identity("j")
    assert (identity.journal, identity.shards, rows.epoch.epoch) == (JOURNAL, SHARDS, 3)
    assert scene.activate().writer.claim.epoch == 4
    with pytest.raises(RepairError, match="nothing to mend"):
        repairer(scene).plan()


@pytest.mark.parametrize(
    ("key", "bytes_there"),
    [
        (IDENTITY_KEY, b""),
        *((key, b"\xff\xff") for key in (IDENTITY_KEY, EPOCH_KEY, RELEASED_KEY, skip_key(0, 7), route_skip_key(0, 7))),
    ],
)
def test_a_row_that_cannot_be_read_is_lost_and_the_repair_says_so(key: bytes, bytes_there: bytes) -> None:
    scene = lost(3)
    scene.broker.write(CONTROL, 0, [(key, bytes_there)])
    with pytest.raises(RowError, match=r"repair control -j j"):
        read_control(scene.kafka, "j", scene.broker.timeline.now, LIMIT_S)
    assert list(repairer(scene).plan().found.unreadable) == [key]
    repair(scene)
    assert scene.activate().writer.claim.epoch == 4


def test_an_unreadable_row_that_came_after_the_plan_stops_the_repair() -> None:
    scene = lost(1)
    repairing = repairer(scene)
    agreed = repairing.plan()
    scene.broker.write(CONTROL, 0, [(skip_key(0, 7), b"\xff\xff")])
    with pytest.raises(RepairError, match="look again"):
        repairing.write(agreed)


def test_a_control_topic_that_is_gone_is_made_anew() -> None:
    scene = lost(None)
    scene.broker.delete_topic(CONTROL)
    repair(scene)
    assert scene.activate().writer.claim.epoch == 4


def test_an_identity_that_somebody_wrote_beside_the_frames_of_another_gives_way_to_theirs() -> None:
    scene = lost(None)
    write_anew(scene.broker, CONTROL, [])
    scene.write_identity(b"x" * 16)
    row = Epoch(journal=b"x" * 16, epoch=9, nonce=b"n" * 16)
    scene.broker.write(CONTROL, 0, [(EPOCH_KEY, row.SerializeToString())])
    repair(scene)
    assert scene.activate().writer.claim.epoch == 4


def test_an_active_node_of_the_epoch_that_is_written_is_fenced() -> None:
    scene = lost(2)
    active = scene.kafka.transactional_producer(writer_id("j"))
    active.init(LIMIT_S)
    repair(scene)
    rows = read_control(scene.kafka, "j", scene.broker.timeline.now, LIMIT_S)
    assert rows.epoch.nonce == b""
    found = last_active(rows)
    assert found is not None
    assert found.released  # a standby takes over at once
    assert scene.activate().writer.claim.epoch == 4


def test_a_wal_that_lost_the_newest_marker_goes_on_with_what_is_left() -> None:
    scene = Activations()
    scene.activate()
    scene.follows = False
    fails(scene)
    scene.lose_wal(1, keep=1)
    assert isinstance(fails(scene), CorruptionError)
    repair(scene)
    scene.follows = True
    assert scene.activate().writer.claim.epoch == 3


def test_marks_of_another_activation_of_the_counters_epoch_are_mended_as_the_activation_advised() -> None:
    scene = Activations()
    scene.activate()
    scene.follows = False
    stranger = Mark(shard=1, offset=1, epoch=2, nonce=b"another".ljust(16))
    error = fails(scene, at=lambda step: write_mark(scene.broker, stranger) if step == "gate" else None)
    assert "repair control -j j" in str(error)
    repair(scene)
    scene.follows = True
    assert scene.activate().writer.claim.epoch == 3


def test_a_wal_without_frames_needs_the_journals_uuid_from_the_operator() -> None:
    scene = lost(None)
    for shard, end in enumerate(scene.ends()):
        scene.kafka.cluster().delete_records(WAL, {shard: end}, LIMIT_S)
    with pytest.raises(RepairError, match="--uuid"):
        repairer(scene).plan()
    repair(scene, uuid=JOURNAL)
    assert scene.activate().writer.claim.epoch == 4


def test_a_wal_with_frames_of_several_journals_is_repaired_for_one_of_their_uuids() -> None:
    scene = lost(None)
    foreign = frame(1, marker(), journal=b"x" * 16).SerializeToString()
    write_anew(scene.broker, WAL, [(None, b"no frame"), (None, foreign)], 1)
    with pytest.raises(RepairError, match="more than one journal"):
        repairer(scene).plan()
    with pytest.raises(RepairError, match="none of"):
        repairer(scene, uuid=b"y" * 16).plan()
    assert repairer(scene, uuid=JOURNAL).plan().identity.journal == JOURNAL


def test_a_repair_whose_plan_has_changed_writes_nothing() -> None:
    scene = lost(1)
    repairing = repairer(scene)
    agreed = repairing.plan()
    row = Epoch(journal=JOURNAL, epoch=7)
    scene.broker.write(CONTROL, 0, [(EPOCH_KEY, row.SerializeToString())])
    with pytest.raises(RepairError):
        repairing.write(agreed)
    assert read_control(scene.kafka, "j", scene.broker.timeline.now, LIMIT_S).epoch.epoch == 7


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE])
def test_a_repair_that_is_killed_at_any_request_is_completed_by_the_next_or_done(fault: Fault) -> None:
    counting = CrashAt("repair")
    whole = lost(None)
    whole.broker.faults = counting
    repair(whole, kafka=SimulatedKafka(whole.broker, "repair"))
    assert counting.step > 10
    for step in range(1, counting.step + 1):
        scene = lost(None)
        scene.broker.faults = CrashAt("repair", fault, step)
        with pytest.raises(SimulatedCrash):
            repair(scene, kafka=SimulatedKafka(scene.broker, "repair"))
        scene.broker.timeline.wait(30.0, lambda: False)
        try:
            assert scene.activate().writer.claim.epoch == 4
        except ControlLostError:
            repair(scene)
            assert scene.activate().writer.claim.epoch == 4
