"""Sources across crashes: whatever process is killed or stopped while records are taken in, every record is a message
once, and each key's are in their order."""

from __future__ import annotations

import json
import math
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from journal.config import Settings
from journal.embedded.cluster import EmbeddedKafka
from journal.errors import OperatingError
from journal.kafka.clients import kafka_of
from journal.routing.config import RoutingConfig
from journal.store.model import QueueConfig
from journal.topics.names import sources_group
from tests.support.brokers import crash
from tests.support.children.crashing import POINTS, crash_at
from tests.support.in_process import made_journal, running_worker
from tests.support.long_form import BROKERS, LONG, seed, summary
from tests.support.processes.child import Child, program
from tests.support.processes.command import COMMAND, command_env
from tests.support.processes.worker import WorkerProcess
from tests.support.sources import committed, create_topic, new_name, produce, taking
from tests.support.stores import bodies
from tests.support.waiting import wait_until

ROUNDS = 8 if LONG else 1
RECORDS = 100_000 if LONG else 0
"""The number of records that are produced; 0, in the short form, for as many as fit between the kills."""
WORKERS = ("one", "two") if LONG else ("one",)
BURST = 14 if LONG else 7
SEED = seed(6)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(7200 if LONG else 400)]

FAILOVER_S = 600.0 if LONG else 120.0
_ASK_S = 10.0
PARTITIONS = 3
KEYS = 8
"""Each has an address of its own; together they are in all partitions and shards."""
ENV = {
    "KAFKA_JOURNAL_FENCE_CHECK_MS": "1500",
    "KAFKA_JOURNAL_NODE_SESSION_TIMEOUT_MS": "3000",
    "KAFKA_JOURNAL_NODE_HEARTBEAT_MS": "300",
    "KAFKA_JOURNAL_NODE_REPORT_MS": "500",
    "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000",
}


def env_of(settings: Settings) -> dict[str, str]:
    """The environment of the journal's nodes and workers."""
    return ENV | {"KAFKA_JOURNAL_REPLICATION": str(settings.replication)}


def taken_in(settings: Settings) -> int:
    """How many records."""
    return sum(committed(settings).values())


class Machine(Child):
    """A node's process, which can be started again."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        name: str,
        routing: RoutingConfig,
        command: Sequence[str | Path] = (COMMAND, "node", "--name"),
    ) -> None:
        """`command` is given the name."""
        env = env_of(settings) | {"KAFKA_JOURNAL_ROUTING": json.dumps(routing.model_dump(mode="json"))}
        its = command_env(settings.bootstrap_servers, settings.journal, directory / name, env)
        super().__init__(name, [*command, name], directory / f"{name}.log", its)

    def said(self, role: str) -> int:
        """How often it became that."""
        return self.log().count(f"node {self.name} is {role}:")

    def role(self) -> str:
        """What it became last, as far as it knows; empty: nothing."""
        roles = re.findall(rf"loaders\.node\.life: node {self.name} is ([a-z]+):", self.log())
        return roles[-1] if roles else ""

    def wait_for_role(self, role: str, after: int = 0) -> None:
        self.wait_until(lambda: self.said(role) > after, role, FAILOVER_S)

    def start_again(self) -> None:
        """Start it as the other's standby."""
        before = self.said("standby")
        self.start()
        self.wait_for_role("standby", before)

    def wake(self) -> None:
        """Have it go on that was stopped, as the other's standby."""
        self.resume()
        wait_until(lambda: self.role() == "standby", self.log, FAILOVER_S)

    def end(self, number: signal.Signals) -> None:
        """Send it a signal that ends it, and wait for that."""
        if self.running:
            self.send_signal(number)
            self.wait(FAILOVER_S)


class Stream(threading.Thread):
    """Produces numbers, each with its rest as the key, up to a goal and until it is told to end. Those without a rest
    go to a topic of their own, whose source takes them as they are."""

    def __init__(self, bootstrap: str, topic: str, plain: str) -> None:
        super().__init__(name="stream", daemon=True)
        self.count = 0
        self.goal = math.inf
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
        self._topics = [plain, *([topic] * (KEYS - 1))]
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.02):
            for _ in range(int(min(BURST, self.goal - self.count))):
                key = self.count % KEYS
                self._producer.produce(self._topics[key], b"%d" % self.count, b"%d" % key)
                self.count += 1
            self._producer.poll(0)

    def finish(self) -> None:
        wait_until(lambda: self.count >= RECORDS, deadline_s=FAILOVER_S)
        self._end.set()
        self.join()
        assert self._producer.flush(FAILOVER_S) == 0


