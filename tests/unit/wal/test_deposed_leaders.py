"""A writer whose reads are answered by a leader that was deposed, or by a partition that lost what it had."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

import pytest

from journal.append.group import FrameOrigin, Group
from journal.append.writing import Claim
from journal.config import Settings
from journal.errors import (
    ControlLostError,
    CorruptionError,
    FatalProducerError,
    FencedError,
    GapError,
    JournalError,
    NotTakenInError,
    OutcomeUnknownError,
    StaleReadError,
)
from journal.kafka.ports import Consumed
from journal.process.clocks import Timing
from journal.table.replica import Replica
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.names import control_topic, table_topic, wal_topic, writer_id
from journal.v1.journal_pb2 import ADD, MARKER, Epoch, Identity, Mark
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence, always_open
from journal.wal.reading import read_tails
from journal.wal.writer import Writer, last_numbers
from journal.wire.frames import decode_frame
from journal.wire.keys import mark_key
from loaders.snapshot import SnapshotState, read_snapshot
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL
from tests.support.deposed import DeposedKafka, write_anew

LIMIT_S = 2.0
RECOVERY_S = 20.0
SHARDS = 2
WAL, CONTROL, TABLE = wal_topic("j"), control_topic("j"), table_topic("j")
CONFIG = WriterConfig("j", JOURNAL, SHARDS, 0.0, 0.0, 0.0, 1 << 20)


class Once(Faults):
    """What meets a node's next request of a kind."""

    def __init__(self) -> None:
        self.meets: dict[str, Fault] = {}

    def at(self, request: str, node: str) -> Fault:
        return self.meets.pop(request, Fault.NONE) if node == "node" else Fault.NONE


class Scene:
    """A journal, and its node of epoch 1, whose Kafka may have deposed leaders."""

    def __init__(self) -> None:
        self.faults = Once()
        self.broker = SimulatedBroker(Timeline(), self.faults)
        for topic, partitions in ((WAL, SHARDS), (CONTROL, 1), ("source", 1)):
            self.broker.create_topic(topic, partitions, 1, {})
        self.others = SimulatedKafka(self.broker, "others")
        self.kafka = DeposedKafka(self.broker)
        self.writer = self.activate(self.kafka, 1, b"own")

    def activate(self, kafka: SimulatedKafka, epoch: int, nonce: bytes) -> Writer:
        """The writer of an epoch that has begun."""
        now, pause = self.broker.timeline.now, self.broker.timeline.pass_to
        timing = Timing(now, lambda seconds: pause(now() + seconds), LIMIT_S, RECOVERY_S, LIMIT_S)
        producer = kafka.transactional_producer(writer_id("j"))
        producer.init(LIMIT_S)
        tails = read_tails(kafka, "j", JOURNAL, SHARDS, now, LIMIT_S)
        markers = Group(SHARDS, 900_000)
        for shard in range(SHARDS):
            markers.put(shard, MARKER, 0, 0, nonce.ljust(16))
        numbers = markers.seal(FrameOrigin(JOURNAL, epoch, "node"), last_numbers(tails))
        counter = control_row("j", EPOCH_KEY, Epoch(journal=JOURNAL, epoch=epoch, nonce=nonce.ljust(16)))
        places = producer.send([counter, *markers.records(WAL)], LIMIT_S)[1:]
        producer.commit_transaction(LIMIT_S)
        claim = Claim(epoch, "node", nonce.ljust(16))
        ends = [place + 1 for place in places]
        return Writer(kafka, CONFIG, claim, Fence(kafka, "j", timing), producer, numbers, ends, timing)

    def overtake(self) -> Writer:
        return self.activate(self.others, 2, b"new")

    def group(self, *shards: int, consumed: Consumed | None = None) -> Group:
        group = Group(SHARDS, 900_000, consumed)
        for shard in shards or range(SHARDS):
            group.put(shard, ADD, 1024 * (shard + 1) + shard, 1, b"data")
        return group

    def write(self, *shards: int, meet: Fault, at: str = "end_transaction") -> JournalError | None:
        """What a group is told that meets a fault."""
        group = self.group(*shards)
        self.faults.meets[at] = meet
        return self.told(group)

    def told(self, group: Group) -> JournalError | None:
        with suppress(JournalError):  # the completion has it
            self.writer.write(group)
        assert group.completion.done
        return group.completion.error

    def frames(self, shard: int) -> list[tuple[int, int]]:
        """Epoch and number of each committed frame."""
        log = self.broker.log(WAL, shard)
        assert log is not None
        records = log.fetch(shard, log.start, 1000, committed=True)
        return [
            (frame.epoch, frame.number)
            for frame in (decode_frame(record.value, JOURNAL, shard, SHARDS) for record in records)
        ]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("deposed", [(CONTROL,), (CONTROL, WAL)], ids=["of_the_counter", "of_all"])
