"""What only the simulated Kafka can show: faults at requests, late markers, compaction, turns between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from journal.errors import (
    AbortableProducerError,
    CorruptionError,
    DeadlineError,
    FatalProducerError,
    GapError,
    KafkaUnavailableError,
    RetriableProducerError,
)
from journal.kafka.ports import LogRecord, Sent
from tests.simulation.broker import Instance, SimulatedBroker
from tests.simulation.faults import Fault, Faults, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.partition import PartitionLog
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.readers import SimulatedReader
from tests.simulation.timeline import Timeline

LIMIT_S = 5.0


class Scripted(Faults):
    """The faults of the next requests by name; nothing else goes wrong."""

    def __init__(self) -> None:
        self.next: dict[str, Fault] = {}
        self.markers_after_s: dict[int, float] = {}
        self.asked: list[str] = []

    def at(self, request: str, node: str) -> Fault:
        self.asked.append(request)
        return self.next.pop(request, Fault.NONE)

    def marker_after_s(self, topic: str, partition: int) -> float:
        return self.markers_after_s.get(partition, 0.0)


class World:
    def __init__(self, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        self.faults = Scripted()
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline, self.faults)
        self.broker.create_topic("t", partitions, 1, config or {})
        self.kafka = SimulatedKafka(self.broker)

    def producer(self) -> SimulatedTransactionalProducer:
        producer = self.kafka.transactional_producer("id")
        producer.init(LIMIT_S)
        return producer

    def successor(self) -> None:
        """Another node's init, without a node."""
        self.broker.init_producer("id")

    def log(self, partition: int = 0) -> PartitionLog:
        log = self.broker.log("t", partition)
        assert log is not None
        return log

    def seen(self, partition: int = 0, *, committed: bool = True) -> list[bytes | None]:
        return [r.value for r in self.log(partition).fetch(partition, 0, 1000, committed=committed)]

    def sleep(self, seconds: float) -> None:
        self.timeline.wait(seconds, lambda: False)


def sent(*values: bytes, partition: int = 0) -> list[Sent]:
    return [Sent("t", partition, b"k", value) for value in values]


# ---- commits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "at_once", "later"),
    [
        (Fault.LOSE_REQUEST, [], []),
        (Fault.LOSE_RESPONSE, [b"a"], [b"a"]),
        (Fault.LATE, [], [b"a"]),
    ],
)
def test_a_commit_without_an_answer_is_fatal_and_its_outcome_is_the_brokers(
    fault: Fault, at_once: list[bytes], later: list[bytes]
) -> None:
    world = World()
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    world.faults.next = {"end_transaction": fault}
    with pytest.raises(FatalProducerError) as error:
        producer.commit_transaction(0.5)
    assert not error.value.fenced
    assert world.seen() == at_once
    world.sleep(1.0)
    assert world.seen() == later


@pytest.mark.parametrize("fault", [Fault.RETRIED, Fault.REPEATED])
def test_a_commit_that_was_asked_twice_says_that_it_is_not_to_be_trusted_alone(fault: Fault) -> None:
    world = World()
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    world.faults.next = {"end_transaction": fault}
    assert producer.commit_transaction(LIMIT_S) is False
    assert world.seen() == [b"a"]
    producer.send(sent(b"b"), LIMIT_S)
    assert producer.commit_transaction(LIMIT_S) is True


def test_a_repeated_commit_that_arrives_late_commits_half_of_the_next_transaction() -> None:
    world = World(partitions=2)
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    world.faults.next = {"end_transaction": Fault.REPEATED}
    producer.commit_transaction(LIMIT_S)
    producer.send(sent(b"half"), LIMIT_S)
    assert world.seen() == [b"a"]
    world.sleep(1.0)
    assert world.seen() == [b"a", b"half"]


def test_a_repeated_commit_that_arrives_after_the_next_init_does_nothing() -> None:
    world = World()
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    world.faults.next = {"end_transaction": Fault.REPEATED}
    producer.commit_transaction(LIMIT_S)
    successor = world.producer()
    successor.send(sent(b"b"), LIMIT_S)
    world.sleep(1.0)
    assert world.seen() == [b"a"]
    assert successor.commit_transaction(LIMIT_S)


