"""An activation that finds control rows, WAL and tables that do not fit: what was lost, and what was only not shown."""

from __future__ import annotations

import pytest

from journal.errors import ControlLostError, CorruptionError, FencedError
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.control_reading import read_control
from journal.topics.names import writer_id
from journal.v1.journal_pb2 import Epoch, Mark
from journal.wire.frames import decode_frame
from tests.support.activations import CONTROL, LIMIT_S, SHARDS, TABLE, WAL, Activations, fails, write_mark
from tests.support.build import JOURNAL
from tests.support.deposed import write_anew


@pytest.fixture
def scene() -> Activations:
    scene = Activations()
    for epoch in (1, 2, 3):
        assert scene.activate().writer.claim.epoch == epoch
    return scene


# ---- the counter -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 1, 2, None])
def test_a_counter_below_what_the_wal_says_is_told_as_lost_and_nothing_is_written(
    scene: Activations, epoch: int | None
) -> None:
    scene.lose_control(epoch)
    ends = scene.ends()
    for _ in range(4):  # as often as it would take to come to an epoch that was
        error = fails(scene)
        assert isinstance(error, ControlLostError)
        assert (error.topic, error.partition) == (CONTROL, 0)
        assert "kafka-journal repair control -j j" in str(error)
    assert scene.ends() == ends
    assert read_control(scene.kafka, "j", scene.broker.timeline.now, LIMIT_S).epoch.epoch == (epoch or 0)


def test_a_counter_below_what_only_the_tables_say_is_told_as_lost(scene: Activations) -> None:
    scene.lose_control(1)
    for shard in range(SHARDS):
        scene.lose_wal(shard, keep=1)
    error = fails(scene)
    assert isinstance(error, ControlLostError)
    assert "the table of shard 0 at epoch 3" in str(error)


def test_a_counter_that_only_a_deposed_leader_does_not_show_is_asked_for_again(scene: Activations) -> None:
    scene.kafka.depose(CONTROL, reads=2)
    scene.kafka.reads_left[CONTROL] = 0
    assert scene.activate().writer.claim.epoch == 4
    scene.kafka.reads_left[CONTROL] = 2  # those of one look, which still stands at epoch 3
    assert scene.activate().writer.claim.epoch == 5


def test_an_identity_that_only_a_deposed_leader_does_not_show_is_asked_for_again() -> None:
    scene = Activations()
    write_anew(scene.broker, CONTROL, [])
    scene.kafka.depose(CONTROL, reads=2)
    scene.write_identity()
    assert scene.activate().writer.claim.epoch == 1


# ---- the WAL -----------------------------------------------------------------------------------------------------


def test_markers_do_not_follow_a_tail_that_only_a_deposed_leader_shows(scene: Activations) -> None:
    scene.kafka.depose(WAL, reads=2)
    scene.kafka.reads_left[WAL] = 0
    assert scene.activate().writer.claim.epoch == 4
    scene.kafka.reads_left[WAL] = 2
    assert scene.activate().writer.claim.epoch == 5
    frames = [decode_frame(record.value, JOURNAL, 0, SHARDS) for record in scene.records(0)]
    assert [frame.number for frame in frames] == list(range(1, len(frames) + 1))


@pytest.mark.parametrize(("shard", "keep"), [(0, 5), (1, 2)], ids=["the_last_frame", "an_epoch"])
def test_a_wal_that_lost_what_its_tables_have_is_told_before_a_claim_is_written(
    scene: Activations, shard: int, keep: int
) -> None:
    scene.checkpoint()
    scene.lose_wal(shard, keep)
    for _ in range(8):  # what is aborted takes offsets too
        error = fails(scene)
        assert isinstance(error, CorruptionError)
        assert (error.topic, error.partition) == (WAL, shard)
    assert len(scene.records(shard)) == keep


def test_a_wal_that_lost_the_newest_epochs_marker_is_told_until_an_operator_goes_on_with_what_is_left() -> None:
    scene = Activations()
    scene.activate()
    scene.follows = False
    fails(scene)  # its gate stays shut: the tables do not have epoch 2
    scene.lose_wal(1, keep=1)
    error = fails(scene)
    assert isinstance(error, CorruptionError)
    assert (error.topic, error.partition) == (WAL, 1)
    assert "repair control -j j" in str(error)
    scene.follows = True
    row = control_row("j", EPOCH_KEY, Epoch(journal=JOURNAL, epoch=2))  # as the repair writes it
    scene.broker.write(CONTROL, 0, [(row.key, row.value)])
    assert scene.activate().writer.claim.epoch == 3


def test_a_lost_marker_is_no_case_for_the_repair_while_another_shard_lost_what_its_tables_have() -> None:
    scene = Activations()
    scene.activate()
    scene.follows = False
    fails(scene)
    marker = scene.records(1)[-1]
    frame = decode_frame(marker.value, JOURNAL, 1, SHARDS)
    write_mark(
        scene.broker,
        Mark(shard=1, offset=marker.offset, number=frame.number, group=frame.group, epoch=2, nonce=frame.nonce),
    )
    scene.lose_wal(0, keep=2)
    scene.lose_wal(1, keep=1)
    error = fails(scene)
    assert isinstance(error, CorruptionError)
    assert (error.topic, error.partition) == (WAL, 1)
    assert "repair control" not in str(error)


def test_a_shard_that_was_trimmed_to_its_mark_is_numbered_on(scene: Activations) -> None:
    for shard, end in enumerate(scene.ends()):
        scene.kafka.cluster().delete_records(WAL, {shard: end}, LIMIT_S)
    last = Mark.FromString(scene.broker.topics[TABLE].logs[0].fetch(0, 0, 1000, committed=True)[-1].value or b"")
    scene.follows = False
    fails(scene)
    marker = decode_frame(scene.records(0)[0].value, JOURNAL, 0, SHARDS)
    assert (marker.number, marker.epoch) == (last.number + 1, 4)
    assert marker.group > last.group


# ---- the gate ----------------------------------------------------------------------------------------------------


def test_a_gate_that_meets_marks_of_nobodys_epoch_says_that_the_counter_is_lost(scene: Activations) -> None:
    scene.follows = False

    def another(step: str) -> None:
        """The tables show another activation of the same epoch, and the counter does not."""
        if step == "gate":
            mark = Mark(shard=1, offset=1000, epoch=4, nonce=b"another".ljust(16))
            write_mark(scene.broker, mark)

    assert isinstance(fails(scene, at=another), ControlLostError)


def test_a_gate_that_meets_the_marks_of_a_successor_is_fenced(scene: Activations) -> None:
    scene.follows = False

    def successor(step: str) -> None:
        if step == "gate":
            nonce = b"another".ljust(16)
            row = control_row("j", EPOCH_KEY, Epoch(journal=JOURNAL, epoch=5, nonce=nonce))
            scene.broker.write(CONTROL, 0, [(row.key, row.value)])
            mark = Mark(shard=1, offset=1000, epoch=5, nonce=nonce)
            write_mark(scene.broker, mark)

    assert isinstance(fails(scene, at=successor), FencedError)


def test_nobody_who_is_refused_a_claim_leaves_a_transaction_open(scene: Activations) -> None:
    scene.lose_wal(1, keep=2)
    fails(scene)
    producer = scene.kafka.transactional_producer(writer_id("j"))
    producer.init(LIMIT_S)
    assert [log.last_stable == log.end for log in scene.broker.topics[WAL].logs] == [True, True]