def test_a_fenced_node_sends_nothing_behind_its_successors_marker_whoever_answers_it(
    scene: Scene, deposed: tuple[str, ...]
) -> None:
    for topic in deposed:
        scene.kafka.depose(topic)
    scene.overtake()
    error = scene.write(meet=Fault.LOSE_REQUEST)
    assert isinstance(error, FencedError | OutcomeUnknownError)
    assert [scene.frames(shard) for shard in range(SHARDS)] == [[(1, 1), (2, 2)]] * SHARDS


def test_a_group_that_is_in_the_wal_is_not_sent_again_where_a_deposed_leader_does_not_show_it(scene: Scene) -> None:
    scene.kafka.depose(WAL, reads=3)
    assert scene.write(meet=Fault.LOSE_RESPONSE) is None
    assert [scene.frames(shard) for shard in range(SHARDS)] == [[(1, 1), (1, 2)]] * SHARDS
    assert scene.told(scene.group()) is None
    assert scene.frames(0) == [(1, 1), (1, 2), (1, 3)]


def test_a_group_of_consumed_records_is_not_told_absent_where_a_deposed_leader_does_not_show_it(scene: Scene) -> None:
    scene.kafka.depose(WAL, reads=3)
    taken = scene.group(consumed=Consumed("g", {("source", 0): 7}))
    scene.faults.meets["end_transaction"] = Fault.LOSE_RESPONSE
    assert scene.told(taken) is None
    assert scene.frames(0) == [(1, 1), (1, 2)]


def test_a_group_of_consumed_records_that_is_absent_leaves_nothing_that_anybody_waits_for(scene: Scene) -> None:
    taken = scene.group(consumed=Consumed("g", {("source", 0): 7}))
    scene.faults.meets["end_transaction"] = Fault.LOSE_REQUEST
    assert isinstance(scene.told(taken), NotTakenInError)
    log = scene.broker.log(WAL, 0)
    assert log is not None
    assert log.last_stable == log.end
    assert scene.frames(0) == [(1, 1)]
    assert scene.told(scene.group()) is None
    assert scene.frames(0) == [(1, 1), (1, 2)]


@pytest.mark.parametrize("deposed", [(CONTROL,), (CONTROL, WAL)], ids=["of_the_counter", "of_all"])
def test_the_group_behind_a_commit_that_may_have_been_sent_twice_meets_the_successor(
    scene: Scene, deposed: tuple[str, ...]
) -> None:
    group = scene.group()
    scene.faults.meets["end_transaction"] = Fault.REPEATED
    scene.broker.faults.late_by_s = lambda: 0.1  # type: ignore[method-assign]
    assert scene.told(group) is None
    scene.writer.close()  # as behind a slow one
    for topic in deposed:
        scene.kafka.depose(topic)
    scene.overtake()
    error = scene.told(scene.group(1))
    assert isinstance(error, FencedError | OutcomeUnknownError)
    assert scene.frames(1) == [(1, 1), (1, 2), (2, 3)]


def ready_group() -> Group:
    group = Group(SHARDS, 900_000)
    group.put_heartbeat(0)
    return group


def regain_and_write(scene: Scene, ready: Group) -> None:
    scene.writer.regain(scene.broker.timeline.now() + RECOVERY_S, always_open)
    scene.writer.write_ready(ready)


