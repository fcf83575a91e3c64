"""The topics that a journal takes: every rule of `check_journal`, one fault at a time; `init` by several at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import pytest

from journal.config import Settings
from journal.errors import ControlLostError, FatalProducerError, TopicError
from journal.kafka.ports import GroupMember, Position, Sent, TopicState
from journal.process.commands import command
from journal.topics.control_keys import EPOCH_KEY
from journal.topics.control_reading import read_control
from journal.topics.control_rows import ControlRows
from journal.topics.made_and_checked import check_journal, init_journal, open_journal
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import Epoch, Identity
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import CrashAt, Fault, Faults, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.timeline import Timeline
from tests.support.deposed import DeposedKafka

SETTINGS = Settings(journal="j", bootstrap_servers="b:1", shards=2, replication=3)
IDENTITY = Identity(name="j", shards=2)


class FakeCluster:
    """`ports.Cluster` that describes what it was given."""

    def __init__(self, topics: Mapping[str, TopicState], verification: str | None) -> None:
        self.topics = dict(topics)
        self._verification = verification

    def cluster_id(self, timeout_s: float) -> str:
        return "cluster"

    def describe(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicState]:
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}

    def topic_ids(self, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
        raise NotImplementedError

    def create(
        self, topic: str, partitions: int, replication: int, config: Mapping[str, str], timeout_s: float
    ) -> None:
        self.topics.setdefault(topic, TopicState(topic, partitions, replication, config))

    def broker_config(self, name: str, timeout_s: float) -> dict[int, str | None]:
        return {1: "true", 2: self._verification}

    def group_members(self, group: str, timeout_s: float) -> list[GroupMember]:
        return []

    def stable_offsets(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], int]:
        raise NotImplementedError

    def stable_positions(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], Position]:
        raise NotImplementedError

    def group_offsets(self, group: str, topic: str, timeout_s: float) -> dict[int, int]:
        return {}

    def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_s: float) -> None: ...

    def close(self) -> None: ...


def cluster(verification: str | None = "true") -> FakeCluster:
    """One in which all is well."""
    made = FakeCluster({}, verification)
    for topic, config in topic_configs(SETTINGS).items():
        made.create(topic, 1 if topic == "j.control" else 2, 3, config, 1.0)
    return made


def check(found: FakeCluster) -> None:
    check_journal(found, SETTINGS, IDENTITY, 1.0)


def test_what_init_makes_is_taken_and_so_is_what_is_safer() -> None:
    check(cluster())
    safer = cluster()
    for topic, state in safer.topics.items():
        config = dict(state.config)
        for key in ("min.insync.replicas", "max.message.bytes", "delete.retention.ms", "min.compaction.lag.ms"):
            if key in config and (topic, key) != ("j.wal", "max.message.bytes"):
                config[key] = str(int(config[key]) + 1)
        for key in config.keys() & {"segment.ms", "segment.bytes"}:
            config[key] = str(int(config[key]) - 1)
        safer.topics[topic] = state._replace(replication=4, config=config)
    check(safer)


@pytest.mark.parametrize("topic", ["j.wal", "j.table", "j.control"])
def test_a_missing_topic_is_refused(topic: str) -> None:
    found = cluster()
    del found.topics[topic]
    with pytest.raises(TopicError, match=f"topic {topic} is missing: kafka-journal init -j j"):
        check(found)


@pytest.mark.parametrize("topic", ["j.wal", "j.table", "j.control"])
def test_another_number_of_partitions_or_fewer_replicas_are_refused(topic: str) -> None:
    found = cluster()
    state = found.topics[topic]
    found.topics[topic] = state._replace(partitions=state.partitions + 1)
    with pytest.raises(TopicError, match=f"topic {topic} has {state.partitions + 1} partitions"):
        check(found)
    found.topics[topic] = state._replace(replication=2)
    with pytest.raises(TopicError, match=f"topic {topic} has 2 replicas and 3 are configured"):
        check(found)


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("j.wal", "cleanup.policy", "compact"),
        ("j.wal", "cleanup.policy", "compact,delete"),
        ("j.wal", "retention.ms", "604800000"),
        ("j.wal", "retention.bytes", "1000000"),
        ("j.wal", "message.timestamp.type", "CreateTime"),
        ("j.table", "cleanup.policy", "delete"),
        ("j.table", "cleanup.policy", "compact,delete"),
        ("j.control", "cleanup.policy", "delete"),
        ("j.control", "segment.ms", "604800000"),
        ("j.control", "segment.bytes", "1073741824"),
        ("j.table", "delete.retention.ms", "1000"),
        ("j.table", "min.compaction.lag.ms", "0"),
        ("j.wal", "min.insync.replicas", "1"),
        ("j.table", "unclean.leader.election.enable", "true"),
        ("j.wal", "max.message.bytes", "1000"),
        ("j.wal", "max.message.bytes", "2000000"),
        ("j.table", "max.message.bytes", ""),
    ],
)
def test_a_setting_that_could_lose_something_or_grow_is_refused_with_the_command_that_mends_it(
    topic: str, key: str, value: str
) -> None:
    found = cluster()
    state = found.topics[topic]
    wanted = state.config[key]
    found.topics[topic] = state._replace(config={**state.config, key: value})
    with pytest.raises(TopicError) as refusal:
        check(found)
    said = str(refusal.value)
    assert said.startswith(f"topic {topic} has {key}={value or 'nothing'} and needs {wanted}")
    assert f"kafka-configs --bootstrap-server b:1 --alter --entity-type topics --entity-name {topic}" in said
    assert said.endswith(f"--add-config {key}={wanted}")


def test_all_faults_are_told_at_once_each_topic_with_the_command_that_mends_it() -> None:
    found = cluster()
    for topic in ("j.wal", "j.control"):
        wrong = dict.fromkeys(found.topics[topic].config, "1")
        found.topics[topic] = found.topics[topic]._replace(config=wrong)
    del found.topics["j.table"]
    with pytest.raises(TopicError) as refusal:
        check(found)
    first, wal, table, control = str(refusal.value).splitlines()
    assert first == "3 topics are not as journal j needs them:"
    for topic, said in (("j.wal", wal), ("j.control", control)):
        wanted = topic_configs(SETTINGS)[topic]
        wrong = {key: value for key, value in wanted.items() if f"has {key}=1 and needs {value}" in said}
        added = ",".join(f"{key}={value}" for key, value in wrong.items())
        assert len(wrong) >= len(wanted) - 2, "of segments, 1 is little enough"
        assert said.endswith(f"--entity-name {topic} --add-config {added}")
    assert table == f"topic j.table is missing: {command('init', journal='j')}"
    assert [fault["topic"] for fault in refusal.value.faults] == ["j.wal", "j.table", "j.control"]
    settings = refusal.value.faults[0]["settings"]
    assert isinstance(settings, list)
    assert {
        "key": "retention.ms",
        "value": "1",
        "needed": "-1",
        "bound": "exactly",
        "why": "only `trim` deletes from the WAL",
    } in settings


@pytest.mark.parametrize(("verification", "says"), [(None, "is older than Kafka 3.6"), ("false", "=false")])
def test_brokers_that_do_not_verify_transactions_are_refused(verification: str | None, says: str) -> None:
    with pytest.raises(TopicError, match=f"broker 2 .*{says}"):
        check(cluster(verification))


# ---- init ----------------------------------------------------------------------------------------------------------

LIMIT_S = 10.0
ONE_BROKER = SETTINGS.model_copy(update={"replication": 1})


class Overtaken(SimulatedKafka):
    """A cluster on which something is done just before this process asks for its next producer."""

    def __init__(self, broker: SimulatedBroker, before: Callable[[], object]) -> None:
        super().__init__(broker, "overtaken")
        self._before = before

    def transactional_producer(self, transactional_id: str) -> SimulatedTransactionalProducer:
        self._before()
        return super().transactional_producer(transactional_id)


class Inits:
    """A cluster, and processes that make the same journal on it."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.broker = SimulatedBroker(Timeline(), faults or Faults())
        self.kafka = SimulatedKafka(self.broker)

    def run(
        self,
        uuid: bytes,
        *,
        kafka: SimulatedKafka | None = None,
        before_it_is_written: Callable[[], object] = lambda: None,
        shards: int = 2,
        change_shards: bool = False,
    ) -> Identity:
        def made() -> bytes:
            before_it_is_written()
            return uuid

        settings = ONE_BROKER.model_copy(update={"shards": shards})
        now = self.broker.timeline.now
        rows = init_journal(
            kafka or self.kafka,
            settings,
            made,
            clock=now,
            wall_ms=now,
            timeout_s=LIMIT_S,
            change_shards=change_shards,
        )
        return rows.require_identity("j")

    def make(self, topic: str, partitions: int) -> None:
        """The topic, as `init` would, but for its number of partitions."""
        self.kafka.cluster().create(topic, partitions, 1, topic_configs(ONE_BROKER)[topic], LIMIT_S)

    def write(self, topic: str, key: bytes = b"key", value: bytes = b"value") -> None:
        producer = self.kafka.plain_producer()
        producer.send([Sent(topic, 0, key, value)], LIMIT_S)
        producer.close()

    @property
    def rows(self) -> ControlRows:
        return read_control(self.kafka, "j", self.broker.timeline.now, LIMIT_S)


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE])
def test_an_init_that_is_killed_at_any_request_is_completed_by_the_next(fault: Fault) -> None:
    counting = CrashAt("first")
    whole = Inits(counting)
    whole.run(b"A" * 16, kafka=SimulatedKafka(whole.broker, "first"))
    assert counting.step > 5
    for step in range(1, counting.step + 1):
        inits = Inits(CrashAt("first", fault, step))
        with pytest.raises(SimulatedCrash):
            inits.run(b"A" * 16, kafka=SimulatedKafka(inits.broker, "first"))
        found = inits.run(b"B" * 16)
        inits.broker.timeline.wait(30.0, lambda: False)  # whatever is late has come
        assert inits.run(b"C" * 16) == found == inits.rows.identity, f"{fault} at step {step}"
        assert set(inits.broker.topics) == {"j.control", "j.wal", "j.table"}


