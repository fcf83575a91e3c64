"""Routes across crashes: workers, node and Kafka are killed or stopped at random; every message is in its topic once,
in order."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from journal.embedded.cluster import EmbeddedKafka
from journal.errors import DuplicateMessageError
from journal.kafka.clients import KafkaClients
from journal.store.model import Message, QueueConfig
from tests.chaos.crash_points import CHECKPOINT_POINTS, CrashPoints
from tests.support.brokers import crash
from tests.support.in_process import made_journal
from tests.support.long_form import BROKERS, LONG, seed, summary
from tests.support.processes.child import Child, program
from tests.support.processes.command import command_env
from tests.support.sources import create_topic
from tests.support.stream_apps import active_store
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(7200 if LONG else 1800)]

MESSAGES = 100_000 if LONG else 3_000
WORKERS = ("one", "two") if LONG else ("one",)
FAULTS = ("worker", "stopped worker", "node", "broker", "all") if LONG else ("worker", "point", "node", "broker")
ROUNDS = 12 if LONG else 1
SEED = seed(20261)
PARTITIONS = 3
SESSION_S = 2.0
DEADLINE_S = 900.0 if LONG else 300.0


class History:
    """The numbers of messages that were acknowledged, as the node writes them down."""

    def __init__(self, file: Path) -> None:
        file.touch()
        self._file = file
        self._read = 0
        self._seen: set[bytes] = set()

    def count(self) -> int:
        with self._file.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        self._read += len(new)
        self._seen.update(new.splitlines())
        return len(self._seen)


def read_all(bootstrap: str, topic: str, *, committed: bool = True) -> list[list[tuple[bytes | None, bytes | None]]]:
    """A topic's records, by partition."""
    reader = KafkaClients(bootstrap).reader(topic, committed=committed)
    ends = {part: reader.start_and_end(part, DEADLINE_S)[1] for part in range(PARTITIONS)}
    found: list[list[tuple[bytes | None, bytes | None]]] = [[] for _ in range(PARTITIONS)]
    reader.seek(dict.fromkeys(ends, 0))
    until = time.monotonic() + DEADLINE_S
    while any(reader.position(part) < end for part, end in ends.items()):
        assert time.monotonic() < until
        for record in reader.poll(0.2):
            found[record.partition].append((record.key, record.value))
    reader.close()
    return found


def numbers(found: list[list[tuple[bytes | None, bytes | None]]]) -> list[int]:
    return sorted(int(value or b"") for records in found for _, value in records)


def routing(topic: str) -> str:
    target = {"topic": topic, "key": "header:k"}
    return json.dumps({"routes": [{"name": "orders", "address": "orders.#", "targets": [target]}]})


def worker_env(topic: str) -> dict[str, str]:
    return {
        "KAFKA_JOURNAL_ROUTING": routing(topic),
        "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": str(int(1000 * SESSION_S)),
        "KAFKA_JOURNAL_CHECKPOINT_INTERVAL_MS": "20",
    }