@pytest.mark.parametrize("deposed", [(CONTROL,), (CONTROL, WAL)], ids=["of_the_counter", "of_all"])
def test_no_ready_is_confirmed_behind_a_newer_marker_whoever_answers(scene: Scene, deposed: tuple[str, ...]) -> None:
    for topic in deposed:
        scene.kafka.depose(topic)
    scene.overtake()
    ready = ready_group()
    with pytest.raises(JournalError):
        regain_and_write(scene, ready)
    assert not ready.completion.done
    assert scene.frames(0) == [(1, 1), (2, 2)]


def test_a_regain_counts_the_ready_that_it_finds(scene: Scene) -> None:
    scene.faults.meets["end_transaction"] = Fault.LOSE_RESPONSE
    with pytest.raises(JournalError):
        scene.writer.write_ready(ready_group())
    regain_and_write(scene, ready_group())
    assert scene.told(scene.group()) is None
    assert scene.frames(0) == [(1, 1), (1, 2), (1, 3), (1, 4)]


# ---- outcomes ----------------------------------------------------------------------------------------------------


def lose_wal(scene: Scene) -> None:
    """Both shards are cut off behind their first offsets: they begin where nothing is left of what this node wrote."""
    for shard in range(SHARDS):
        log = scene.broker.log(WAL, shard)
        assert log is not None
        for _ in range(5):
            log.append(0, None, b"no frame")
        log.trim(log.end - 1)


def test_an_outcome_that_stays_unknown_says_what_was_met_first_and_last(scene: Scene) -> None:
    def forbidden(transactional_id: str) -> NoReturn:
        raise FatalProducerError("this one may not write")

    scene.kafka.transactional_producer = forbidden  # type: ignore[method-assign]
    error = scene.write(meet=Fault.LOSE_RESPONSE)
    assert isinstance(error, OutcomeUnknownError)
    assert "end_transaction" in str(error)
    assert "this one may not write" in str(error)


def spoil_control(scene: Scene) -> None:
    scene.broker.write(CONTROL, 0, [(EPOCH_KEY, b"\xff no row")])


def lose_counter(scene: Scene) -> None:
    write_anew(scene.broker, CONTROL, [])


def damage_wal(scene: Scene) -> None:
    """Its batches cannot be read any more."""

    class Damaged(DeposedKafka):
        def reader(self, topic: str, **options: object) -> object:  # type: ignore[override]
            reader = super().reader(topic, **options)  # type: ignore[arg-type]
            if topic == WAL:
                reader.poll = damaged  # type: ignore[method-assign]
            return reader

    def damaged(timeout_s: float) -> list[object]:
        raise CorruptionError("a batch is damaged", topic=WAL, partition=0, offset=1)

    scene.kafka.__class__ = Damaged


@pytest.mark.parametrize("meet", [Fault.LOSE_REQUEST, Fault.LOSE_RESPONSE], ids=["absent", "there"])
@pytest.mark.parametrize("lose", [lose_wal, spoil_control, lose_counter, damage_wal])
def test_what_is_not_proven_to_be_absent_is_unknown(scene: Scene, lose: object, meet: Fault) -> None:
    class Losing(Once):
        def at(self, request: str, node: str) -> Fault:
            if request == "end_transaction" and node == "node" and not self.lost:
                self.lost = True
                effect_first = meet is Fault.LOSE_RESPONSE
                if effect_first:
                    scene.broker.timeline.call_at(scene.broker.timeline.now() + LIMIT_S / 2, lambda: lose(scene))  # type: ignore[operator]
                else:
                    lose(scene)  # type: ignore[operator]
                return meet
            return Fault.NONE

        lost = False

    scene.broker.faults = Losing()
    error = scene.told(scene.group())
    assert isinstance(error, OutcomeUnknownError)


def test_a_fenced_node_that_cannot_read_its_fate_calls_it_unknown(scene: Scene) -> None:
    scene.overtake()
    lose_wal(scene)
    error = scene.write(meet=Fault.LOSE_REQUEST)
    assert isinstance(error, OutcomeUnknownError)
    assert isinstance(error.__cause__, GapError)