def test_a_commit_answered_fenced_after_it_succeeded() -> None:
    world = World()
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    world.faults.next = {"end_transaction": Fault.RETRIED}
    world.timeline.call_at(world.timeline.now() + 0.1, world.successor)
    with pytest.raises(FatalProducerError) as error:
        producer.commit_transaction(LIMIT_S)
    assert error.value.fenced
    assert world.seen() == [b"a"]


def test_a_commit_becomes_visible_partition_by_partition_and_holds_the_next_transaction_up() -> None:
    world = World(partitions=2)
    world.faults.markers_after_s = {1: 0.5}
    producer = world.producer()
    producer.send([*sent(b"a"), *sent(b"b", partition=1)], LIMIT_S)
    producer.commit_transaction(LIMIT_S)
    assert (world.seen(0), world.seen(1)) == ([b"a"], [])
    before = world.timeline.now()
    producer.send(sent(b"c"), LIMIT_S)
    assert world.timeline.now() - before > 0.4
    assert (world.seen(0), world.seen(1)) == ([b"a"], [b"b"])


def test_an_init_waits_for_the_markers_of_what_was_already_decided() -> None:
    world = World()
    world.faults.markers_after_s = {0: 2.0}
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    producer.commit_transaction(LIMIT_S)
    assert world.seen() == []
    world.producer()
    assert world.seen() == [b"a"]


# ---- other requests ------------------------------------------------------------------------------------------


def test_a_late_init_fences_whoever_is_there_when_it_arrives() -> None:
    world = World()
    world.faults.next = {"init": Fault.LATE}
    late = world.kafka.transactional_producer("id")
    with pytest.raises(RetriableProducerError):
        late.init(0.5)
    current = world.producer()
    current.send(sent(b"a"), LIMIT_S)
    world.sleep(1.0)
    with pytest.raises(FatalProducerError) as error:
        current.commit_transaction(LIMIT_S)
    assert error.value.fenced
    assert world.seen() == []


def test_a_late_produce_opens_nothing_after_the_next_init() -> None:
    world = World()
    producer = world.producer()
    world.faults.next = {"produce": Fault.LATE}
    with pytest.raises(FatalProducerError):
        producer.send(sent(b"a"), 0.5)
    world.producer()
    world.sleep(1.0)
    assert world.seen(committed=False) == []
    assert world.log().last_stable == world.log().end


def test_a_late_produce_blocks_readers_until_the_coordinator_times_its_transaction_out() -> None:
    world = World()
    producer = world.producer()
    world.faults.next = {"produce": Fault.LATE}
    with pytest.raises(FatalProducerError):
        producer.send(sent(b"a"), 0.5)
    world.sleep(1.0)
    assert world.log().last_stable == 0 < world.log().end
    world.sleep(10.0)
    assert world.log().last_stable == world.log().end
    assert world.seen() == []


def test_a_plain_write_without_an_answer_may_be_written_later() -> None:
    world = World()
    world.faults.next = {"plain_produce": Fault.LATE}
    with pytest.raises(DeadlineError):
        world.kafka.plain_producer().send(sent(b"a"), 0.5)
    assert world.seen() == []
    world.sleep(1.0)
    assert world.seen() == [b"a"]


def test_a_produce_that_the_library_repeats_is_written_once() -> None:
    world = World()
    plain = world.kafka.plain_producer()
    for fault in (Fault.RETRIED, Fault.REPEATED):
        world.faults.next = {"plain_produce": fault}
        plain.send(sent(fault.name.encode()), LIMIT_S)
    world.sleep(2.0)
    assert world.seen() == [b"RETRIED", b"REPEATED"]


@pytest.mark.parametrize(
    ("fault", "at_once", "later"),
    [
        (Fault.CRASH_BEFORE, [], []),
        (Fault.CRASH_AFTER, [b"a"], [b"a"]),
        (Fault.CRASH_LATE, [], [b"a"]),
    ],
)
def test_a_node_crashes_before_or_after_its_request_takes_effect(
    fault: Fault, at_once: list[bytes], later: list[bytes]
) -> None:
    world = World()
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    world.faults.next = {"end_transaction": fault}
    with pytest.raises(SimulatedCrash):
        producer.commit_transaction(LIMIT_S)
    assert world.seen() == at_once
    world.sleep(1.0)
    assert world.seen() == later