class Cast:
    """Every process that has a part in it: two nodes, workers and Kafka."""

    def __init__(
        self, kafka: EmbeddedKafka, settings: Settings, directory: Path, topic: str, plain: str, stream: Stream
    ) -> None:
        sources = [
            {"name": "in", "topics": [topic], "address": "orders.{key}"},
            {"name": "plain", "topics": [plain], "address": "orders.0"},
        ]
        routing = RoutingConfig.model_validate({"sources": sources})
        self._dead: Machine | None = None
        """A node that was killed, and is not to be started again yet."""
        self._kafka = kafka
        self._topics = (topic, plain)
        self._stream = stream
        self._settings = settings
        self._cluster = kafka_of(settings).cluster()
        self._group = sources_group(settings.journal)
        self._nodes = [Machine(settings, directory, name, routing) for name in ("first", "second")]
        self._workers = [
            WorkerProcess(kafka.bootstrap_servers, settings.journal, directory / name, env_of(settings))
            for name in WORKERS
        ]

    def start_workers(self, running: ExitStack) -> None:
        for number, worker in enumerate(self._workers):
            running.enter_context(worker.start(ready=not number))

    def begin(self) -> None:
        first, second = self._nodes
        first.start()
        first.wait_for_role("active")
        second.start_again()

    def end(self) -> None:
        for node in self._nodes:
            node.end(signal.SIGKILL)
        self._cluster.close()

    def said(self) -> str:
        logs = [*(node.log() for node in self._nodes), *(worker.log() for worker in self._workers)]
        return "\n".join(log[-4000:] for log in logs)

    def taken_in(self) -> int:
        """How many records, once Kafka says so. As of the last commit: there may always be one on its way."""
        counts: list[int] = []

        def asked() -> bool:
            try:
                found = [self._cluster.group_offsets(self._group, topic, _ASK_S) for topic in self._topics]
                counts.append(sum(sum(offsets.values()) for offsets in found))
            except OperatingError:  # not every client finds a Kafka again that was killed
                self._cluster.close()
                self._cluster = kafka_of(self._settings).cluster()
            return bool(counts)

        self._wait_until(asked)
        return counts[0]

    def let_pass(self, chance: random.Random) -> None:
        """Let some records more be taken in, as far as there are to be any, and then a moment by chance."""
        wanted = min(self.taken_in() + chance.randrange(50, 200), self._stream.goal)
        self._wait_until(lambda: self.taken_in() >= wanted)
        time.sleep(chance.random() * 0.05)

    def wait_taken_in(self, count: int) -> None:
        self._wait_until(lambda: self.taken_in() >= count)

    # ---- what may happen to them -----------------------------------------------------------------------------------

    def kill_active(self, chance: random.Random) -> None:
        active, standby = self._active_and_standby()
        self._dead = active
        active.end(signal.SIGKILL)
        self._wait_active(standby)
        active.start_again()
        self._dead = None

    def stop_active(self, chance: random.Random) -> None:
        """The active node is stopped until the other one is active, and then goes on as a zombie."""
        active, standby = self._active_and_standby()
        active.pause()
        self._wait_active(standby)
        self.let_pass(chance)
        active.wake()

    def kill_worker(self, chance: random.Random) -> None:
        worker = chance.choice(self._workers)
        worker.kill()
        worker.start(ready=not LONG)

    def kill_broker(self, chance: random.Random) -> None:
        crash(self._kafka, chance.randint(1, BROKERS))

    def kill_all(self, chance: random.Random) -> None:
        """Everything at once."""
        for node in self._nodes:
            node.end(signal.SIGKILL)
        for worker in self._workers:
            worker.kill()
        crash(self._kafka, *range(1, BROKERS + 1))
        self._active_and_standby()

    def _active_and_standby(self) -> tuple[Machine, Machine]:
        """Who is what, once both know it: without Kafka nobody could tell."""
        self._wait_until(lambda: sorted(node.role() for node in self._nodes) == ["active", "standby"])
        first, second = self._nodes
        return (first, second) if first.role() == "active" else (second, first)

    def _wait_active(self, node: Machine) -> None:
        self._wait_until(lambda: node.role() == "active")

    def _wait_until(self, what: Callable[[], bool]) -> None:
        """Meanwhile whatever has ended by itself is started again, as whoever runs it would."""

        def looked() -> bool:
            for node in self._nodes:
                if node is not self._dead and node.ended() is not None:
                    node.start()
            for worker in self._workers:
                if worker.ended() is not None:
                    worker.start(ready=False)
            return what()

        wait_until(looked, self.said, FAILOVER_S)


