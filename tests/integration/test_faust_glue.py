"""The Faust glue on real Kafka, around a shell that only records how it was called."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from journal.embedded.cluster import EmbeddedKafka
from journal.errors import CorruptionError, FencedError, GapError, KafkaUnavailableError
from streams.reading.app import run_worker
from streams.reading.group_settings import GroupSettings
from streams.reading.records import Record
from tests.support.background_worker import BackgroundWorker
from tests.support.brokers import JVM_OPTIONS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

DEADLINE_S = 40.0


class RecordingShell:
    """Says where to read, keeps what it is told, and counts everything it was given as applied."""

    def __init__(self, start: Mapping[int, int] | None = None) -> None:
        self.start = start
        self.calls: list[tuple[str, frozenset[int]]] = []
        self.read: dict[int, list[tuple[int, bytes]]] = {}
        self.threads: set[str] = set()
        self.applied_up_to: dict[int, int] = {}
        self.before_assigned: Callable[[], object] = lambda: None
        self.before_frames: Callable[[], object] = lambda: None
        self._changed = threading.Condition()

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        self.before_assigned()
        self._note("assigned", shards)
        if self.start is None:
            return {shard: self.applied_up_to.get(shard, 0) for shard in shards}
        return {shard: self.start[shard] for shard in shards if shard in self.start}

    def revoked(self, shards: Collection[int]) -> None:
        self._note("revoked", shards)

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        self.before_frames()
        with self._changed:
            self.threads.add(threading.current_thread().name)
            self.read.setdefault(shard, []).extend((offset, value) for offset, _, value in records)
            self.applied_up_to[shard] = records[-1][0] + 1
            self._changed.notify_all()

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        raise error

    def seeks(self) -> dict[int, int]:
        return {}

    def tick(self) -> float:
        return 0.05

    def applied(self) -> Mapping[int, int]:
        return dict(self.applied_up_to)

    def stop(self) -> None:
        self._note("stop", ())

    def values(self) -> dict[int, list[bytes]]:
        return {shard: [value for _, value in records] for shard, records in self.read.items()}

    def wait(self, condition: Callable[[RecordingShell], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), DEADLINE_S), (self.calls, self.values())

    def _note(self, name: str, shards: Collection[int]) -> None:
        with self._changed:
            self.threads.add(threading.current_thread().name)
            self.calls.append((name, frozenset(shards)))
            self._changed.notify_all()


class Wal:
    """A topic with shards, written as the journal's writer does: in transactions."""

    def __init__(self, bootstrap: str, shards: int) -> None:
        self.bootstrap = bootstrap
        self.topic = f"glue-{uuid.uuid4().hex[:8]}.wal"
        self.group = f"{self.topic}.workers"
        self.shards = shards
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics([NewTopic(self.topic, shards, 1)]).values():
            created.result(DEADLINE_S)
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{self.topic}.writer"})
        self._producer.init_transactions(DEADLINE_S)

    def settings(self, client_id: str = "worker", session_timeout_ms: int = 30_000) -> GroupSettings:
        return GroupSettings(
            self.bootstrap, self.topic, self.group, client_id, session_timeout_ms, heartbeat_interval_ms=200
        )

    def write(self, *values: bytes, commit: bool = True) -> None:
        """Each value to every shard, in one transaction."""
        self._producer.begin_transaction()
        for value in values:
            for shard in range(self.shards):
                self._producer.produce(self.topic, value, partition=shard)
        self._producer.flush(DEADLINE_S)
        if commit:
            self._producer.commit_transaction(DEADLINE_S)
        else:
            self._producer.abort_transaction(DEADLINE_S)

    def delete_up_to(self, offset: int) -> None:
        places = [TopicPartition(self.topic, shard, offset) for shard in range(self.shards)]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for deleted in admin.delete_records(places).values():
            deleted.result(DEADLINE_S)

    def committed(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        places = consumer.committed([TopicPartition(self.topic, shard) for shard in range(self.shards)], DEADLINE_S)
        consumer.close()
        return {place.partition: place.offset for place in places}


@pytest.fixture
def wal(bootstrap: str) -> Wal:
    return Wal(bootstrap, shards=2)


@pytest.fixture
def workers() -> Iterator[Callable[..., BackgroundWorker]]:
    """Starts workers; those still running at the end are stopped."""
    with ExitStack() as running:

        def start(shell: RecordingShell, settings: GroupSettings) -> BackgroundWorker:
            worker = BackgroundWorker(shell, settings)
            worker.start(DEADLINE_S)
            running.callback(worker.stop, DEADLINE_S)
            return worker

        yield start


Workers = Callable[[RecordingShell, GroupSettings], BackgroundWorker]


def test_every_committed_frame_comes_once_and_in_order_and_no_aborted_one(wal: Wal, workers: Workers) -> None:
    shell = RecordingShell()
    wal.write(b"a", b"b")
    workers(shell, wal.settings())
    wal.write(b"never", commit=False)
    for number in range(50):
        wal.write(b"%d" % number)
    wal.write(b"neither", commit=False)
    wal.write(b"last", b"")
    expected = [b"a", b"b", *(b"%d" % number for number in range(50)), b"last", b""]
    shell.wait(lambda shell: shell.values() == {0: expected, 1: expected})
    assert all(offsets == sorted(set(offsets)) for offsets in ([o for o, _ in read] for read in shell.read.values()))
    assert shell.threads == {"worker-shell_0"}


def test_a_shard_is_read_from_where_the_shell_says_and_one_left_out_is_not_read(wal: Wal, workers: Workers) -> None:
    wal.write(*(b"%d" % number for number in range(10)))
    shell = RecordingShell(start={1: 7})
    workers(shell, wal.settings())
    wal.write(b"end")
    shell.wait(lambda shell: shell.values() == {1: [b"7", b"8", b"9", b"end"]})


def test_only_what_is_applied_is_committed_for_the_group_and_the_next_worker_does_not_read_from_there(
    wal: Wal, workers: Workers
) -> None:
    wal.write(*(b"%d" % number for number in range(10)))
    shell = RecordingShell(start={0: 0, 1: 0})
    shell.applied = lambda: {0: 4}  # type: ignore[method-assign]
    worker = workers(shell, wal.settings())
    shell.wait(lambda shell: [len(read) for read in shell.read.values()] == [10, 10])
    worker.stop(DEADLINE_S)
    assert wal.committed()[0] == 4
    assert wal.committed()[1] < 0
    following = RecordingShell(start={0: 2, 1: 9})
    workers(following, wal.settings())
    following.wait(lambda shell: [len(shell.read.get(shard, ())) for shard in (0, 1)] == [8, 1])


def test_a_clean_stop_makes_the_last_call_and_commits_what_it_applied(wal: Wal, workers: Workers) -> None:
    shell = RecordingShell()
    worker = workers(shell, wal.settings())
    wal.write(b"a", b"b")
    shell.wait(lambda shell: shell.values() == {0: [b"a", b"b"], 1: [b"a", b"b"]})
    worker.stop(DEADLINE_S)
    assert shell.calls == [("assigned", frozenset({0, 1})), ("stop", frozenset())]
    assert wal.committed() == {0: 2, 1: 2}


def test_two_workers_share_the_shards_and_who_leaves_is_followed_at_once(wal: Wal, workers: Workers) -> None:
    one, other = RecordingShell(), RecordingShell(start={0: 2, 1: 2})
    leaving = workers(one, wal.settings("a", session_timeout_ms=60_000))
    wal.write(b"a")
    one.wait(lambda shell: shell.values() == {0: [b"a"], 1: [b"a"]})
    workers(other, wal.settings("b"))
    one.wait(lambda shell: shell.calls[1:] == [("revoked", frozenset({0, 1})), ("assigned", frozenset({0}))])
    other.wait(lambda shell: shell.calls == [("assigned", frozenset({1}))])
    wal.write(b"b")
    one.wait(lambda shell: shell.values() == {0: [b"a", b"b"], 1: [b"a"]})
    other.wait(lambda shell: shell.values() == {1: [b"b"]})
    other.start = {0: 4, 1: 4}
    leaving.stop(DEADLINE_S)
    other.wait(lambda shell: shell.calls[1:] == [("revoked", frozenset({1})), ("assigned", frozenset({0, 1}))])
    wal.write(b"c")
    other.wait(lambda shell: shell.values() == {0: [b"c"], 1: [b"b", b"c"]})


def test_a_worker_without_shards_idles_until_it_is_needed(bootstrap: str, workers: Workers) -> None:
    wal = Wal(bootstrap, shards=1)
    busy, spare = RecordingShell(), RecordingShell(start={0: 2})
    leaving = workers(busy, wal.settings("a"))
    workers(spare, wal.settings("b"))
    busy.wait(lambda shell: [name for name, _ in shell.calls] == ["assigned", "revoked", "assigned"])
    wal.write(b"a")
    busy.wait(lambda shell: shell.values() == {0: [b"a"]})
    assert spare.calls == []
    leaving.stop(DEADLINE_S)
    wal.write(b"b")
    spare.wait(lambda shell: shell.values() == {0: [b"b"]})


def test_nothing_is_lost_or_seen_twice_while_workers_come_and_go(wal: Wal, workers: Workers) -> None:
    """A fetch that is under way in a rebalance must not take frames along that nobody is given."""
    stayer = RecordingShell()
    workers(stayer, wal.settings("a"))
    written = 0
    for _ in range(5):
        passing = RecordingShell(start={})
        worker = workers(passing, wal.settings("b"))
        for _ in range(20):
            wal.write(b"%d" % written)
            written += 1
        worker.stop(DEADLINE_S)
        stayer.wait(lambda shell: shell.calls[-1] == ("assigned", frozenset({0, 1})))
    expected = [b"%d" % number for number in range(written)]
    stayer.wait(lambda shell: shell.values() == {0: expected, 1: expected})


def test_heartbeats_go_on_while_the_shell_recovers_for_longer_than_a_session(wal: Wal, workers: Workers) -> None:
    session_timeout_ms = 6_000
    never = threading.Event()
    shell = RecordingShell()
    shell.before_assigned = lambda: never.wait(session_timeout_ms * 1.25 / 1000)
    wal.write(b"a")
    workers(shell, wal.settings(session_timeout_ms=session_timeout_ms))
    shell.wait(lambda shell: shell.values() == {0: [b"a"], 1: [b"a"]})
    assert shell.calls == [("assigned", frozenset({0, 1}))]


def test_an_error_of_the_shell_ends_the_worker_with_it_and_nothing_is_called_after_it(
    wal: Wal, workers: Workers
) -> None:
    def fail() -> None:
        raise FencedError("another worker has the shard")

    shell, following = RecordingShell(), RecordingShell()
    shell.before_frames = fail
    worker = BackgroundWorker(shell, wal.settings())
    worker.start(DEADLINE_S)
    wal.write(b"a")
    with pytest.raises(FencedError, match="another worker has the shard"):
        worker.wait(DEADLINE_S)
    assert shell.calls == [("assigned", frozenset({0, 1}))]
    workers(following, wal.settings())
    following.wait(lambda shell: shell.values() == {0: [b"a"], 1: [b"a"]})


def test_an_error_in_recovering_ends_the_worker_with_it(wal: Wal) -> None:
    def fail() -> None:
        raise GapError("the mark is older than the WAL")

    shell = RecordingShell()
    shell.before_assigned = fail
    worker = BackgroundWorker(shell, wal.settings())
    worker.start(DEADLINE_S)
    with pytest.raises(GapError, match="the mark is older"):
        worker.wait(DEADLINE_S)
    assert shell.calls == []


@pytest.mark.parametrize("offset", [2, 100])
def test_an_offset_outside_the_wal_is_an_error_and_never_a_reset(wal: Wal, offset: int) -> None:
    wal.write(*(b"%d" % number for number in range(10)))
    wal.delete_up_to(5)
    worker = BackgroundWorker(RecordingShell(start={0: 5, 1: offset}), wal.settings())
    worker.start(DEADLINE_S)
    with pytest.raises(GapError) as raised:
        worker.wait(DEADLINE_S)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == (wal.topic, 1, offset)


def test_no_broker_is_an_error_of_the_environment() -> None:
    shell = RecordingShell()
    worker = BackgroundWorker(shell, GroupSettings("127.0.0.1:1", "nowhere.wal", "nowhere"))
    worker.start(DEADLINE_S)
    with pytest.raises(KafkaUnavailableError, match=r"127\.0\.0\.1:1"):
        worker.wait(DEADLINE_S)
    assert [name for name, _ in shell.calls] == ["stop"]


def test_a_worker_outlives_its_only_broker_and_stops_cleanly_while_it_is_away(tmp_path: Path, workers: Workers) -> None:
    with EmbeddedKafka(tmp_path / "kafka", attached=True, jvm_options=JVM_OPTIONS) as kafka:
        wal = Wal(kafka.bootstrap_servers, shards=2)
        shell = RecordingShell()
        worker = workers(shell, wal.settings())
        wal.write(b"a")
        shell.wait(lambda shell: shell.values() == {0: [b"a"], 1: [b"a"]})
        kafka.kill(1)
        kafka.start_broker(1)
        wal.write(b"b")
        shell.wait(lambda shell: shell.values() == {0: [b"a", b"b"], 1: [b"a", b"b"]})
        kafka.kill(1)
        worker.stop(DEADLINE_S)
        assert shell.calls[-1] == ("stop", frozenset())


# ---- processes of their own ------------------------------------------------------------------------------------


class TellingShell(RecordingShell):
    """Tells another process what it does, and raises when it reads `fail`. Once it has read `slow` it stops never."""

    def __init__(self, told: Connection) -> None:
        super().__init__()
        self._told = told

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        if any(value == b"fail" for _, _, value in records):
            raise FencedError("told to fail")
        super().frames(shard, records)
        self._told.send(("frames", sorted(self.read)))

    def stop(self) -> None:
        self._told.send(("stop", []))
        if any(b"slow" in values for values in self.values().values()):
            threading.Event().wait()


def run_telling_worker(settings: GroupSettings, told: Connection, output: Path) -> None:
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        run_worker(TellingShell(told), settings)


class WorkerProcess:
    """A worker in a process of its own, as the command runs it."""

    def __init__(self, settings: GroupSettings, output: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.heard, told = context.Pipe(duplex=False)
        self.output = output
        self.process = context.Process(target=run_telling_worker, args=(settings, told, output))
        self.process.start()
        told.close()

    def expect(self, name: str, shards: list[int]) -> None:
        while self.heard.poll(DEADLINE_S):
            if self.heard.recv() == (name, shards):
                return
        raise AssertionError((name, shards))

    def end(self, number: int) -> int | None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        return self.exit_code()

    def exit_code(self) -> int | None:
        self.process.join(DEADLINE_S)
        return self.process.exitcode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_worker_process_cleanly(wal: Wal, tmp_path: Path, number: int) -> None:
    worker = WorkerProcess(wal.settings(), tmp_path / "stdout")
    wal.write(b"a")
    worker.expect("frames", [0, 1])
    assert worker.end(number) == 0
    worker.expect("stop", [])
    assert wal.committed() == {0: 1, 1: 1}
    assert worker.output.read_bytes() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_worker_process_that_is_slow_to_stop(wal: Wal, tmp_path: Path, number: int) -> None:
    worker = WorkerProcess(wal.settings(), tmp_path / "stdout")
    wal.write(b"slow")
    worker.expect("frames", [0, 1])
    pid = worker.process.pid
    assert pid is not None
    os.kill(pid, number)
    worker.expect("stop", [])
    os.kill(pid, number)
    worker.process.join(1.5)
    assert worker.process.exitcode is None, "the same request twice"
    assert worker.end(number) == -number


def test_an_error_of_the_shell_ends_a_worker_process_with_a_failure(wal: Wal, tmp_path: Path) -> None:
    worker = WorkerProcess(wal.settings(), tmp_path / "stdout")
    wal.write(b"a")
    worker.expect("frames", [0, 1])
    wal.write(b"fail")
    assert worker.exit_code() == 1


def test_the_shards_of_a_killed_worker_move_when_its_session_ends(wal: Wal, tmp_path: Path, workers: Workers) -> None:
    killed = WorkerProcess(wal.settings(session_timeout_ms=6_000), tmp_path / "stdout")
    wal.write(b"a")
    killed.expect("frames", [0, 1])
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    wal.write(b"b")
    shell = RecordingShell(start={0: 2, 1: 2})
    workers(shell, wal.settings())
    shell.wait(lambda shell: shell.values() == {0: [b"b"], 1: [b"b"]})