def test_an_init_that_was_overtaken_before_it_began_to_write_takes_what_is_there() -> None:
    inits = Inits()
    found = inits.run(b"A" * 16, kafka=Overtaken(inits.broker, lambda: inits.run(b"B" * 16)))
    assert found.journal == b"B" * 16
    assert inits.rows.identity == found


def test_an_init_that_was_overtaken_between_its_check_and_its_write_takes_what_is_there() -> None:
    inits = Inits()
    found = inits.run(b"A" * 16, before_it_is_written=lambda: inits.run(b"B" * 16))
    assert found.journal == b"B" * 16
    assert inits.rows.identity == found


def test_inits_at_once_with_different_numbers_of_shards_all_make_the_same_topics() -> None:
    inits = Inits()
    found = inits.run(b"A" * 16, before_it_is_written=lambda: inits.run(b"B" * 16, shards=3))
    assert found.shards == 3
    assert {topic: len(state.logs) for topic, state in inits.broker.topics.items()} == {
        "j.control": 1,
        "j.wal": 3,
        "j.table": 3,
    }


def test_an_init_that_is_fenced_by_one_that_wrote_nothing_writes_its_own() -> None:
    inits, fenced = Inits(), []

    def once() -> None:
        if not fenced:
            fenced.append(True)
            inits.kafka.transactional_producer("kafka-journal.j.writer").init(LIMIT_S)

    assert inits.run(b"A" * 16, before_it_is_written=once).journal == b"A" * 16