class Cast:
    """Every process that has a part in it: a node that sends, workers and Kafka."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, journal: str, topic: str) -> None:
        history = directory / "history"
        self.history = History(history)
        self.points = CrashPoints(directory)
        self.by_themselves = 0
        """Ends of processes that nobody had ended."""
        self._kafka = kafka
        self._goal = 0
        safe = {"KAFKA_JOURNAL_REPLICATION": str(BROKERS)}
        self.workers = [
            Child(
                name,
                program("mortal_worker", directory, name),
                directory / f"{name}.log",
                command_env(kafka.bootstrap_servers, journal, directory / name, worker_env(topic) | safe),
            )
            for name in WORKERS
        ]
        slow = {"KAFKA_JOURNAL_GATE_TIMEOUT_MS": "120000"}
        self.node = Child(
            "node",
            program("sender", history),
            directory / "node.log",
            command_env(kafka.bootstrap_servers, journal, directory / "node", slow | safe),
        )

    def begin(self) -> None:
        for process in (*self.workers, self.node):
            process.start()

    def end(self) -> None:
        for process in (*self.workers, self.node):
            process.kill()

    def said(self) -> str:
        return "\n".join(process.told() for process in (*self.workers, self.node))

    def revive(self) -> None:
        """Processes that ended start again, as an operator would do it: librdkafka may end a worker when Kafka dies."""
        for worker in self.workers:
            if not worker.running:
                self.by_themselves += 1
                worker.start()
        if not self.node.running:
            assert LONG, self.said()
            self.by_themselves += 1
            self._start_node()

    def send(self, goal: int) -> None:
        """Have the node send up to that number."""
        self._goal = goal
        self.node.tell(f"send {goal}")

    def wait_for(self, count: int) -> None:
        """Until so many are acknowledged."""
        until = time.monotonic() + DEADLINE_S
        while self.history.count() < count:
            assert time.monotonic() < until, self.said()
            self.revive()
            time.sleep(0.005)

    def _start_node(self) -> None:
        self.node.start()
        self.node.tell(f"send {self._goal}")

    # ---- what may happen to them -----------------------------------------------------------------------------------

    def meet(self, fault: str, chance: random.Random) -> None:
        worker = chance.choice(self.workers)
        match fault:
            case "node":
                self.node.kill()
                self._start_node()
            case "worker":
                worker.kill()
                worker.start()
            case "stopped worker":  # it becomes a zombie: the other one has its shards meanwhile
                worker.pause()
                time.sleep(SESSION_S * (1 + chance.random()))
                worker.resume()
            case "point":
                self.points.arm(chance.choice(CHECKPOINT_POINTS))
                self.send(self._goal + 1)
                wait_until(lambda: not worker.running)
                self.points.disarm()
                worker.start()
            case "broker":
                crash(self._kafka, chance.randint(1, BROKERS))
            case "all":
                self.end()
                crash(self._kafka, *range(1, BROKERS + 1))
                for each in self.workers:
                    each.start()
                self._start_node()
            case _:
                raise AssertionError(fault)


def test_every_message_is_sent_once_and_in_order_whoever_is_killed(
    brokers: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    chance, bootstrap, began = random.Random(SEED), brokers.bootstrap_servers, time.monotonic()
    settings = made_journal(bootstrap, tmp_path / "own", shards=2, replication=BROKERS)
    topic = create_topic(bootstrap, f"{settings.journal}-out", PARTITIONS, replication=BROKERS)
    cast = Cast(brokers, tmp_path, settings.journal, topic)
    cast.begin()
    try:
        faults = [fault for _ in range(ROUNDS) for fault in chance.sample(FAULTS, len(FAULTS))]
        for number, fault in enumerate(faults, 1):
            goal = MESSAGES * number // (len(faults) + 1)
            cast.send(goal)
            there = cast.history.count()
            cast.wait_for(chance.randrange(there, goal) if goal > there else goal)
            cast.meet(fault, chance)
        cast.send(MESSAGES)
        cast.wait_for(MESSAGES)
        until = time.monotonic() + DEADLINE_S
        while len(numbers(read_all(bootstrap, topic))) < MESSAGES:
            assert time.monotonic() < until, cast.said()
            cast.revive()
    finally:
        cast.end()
    found = read_all(bootstrap, topic)
    assert numbers(found) == list(range(1, MESSAGES + 1))
    for records in found:
        of_keys: dict[bytes | None, list[int]] = {}
        for key, value in records:
            of_keys.setdefault(key, []).append(int(value or b""))
        assert all(values == sorted(values) for values in of_keys.values())
    seen = [key for records in found for key in {key for key, _ in records}]
    assert len(seen) == len(set(seen)), "a key is in one partition"
    if LONG:
        with capsys.disabled():
            told = summary("out", SEED, MESSAGES, Counter(faults), time.monotonic() - began)
            print(f"\n{told}, {cast.by_themselves} processes ended by themselves")


def test_the_bridges_crash_on_the_way_out_repeats_no_message(bootstrap: str, tmp_path: Path) -> None:
    """Message 1 is sent on and its state saved; 2 and 3 are sent on, and the processor dies before its state is saved;
    4 is stored, the broker dies, and the client sends 4 again. The JMS Bridge then has 2, 3 and 4 twice."""
    settings = made_journal(bootstrap, tmp_path / "own", shards=1)
    topic = create_topic(bootstrap, f"{settings.journal}-out", PARTITIONS)
    env = command_env(bootstrap, settings.journal, tmp_path / "worker", worker_env(topic))
    worker = Child("one", program("mortal_worker", tmp_path, "one"), tmp_path / "worker.log", env)
    points = CrashPoints(tmp_path)

    def message(number: int) -> Message:
        return Message("orders.0", b"%d" % number, properties={"k": "a"}, duplicate_id=b"%d" % number)

    worker.start()
    try:
        with active_store(settings) as store:
            store.create_address("orders.0", 1000)
            store.create_queue(QueueConfig("q", "orders.0")).wait()
            store.send(message(1), ["q"]).wait()
            wait_until(lambda: numbers(read_all(bootstrap, topic)) == [1])
            points.arm("produced")
            store.send(message(2), ["q"])
            store.send(message(3), ["q"]).wait()
            wait_until(lambda: not worker.running)
            store.send(message(4), ["q"]).wait()  # its client never hears of it
        points.disarm()
        worker.start()
        with active_store(settings) as store:
            with pytest.raises(DuplicateMessageError):
                store.send(message(4), ["q"])
            wait_until(lambda: len(numbers(read_all(bootstrap, topic))) == 4)
    finally:
        worker.kill()
    assert numbers(read_all(bootstrap, topic)) == [1, 2, 3, 4]
    uncommitted = numbers(read_all(bootstrap, topic, committed=False))
    assert {2, 3} & {each for each in uncommitted if uncommitted.count(each) == 2}, "some were on their way twice"
