"""Ingress across failovers: nodes are killed and stopped while they take records in; every record is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from journal.config import Settings
from journal.routing.config import RoutingConfig
from journal.store.model import QueueConfig
from tests.support.in_process import made_journal, running_worker
from tests.support.ingress_crash_node import POINTS, crash_at
from tests.support.processes import COMMAND, command_env
from tests.support.sources import DEADLINE_S, bodies, committed, create_topic, new_name, produce, taking, wait_until

LONG = os.environ.get("KAFKA_JOURNAL_TEST_LONG") == "1"
ROUNDS = 8 if LONG else 1
RECORDS_MIN = 100_000 if LONG else 0
BURST = 14 if LONG else 7
SEED = int(os.environ.get("KAFKA_JOURNAL_TEST_SEED", "6"))

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(7200 if LONG else 400)]

FAILOVER_S = 600.0 if LONG else 120.0
PARTITIONS = 3
ENV = {
    "KAFKA_JOURNAL_FENCE_CHECK_MS": "1500",
    "KAFKA_JOURNAL_NODE_SESSION_TIMEOUT_MS": "3000",
    "KAFKA_JOURNAL_NODE_HEARTBEAT_MS": "300",
    "KAFKA_JOURNAL_NODE_REPORT_MS": "500",
}


class Machine:
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
        self.name = name
        self._command = [*command, name]
        env = ENV | {"KAFKA_JOURNAL_ROUTING": json.dumps(routing.model_dump(mode="json"))}
        self._env = command_env(settings.bootstrap_servers, settings.journal, directory / name, env)
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._env)

    def ended(self) -> int | None:
        """Its exit code, None while it runs."""
        return None if self._process is None else self._process.poll()

    def said(self, role: str) -> int:
        """How often it became that."""
        return self.log().count(f"node {self.name} is {role}:") if self._log.exists() else 0

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, role: str, after: int = 0) -> None:
        until = time.monotonic() + FAILOVER_S
        while self.said(role) <= after:
            assert self._process is not None
            assert self._process.poll() is None, self.log()[-4000:]
            assert time.monotonic() < until, f"{self.name} is not {role}\n{self.log()[-4000:]}"
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def start_again(self) -> None:
        """Start it as the other's standby."""
        before = self.said("standby")
        self.start()
        self.wait_for("standby", before)

    def wake(self) -> None:
        """Have it go on that was stopped, as the other's standby."""
        before = self.said("standby")
        self.send(signal.SIGCONT)
        self.wait_for("standby", before)

    def end(self, number: signal.Signals) -> None:
        """Send it a signal that ends it, and wait for that."""
        if self._process is not None and self._process.poll() is None:
            self.send(number)
            self._process.wait(FAILOVER_S)


class Stream(threading.Thread):
    """Produces numbers to all partitions in turn, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="stream", daemon=True)
        self.count = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._topic = topic
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.02):
            for _ in range(BURST):
                self._producer.produce(self._topic, b"%d" % self.count, partition=self.count % PARTITIONS)
                self.count += 1
            self._producer.poll(0)

    def finish(self) -> None:
        """After `RECORDS_MIN` at least."""
        wait_until(lambda: self.count >= RECORDS_MIN)
        self._end.set()
        self.join()
        assert self._producer.flush(DEADLINE_S) == 0


def taken_in(settings: Settings) -> int:
    return sum(committed(settings).values())


def fail_over(active: Machine, standby: Machine, number: signal.Signals) -> None:
    """Kill or stop the active node, and wait for the other."""
    before = standby.said("active")
    if number is signal.SIGKILL:
        active.end(number)
    else:
        active.send(number)
    standby.wait_for("active", before)


def let_pass(settings: Settings, chance: random.Random) -> None:
    """Let some records more be taken in, and then a moment by chance."""
    before = taken_in(settings)
    wait_until(lambda: taken_in(settings) > before + chance.randrange(50, 200))
    time.sleep(chance.random() * 0.05)


def test_every_record_is_a_message_once_whatever_becomes_of_the_active_node(bootstrap: str, tmp_path: Path) -> None:
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    topic = create_topic(bootstrap, new_name(), PARTITIONS)
    settings = made_journal(bootstrap, tmp_path / "own", shards=2)
    routing = RoutingConfig.model_validate({"sources": [{"name": "in", "topics": [topic], "address": "orders"}]})
    active, standby = (Machine(settings, tmp_path, name, routing) for name in ("first", "second"))
    stream = Stream(bootstrap, topic)
    with running_worker(settings):
        with taking(settings, [QueueConfig("orders", "orders")]):
            pass
        try:
            active.start()
            active.wait_for("active")
            stream.start()
            standby.start()
            standby.wait_for("standby")
            for _ in range(ROUNDS):
                let_pass(settings, chance)
                fail_over(active, standby, signal.SIGKILL)
                active.start_again()
                active, standby = standby, active
                let_pass(settings, chance)
                fail_over(active, standby, signal.SIGSTOP)
                let_pass(settings, chance)
                active.wake()  # it was a zombie
                active, standby = standby, active
                let_pass(settings, chance)
            fail_over(active, standby, signal.SIGKILL)
            let_pass(settings, chance)
            stream.finish()
            wait_until(lambda: taken_in(settings) >= stream.count, lambda: standby.log()[-4000:])
        finally:
            for machine in (active, standby):
                machine.send(signal.SIGCONT)
                machine.end(signal.SIGKILL)
        with taking(settings) as node:
            found = [int(body) for body in bodies(node.store, "orders")]
    assert len(found) == stream.count
    for partition in range(PARTITIONS):
        assert [n for n in found if n % PARTITIONS == partition] == list(range(partition, stream.count, PARTITIONS))


@pytest.mark.parametrize("point", POINTS)
def test_the_bridges_crash_on_the_way_in_repeats_no_record(bootstrap: str, tmp_path: Path, point: str) -> None:
    """Records are taken in and their offsets committed; of the next batch the messages are appended, and the node dies
    before its offsets are committed. The JMS Bridge then consumes that batch again, and has its messages twice."""
    topic = create_topic(bootstrap, new_name())
    settings = made_journal(bootstrap, tmp_path / "own", shards=2)
    routing = RoutingConfig.model_validate({"sources": [{"name": "in", "topics": [topic], "address": "orders"}]})
    command = [sys.executable, "-m", "tests.support.ingress_crash_node", str(tmp_path)]
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