def test_an_init_that_is_fenced_again_and_again_ends() -> None:
    inits = Inits()

    def always() -> None:
        inits.broker.timeline.wait(LIMIT_S / 3, lambda: False)
        inits.kafka.transactional_producer("kafka-journal.j.writer").init(LIMIT_S)

    with pytest.raises(FatalProducerError):
        inits.run(b"A" * 16, before_it_is_written=always)
    assert inits.rows.identity is None


@pytest.mark.parametrize("topic", ["j.wal", "j.table"])
def test_a_topic_that_does_not_fit_is_refused_before_anything_is_written(topic: str) -> None:
    """A first try with a wrong number of partitions leaves nothing that a second one could stumble over."""
    inits = Inits()
    inits.make(topic, 3)
    with pytest.raises(
        TopicError, match=rf"topic {topic} is there already, with 3 partitions instead of 2, and nothing"
    ):
        inits.run(b"A" * 16)
    assert set(inits.broker.topics) == {topic}
    assert inits.run(b"B" * 16, shards=3) == inits.rows.identity
    assert {len(inits.broker.topics[each].logs) for each in ("j.wal", "j.table")} == {3}


def test_an_init_tells_what_mends_all_topics_that_others_made() -> None:
    inits = Inits()
    for topic, partitions in (("j.wal", 3), ("j.table", 1)):
        inits.kafka.cluster().create(topic, partitions, 1, {}, LIMIT_S)
    inits.make("j.control", 1)
    with pytest.raises(TopicError) as refusal:
        inits.run(b"A" * 16)
    _, wal, table = str(refusal.value).splitlines()
    assert "kafka-topics --bootstrap-server b:1 --delete --topic j.wal && kafka-topics" in wal
    assert "--create --topic j.wal --partitions 2 --replication-factor 1 --config" in wal
    assert "--alter --topic j.table --partitions 2 && kafka-configs" in table
    assert set(inits.broker.topics) == {"j.wal", "j.table", "j.control"}
    assert inits.rows.identity is None


def test_an_init_never_tells_to_delete_a_topic_that_was_written_to() -> None:
    inits = Inits()
    inits.run(b"A" * 16)
    inits.write("j.wal")
    inits.broker.delete_topic("j.table")
    inits.make("j.table", 3)
    with pytest.raises(TopicError, match=r"j.table has 3 partitions and its control rows say 2") as refusal:
        inits.run(b"B" * 16)
    assert "--delete" not in str(refusal.value)