def test_every_record_is_a_message_once_and_in_its_keys_order_whichever_process_dies(
    brokers: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    chance, bootstrap, began = random.Random(SEED), brokers.bootstrap_servers, time.monotonic()
    topic, plain = (create_topic(bootstrap, new_name(), PARTITIONS, replication=BROKERS) for _ in range(2))
    settings = made_journal(bootstrap, tmp_path / "own", shards=2, replication=BROKERS)
    queues = [QueueConfig(f"orders.{key}", f"orders.{key}") for key in range(KEYS)]
    stream = Stream(bootstrap, topic, plain)
    cast = Cast(brokers, settings, tmp_path, topic, plain, stream)
    kinds = [cast.kill_active, cast.stop_active, cast.kill_worker, *([cast.kill_broker, cast.kill_all] if LONG else [])]
    events = [event for _ in range(ROUNDS) for event in chance.sample(kinds, len(kinds))]
    with ExitStack() as running:
        cast.start_workers(running)
        with taking(settings, queues):
            pass
        try:
            cast.begin()
            stream.start()
            for number, event in enumerate(events, 1):
                print(event.__name__)
                if LONG:
                    stream.goal = RECORDS * number // (len(events) + 1)
                cast.let_pass(chance)
                event(chance)
            if LONG:
                stream.goal = RECORDS
            cast.let_pass(chance)
            stream.finish()
            cast.wait_taken_in(stream.count)
        finally:
            cast.end()
        with taking(settings) as node:
            found = [[int(body) for body in bodies(node.store, queue.name)] for queue in queues]
    assert found == [list(range(key, stream.count, KEYS)) for key in range(KEYS)]
    if LONG:
        with capsys.disabled():
            kinds_met = Counter(event.__name__ for event in events)
            print(f"\n{summary('in', SEED, stream.count, kinds_met, time.monotonic() - began)}")


@pytest.mark.parametrize("point", POINTS)
def test_the_bridges_crash_on_the_way_in_repeats_no_record(bootstrap: str, tmp_path: Path, point: str) -> None:
    """Records are taken in and their offsets committed; of the next batch the messages are appended, and the node dies
    before its offsets are committed. The JMS Bridge then consumes that batch again, and has its messages twice."""
    topic = create_topic(bootstrap, new_name())
    settings = made_journal(bootstrap, tmp_path / "own", shards=2)
    routing = RoutingConfig.model_validate({"sources": [{"name": "in", "topics": [topic], "address": "orders"}]})
    command = program("crashing", "taking-in", tmp_path, "node", "--name")
    node = Machine(settings, tmp_path, "one", routing, command)
    armed = crash_at(tmp_path)
    with running_worker(settings):
        with taking(settings, [QueueConfig("orders", "orders")]):
            pass
        try:
            node.start()
            produce(bootstrap, topic, [b"0", b"1", b"2"])
            wait_until(lambda: taken_in(settings) == 3, node.log)
            armed.write_text(point, encoding="utf-8")
            produce(bootstrap, topic, [b"3", b"4", b"5"])
            wait_until(lambda: node.ended() is not None, node.log)
            assert node.ended() == -signal.SIGKILL
            armed.unlink()
            node.start()
            produce(bootstrap, topic, [b"6"])
            wait_until(lambda: taken_in(settings) == 7, node.log)
        finally:
            node.end(signal.SIGTERM)
        with taking(settings) as found:
            assert bodies(found.store, "orders") == [b"%d" % number for number in range(7)]