def test_a_counter_that_went_back_names_the_command_that_mends_it(scene: Scene) -> None:
    group = scene.group()
    scene.writer.close()
    lose_counter(scene)
    error = scene.told(group)
    assert isinstance(error, ControlLostError)  # nothing of the group was sent
    assert "repair control -j j" in str(error)
    assert (error.topic, error.partition) == (CONTROL, 0)


def test_a_counter_that_only_a_deposed_leader_does_not_show_is_no_loss(scene: Scene) -> None:
    fresh = Scene()
    write_anew(fresh.broker, CONTROL, [])
    fresh.kafka.depose(CONTROL, reads=4)  # both checks
    fresh.broker.write(CONTROL, 0, [(EPOCH_KEY, Epoch(epoch=1, nonce=b"own".ljust(16)).SerializeToString())])
    fresh.writer.close()
    assert fresh.told(fresh.group()) is None


def test_a_wal_that_lost_what_this_node_was_told_is_noticed_by_the_next_group(scene: Scene) -> None:
    for _ in range(3):
        assert scene.told(scene.group()) is None
    values = [(None, record.value) for record in scene.broker.topics[WAL].logs[0].fetch(0, 0, 2, committed=True)]
    write_anew(scene.broker, WAL, values)
    error = scene.told(scene.group(0))
    assert isinstance(error, OutcomeUnknownError)
    lost = error.__cause__
    assert isinstance(lost, CorruptionError)
    assert (lost.topic, lost.partition) == (WAL, 0)
    assert len(scene.frames(0)) == 2


def test_markers_are_told_by_their_nonce(scene: Scene) -> None:
    """A second activation in the same epoch, of a counter that went back, fences the first."""
    scene.activate(scene.others, 1, b"two")
    error = scene.write(meet=Fault.LOSE_REQUEST)
    assert isinstance(error, FencedError)
    log = scene.broker.log(WAL, 0)
    assert log is not None
    frames = [decode_frame(record.value, JOURNAL, 0, SHARDS) for record in log.fetch(0, 0, 100, committed=True)]
    assert [frame.nonce for frame in frames] == [b"own".ljust(16), b"two".ljust(16)]


# ---- a read-only load ----------------------------------------------------------------------------------------------


def load_now(scene: Scene) -> SnapshotState:
    kafka, now = scene.kafka, scene.broker.timeline.now
    store = SimulatedStore(Disk(), Faults(), "reader")
    replica = Replica(
        kafka,
        TABLE,
        range(SHARDS),
        store,
        b"identity",
        clock=now,
        wall_ms=lambda: now() * 1000,
        delete_retention_ms=10**9,
        min_compaction_lag_ms=10**9,
        held_bytes_max=10**6,
    )
    replica.open(LIMIT_S)
    identity = Identity(journal=JOURNAL, shards=SHARDS)
    settings = Settings(journal="j", shards=SHARDS)
    return read_snapshot(kafka, settings, identity, replica, store, now=True, timeout_s=LIMIT_S, clock=now)


def test_a_load_to_which_a_deposed_leader_does_not_show_the_newest_epoch_is_an_error(scene: Scene) -> None:
    scene.broker.create_topic(TABLE, SHARDS, 1, {})
    assert load_now(scene).marks[1].epoch == 1
    scene.kafka.depose(WAL, partitions=[1])
    scene.overtake()
    with pytest.raises(StaleReadError, match=r"j\.wal\[1\] shows epoch 1, and another shard epoch 2"):
        load_now(scene)


def test_a_load_to_which_a_deposed_leader_shows_less_than_the_tables_have_is_an_error(scene: Scene) -> None:
    scene.broker.create_topic(TABLE, SHARDS, 1, {})
    scene.kafka.depose(WAL)
    assert scene.told(scene.group()) is None
    log = scene.broker.log(WAL, 1)
    assert log is not None
    mark = Mark(shard=1, offset=log.end - 2, number=2, group=2, epoch=1, nonce=b"own".ljust(16))
    scene.broker.write(TABLE, 1, [(mark_key(1), mark.SerializeToString())])
    with pytest.raises(StaleReadError, match=r"j\.wal\[1\] ends at 2, and the tables have offset 2"):
        load_now(scene)