def with_topics_of_another_number(faults: Faults | None = None) -> Inits:
    """An identity, beside topics that never had a record."""
    inits = Inits(faults)
    inits.run(b"A" * 16)
    for topic in ("j.wal", "j.table"):
        del inits.broker.topics[topic]
        inits.make(topic, 3)
    return inits


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE])
def test_an_init_that_changes_the_shards_and_is_killed_at_any_request_is_completed_by_the_next(fault: Fault) -> None:
    counting = CrashAt("first")
    whole = with_topics_of_another_number(counting)
    whole.run(b"B" * 16, kafka=SimulatedKafka(whole.broker, "first"), shards=3, change_shards=True)
    assert counting.step > 5
    for step in range(1, counting.step + 1):
        inits = with_topics_of_another_number(CrashAt("first", fault, step))
        with pytest.raises(SimulatedCrash):
            inits.run(b"B" * 16, kafka=SimulatedKafka(inits.broker, "first"), shards=3, change_shards=True)
        found = inits.run(b"C" * 16, shards=3, change_shards=True)
        inits.broker.timeline.wait(30.0, lambda: False)  # whatever is late has come
        assert inits.run(b"D" * 16) == found == inits.rows.identity, f"{fault} at step {step}"
        assert (found.shards, set(inits.broker.topics)) == (3, {"j.control", "j.wal", "j.table"})


def test_an_identity_beside_topics_that_never_had_a_record_can_be_changed() -> None:
    """An `init` leaves such an identity if it was not allowed to make topics, or found them with other partitions."""
    inits = with_topics_of_another_number()
    first = inits.rows.identity
    with pytest.raises(
        TopicError, match=f"(?s)with 3 partitions instead of 2, .*{command('init', '--shards', 3, journal='j')}"
    ):
        inits.run(b"B" * 16)
    assert inits.rows.identity == first
    changed = inits.run(b"B" * 16, shards=3, change_shards=True)
    assert (changed.shards, changed.journal, inits.rows.identity) == (3, b"B" * 16, changed)
    assert inits.run(b"C" * 16, shards=3, change_shards=True) == changed


@pytest.mark.parametrize("written", ["j.wal", "j.table", "epoch"])
def test_an_identity_of_a_journal_that_was_written_to_never_changes(written: str) -> None:
    inits = Inits()
    found = inits.run(b"A" * 16)
    if written == "epoch":
        inits.write("j.control", EPOCH_KEY, Epoch(journal=found.journal, epoch=1).SerializeToString())
    else:
        inits.write(written)
    assert inits.run(b"B" * 16, shards=3, change_shards=True) == found == inits.rows.identity


def test_an_activation_between_the_look_and_the_change_keeps_the_identity() -> None:
    inits = Inits()
    found = inits.run(b"A" * 16)
    for topic in ("j.wal", "j.table"):
        del inits.broker.topics[topic]

    def activate() -> None:
        if "j.wal" not in inits.broker.topics:
            inits.make("j.wal", 2)
            inits.write("j.wal")

    assert inits.run(b"B" * 16, kafka=Overtaken(inits.broker, activate), shards=3, change_shards=True) == found


@pytest.mark.parametrize("written", ["j.wal", "j.table"])
@pytest.mark.parametrize("is_there", [True, False], ids=["rows", "topic"])
def test_no_identity_is_written_beside_what_another_has_left(written: str, is_there: bool) -> None:
    """The control topic lost its rows, or was deleted: a new uuid would make strangers of all frames and rows."""
    inits = Inits()
    inits.run(b"A" * 16)
    inits.write(written)
    inits.broker.delete_topic("j.control")
    if is_there:
        inits.make("j.control", 1)
        with pytest.raises(ControlLostError, match="repair control -j j"):
            open_journal(inits.kafka, ONE_BROKER, clock=inits.broker.timeline.now, timeout_s=LIMIT_S)
    for change_shards in (False, True):
        with pytest.raises(ControlLostError, match="repair control -j j"):
            inits.run(b"B" * 16, change_shards=change_shards)
    assert ("j.control" in inits.broker.topics) == is_there
    if is_there:
        assert inits.rows.identity is None


def test_an_identity_that_only_a_deposed_leader_does_not_show_is_not_written_anew() -> None:
    inits = Inits()
    inits.make("j.control", 1)
    deposed = DeposedKafka(inits.broker)
    deposed.depose("j.control", reads=4)
    found = inits.run(b"A" * 16)
    assert inits.run(b"B" * 16, kafka=deposed) == found == inits.rows.identity