def test_a_node_crashes_between_two_records_that_it_produces() -> None:
    world = World()
    world.kafka = SimulatedKafka(world.broker, records_per_produce=2)
    producer = world.producer()
    taken: list[bytes] = []

    def records() -> Iterator[Sent]:
        for number, record in enumerate(sent(b"a", b"b", b"c", b"d")):
            if number == 2:
                world.faults.next["enqueue"] = Fault.CRASH_BEFORE
            taken.append(record.value or b"")
            yield record

    with pytest.raises(SimulatedCrash):
        producer.send(records(), LIMIT_S)
    assert taken == [b"a", b"b", b"c"]
    assert world.seen(committed=False) == [b"a", b"b"]
    world.successor()
    assert world.seen() == []


def test_a_lost_question_takes_the_time_that_it_was_given() -> None:
    world = World()
    reader = world.kafka.reader("t")
    world.faults.next = {"start_and_end": Fault.LOSE_REQUEST}
    before = world.timeline.now()
    with pytest.raises(KafkaUnavailableError):
        reader.start_and_end(0, 2.0)
    assert world.timeline.now() - before >= 2.0


def test_every_request_lets_others_run_before_it_and_each_change_also_after_it() -> None:
    turns: list[list[str]] = []

    class Turns(Timeline):
        def switch(self) -> None:
            turns.append([request for request in world.faults.asked if request != "enqueue"])
            super().switch()

    world = World()
    world.timeline = Turns()
    world.broker.timeline = world.timeline
    world.kafka = SimulatedKafka(world.broker)
    producer = world.producer()
    producer.send(sent(b"a"), LIMIT_S)
    producer.commit_transaction(LIMIT_S)
    world.kafka.reader("t").start_and_end(0, LIMIT_S)
    asked = ["init", "add_partitions", "produce", "end_transaction"]
    assert turns == [asked[:n] for i in range(4) for n in (i, i + 1)] + [asked]


# ---- leaders -------------------------------------------------------------------------------------------------


def reading(world: World, position: int = 0) -> SimulatedReader:
    reader = world.kafka.reader("t")
    reader.seek({0: position})
    return reader


def test_a_leader_that_was_deposed_tells_nothing_newer_and_takes_nothing() -> None:
    world = World()
    plain = world.kafka.plain_producer()
    plain.send(sent(b"a"), LIMIT_S)
    world.broker.depose("t", 0, ["node"], 3.0)
    SimulatedKafka(world.broker, "other").plain_producer().send(sent(b"b"), LIMIT_S)
    reader = reading(world)
    assert [record.value for record in reader.poll(0.5)] == [b"a"]
    assert reader.poll(0.5) == []
    assert reader.start_and_end(0, LIMIT_S) == (0, 1)
    with pytest.raises(DeadlineError, match="deposed"):
        plain.send(sent(b"c"), 0.5)
    plain.send(sent(b"d"), LIMIT_S)  # repeated until another leader is known
    assert [record.value for record in reader.poll(0.5)] == [b"b", b"d"]


def test_readers_may_ask_a_leader_that_was_deposed_while_producers_know_the_new_one() -> None:
    world = World()
    plain = world.kafka.plain_producer()
    plain.send(sent(b"a"), LIMIT_S)
    world.broker.depose("t", 0, ["node"], 3.0, writes=False)
    assert plain.send(sent(b"b"), LIMIT_S) == [1]
    reader = reading(world)
    assert [record.value for record in reader.poll(0.5)] == [b"a"]
    assert [record.value for record in reader.poll(4.0)] == [b"b"], "once it hears of the new leader"


def test_a_reader_goes_on_behind_a_new_leader_but_not_where_the_log_was_truncated() -> None:
    world = World()
    plain = world.kafka.plain_producer()
    plain.send(sent(b"a", b"b"), LIMIT_S)
    reader = reading(world)
    assert len(reader.poll(0.5)) == 2
    world.log().lead()
    plain.send(sent(b"c"), LIMIT_S)
    assert [record.value for record in reader.poll(0.5)] == [b"c"]
    world.log().lose(2)
    plain.send(sent(b"d", b"e"), LIMIT_S)
    with pytest.raises(GapError, match="truncated to 2"):
        reader.poll(0.5)
    assert [record.value for record in reading(world, 3).poll(0.5)] == [b"e"]


def test_a_loss_takes_whole_transactions_and_what_their_producer_was_known_to_have_sent() -> None:
    world = World()
    producer = world.producer()
    for value in (b"a", b"b"):
        producer.send(sent(value, value), LIMIT_S)
        producer.commit_transaction(LIMIT_S)
    assert world.log().lose(world.log().end - 1) == 3
    assert world.seen() == [b"a", b"a"]
    with pytest.raises(FatalProducerError, match="OUT_OF_SEQUENCE"):
        producer.send(sent(b"c"), LIMIT_S)


def test_a_damaged_batch_is_read_up_to_and_is_whole_where_another_leads() -> None:
    world = World()
    world.kafka.plain_producer().send(sent(b"a", b"b"), LIMIT_S)
    world.log().damaged.add(1)
    reader = reading(world)
    assert [record.value for record in reader.poll(0.5)] == [b"a"]
    with pytest.raises(CorruptionError, match="damaged"):
        reader.poll(0.5)
    world.log().lead()
    assert [record.value for record in reader.poll(0.5)] == [b"b"]


# ---- coordinators --------------------------------------------------------------------------------------------


def test_a_coordinator_that_moves_holds_everybody_up_and_writes_markers_again() -> None:
    world = World(partitions=2)
    world.faults.markers_after_s = {1: 0.5}
    producer = world.producer()
    producer.send([*sent(b"a"), *sent(b"b", partition=1)], LIMIT_S)
    producer.commit_transaction(LIMIT_S)
    world.broker.move_coordinator(0.3)
    before = world.timeline.now()
    producer.send(sent(b"c"), LIMIT_S)
    assert world.timeline.now() - before >= 0.3
    producer.commit_transaction(LIMIT_S)
    assert (world.seen(0), world.seen(1)) == ([b"a", b"c"], [b"b"])
    assert [record.offset for record in world.log().fetch(0, 0, 10, committed=True)] == [0, 3]


def test_an_id_that_was_forgotten_is_nobodys_and_a_new_instance_has_another_producer_id() -> None:
    world = World()
    old = world.producer()
    old.send(sent(b"a"), LIMIT_S)
    world.faults.next = {"end_transaction": Fault.RETRIED}
    world.timeline.call_at(world.timeline.now() + 0.05, world.broker.forget_ids)
    with pytest.raises(FatalProducerError, match="UNKNOWN_PRODUCER"):
        old.commit_transaction(LIMIT_S)
    assert world.seen() == [b"a"]
    new = world.producer()
    new.send(sent(b"b"), LIMIT_S)
    new.commit_transaction(LIMIT_S)
    assert world.seen() == [b"a", b"b"]


def test_a_producer_id_whose_epochs_are_used_up_is_followed_by_another() -> None:
    world = World()
    world.broker.producer_epochs = 3
    instances = [world.broker.init_producer("id") for _ in range(4)]
    assert [isinstance(one, Instance) and (one.producer, one.epoch) for one in instances[:2]] == [(2, 1), (2, 2)]
    assert all(isinstance(one, Instance) and one.producer > 2 for one in instances[2:])


# ---- transactions that are refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("request_name", ["add_partitions", "produce", "end_transaction"])
def test_a_transaction_that_is_refused_is_aborted_and_the_next_is_not(request_name: str) -> None:
    world = World()
    producer = world.producer()
    world.faults.next = {request_name: Fault.ABORTABLE}
    calls = (lambda: producer.send(sent(b"a"), LIMIT_S), lambda: producer.commit_transaction(LIMIT_S))
    with pytest.raises(AbortableProducerError):
        _ = [call() for call in calls]
    producer.abort_transaction(LIMIT_S)
    producer.send(sent(b"b"), LIMIT_S)
    producer.commit_transaction(LIMIT_S)
    assert world.seen() == [b"b"]


# ---- compaction ----------------------------------------------------------------------------------------------


def fetched(log: PartitionLog) -> list[LogRecord]:
    return log.fetch(0, log.start, 1000, committed=True)


def filled(*pairs: tuple[bytes, bytes | None]) -> PartitionLog:
    log = PartitionLog()
    for index, (key, value) in enumerate(pairs):
        log.append(index * 1000, key, value)
    return log


def test_compaction_keeps_each_keys_last_record_at_its_offset() -> None:
    log = filled((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3"))
    log.compact(100.0, 0.0, 10.0)
    assert [(r.offset, r.key, r.value) for r in fetched(log)] == [(1, b"b", b"1"), (3, b"a", b"3")]
    assert (log.start, log.end) == (0, 4)


def test_a_tombstone_outlives_the_run_that_finds_it_by_delete_retention() -> None:
    log = filled((b"a", b"1"), (b"a", None), (b"b", b"1"))
    log.compact(100.0, 0.0, 10.0)
    assert [(r.key, r.value) for r in fetched(log)] == [(b"a", None), (b"b", b"1")]
    log.compact(110.0, 0.0, 10.0)
    assert len(fetched(log)) == 2
    log.compact(111.0, 0.0, 10.0)
    assert [(r.key, r.value) for r in fetched(log)] == [(b"b", b"1")]


def test_compaction_leaves_what_is_young_active_or_above_the_last_stable_offset() -> None:
    young = filled((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    young.compact(3.0, 1.5, 10.0)
    assert [r.value for r in fetched(young)] == [b"2", b"3"]
    active = filled((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    active.compact(100.0, 0.0, 10.0, below=2)
    assert [r.value for r in fetched(active)] == [b"2", b"3"]
    held = filled((b"a", b"1"))
    held.append(1000, b"b", b"open", producer=7)
    held.append(2000, b"a", b"2")
    held.compact(100.0, 0.0, 10.0)
    held.mark(3000, 7, 1, commit=True)
    assert [r.value for r in fetched(held)] == [b"1", b"open", b"2"]


def test_an_aborted_record_neither_survives_compaction_nor_replaces_another() -> None:
    log = filled((b"a", b"1"))
    log.append(1000, b"a", b"aborted", producer=7)
    log.mark(2000, 7, 1, commit=False)
    log.append(3000, b"b", b"1")
    log.compact(100.0, 0.0, 10.0)
    assert [r.value for r in log.fetch(0, 0, 10, committed=False)] == [b"1", b"1"]


def test_a_topics_own_settings_say_when_it_is_compacted() -> None:
    world = World(config={"cleanup.policy": "compact", "min.compaction.lag.ms": "60000", "delete.retention.ms": "1000"})
    plain = world.kafka.plain_producer()
    plain.send(sent(b"1", b"2"), LIMIT_S)
    world.broker.compact("t", 0)
    assert world.seen() == [b"1", b"2"]
    world.sleep(61.0)
    plain.send(sent(b"3"), LIMIT_S)
    world.broker.compact("t", 0)
    assert world.seen() == [b"2", b"3"]


# ---- time ----------------------------------------------------------------------------------------------------


def test_time_passes_to_what_is_due_in_its_order() -> None:
    timeline, ran = Timeline(start=0.0), list[tuple[str, float]]()

    def note(name: str) -> Callable[[], None]:
        return lambda: ran.append((name, timeline.now()))

    timeline.call_at(2.0, note("b"))
    timeline.call_at(1.0, note("a"))
    timeline.call_at(2.0, note("c"))
    assert timeline.wait(5.0, lambda: len(ran) == 1)
    assert ran == [("a", 1.0)]
    assert not timeline.wait(3.0, lambda: False)
    assert ran == [("a", 1.0), ("b", 2.0), ("c", 2.0)]
    assert timeline.now() == 4.0
