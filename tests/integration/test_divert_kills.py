"""Routes across crashes: worker, node and Kafka are killed at random; every message is in its topic once, in order."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from journal.errors import DuplicateMessageError
from journal.kafka.clients import KafkaClients
from journal.kafka.embedded import EmbeddedKafka
from journal.store.model import Message, QueueConfig
from tests.chaos.crash_points import CHECKPOINT_POINTS, CrashPoints
from tests.support.brokers import crash
from tests.support.in_process import made_journal
from tests.support.processes import command_env
from tests.support.sources import create_topic, wait_until
from tests.support.stream_apps import active_store

LONG = os.environ.get("KAFKA_JOURNAL_TEST_LONG") == "1"

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(7200 if LONG else 1800)]

MESSAGES = 100_000 if LONG else 3_000
WHAT = ("node", "worker", "point", "kafka")
ROUNDS = 15 if LONG else 1
KILLS = len(WHAT) * ROUNDS
SEED = int(os.environ.get("KAFKA_JOURNAL_TEST_SEED", "20261"))
PARTITIONS = 3
DEADLINE_S = 900.0 if LONG else 300.0


class Child:
    """A process that is killed and started again."""

    def __init__(self, arguments: Sequence[str], env: dict[str, str], log: Path) -> None:
        self._command = [sys.executable, "-m", *arguments]
        self._env = env
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._env)

    def say(self, text: str) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None


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
        "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000",
        "KAFKA_JOURNAL_CHECKPOINT_INTERVAL_MS": "20",
    }


def test_every_message_is_sent_once_and_in_order_whoever_is_killed(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    chance, bootstrap = random.Random(SEED), kafka.bootstrap_servers
    settings = made_journal(bootstrap, tmp_path / "own", shards=2)
    topic = create_topic(bootstrap, f"{settings.journal}-out", PARTITIONS)
    history = tmp_path / "history"
    history.touch()
    points = CrashPoints(tmp_path)
    env = command_env(bootstrap, settings.journal, tmp_path / "worker", worker_env(topic))
    worker = Child(["tests.chaos.worker", str(tmp_path), "one"], env, tmp_path / "worker.log")
    node = Child(
        ["tests.support.divert_sender", str(history)],
        command_env(bootstrap, settings.journal, tmp_path / "node", {"KAFKA_JOURNAL_GATE_TIMEOUT_MS": "120000"}),
        tmp_path / "node.log",
    )

    def revive() -> None:
        """As whoever runs a worker would: librdkafka may end it when Kafka dies."""
        if worker.ended():
            worker.start()

    def acknowledged() -> int:
        return len(set(history.read_text().split()))

    def wait_for(count: int) -> None:
        until = time.monotonic() + DEADLINE_S
        while acknowledged() < count:
            assert time.monotonic() < until, node.log.read_text()[-3000:] + worker.log.read_text()[-3000:]
            assert not node.ended(), node.log.read_text()[-3000:]
            revive()
            time.sleep(0.005)

    worker.start()
    node.start()
    try:
        kills = [what for _ in range(ROUNDS) for what in chance.sample(WHAT, len(WHAT))]
        for kill, what in enumerate(kills):
            goal = MESSAGES * (kill + 1) // (KILLS + 1)
            node.say(f"{goal}\n")
            wait_for(chance.randrange(acknowledged(), goal) if goal > acknowledged() else goal)
            if what == "node":
                node.kill()
                node.start()
                node.say(f"{goal}\n")
            elif what == "worker":
                worker.kill()
                worker.start()
            elif what == "kafka":
                crash(kafka)
            else:
                points.arm(chance.choice(CHECKPOINT_POINTS))
                node.say(f"{goal + 1}\n")
                wait_until(worker.ended)
                points.disarm()
                worker.start()
        node.say(f"{MESSAGES}\n")
        wait_for(MESSAGES)
        until = time.monotonic() + DEADLINE_S
        while len(numbers(found := read_all(bootstrap, topic))) < MESSAGES:
            assert time.monotonic() < until, worker.log.read_text()[-3000:]
            revive()
    finally:
        node.kill()
        worker.kill()
    assert numbers(found) == list(range(1, MESSAGES + 1))
    for records in found:
        of_keys: dict[bytes | None, list[int]] = {}
        for key, value in records:
            of_keys.setdefault(key, []).append(int(value or b""))
        assert all(values == sorted(values) for values in of_keys.values())
    seen = [key for records in found for key in {key for key, _ in records}]
    assert len(seen) == len(set(seen)), "a key is in one partition"


def test_the_bridges_crash_on_the_way_out_repeats_no_message(bootstrap: str, tmp_path: Path) -> None:
    """Message 1 is sent on and its state saved; 2 and 3 are sent on, and the processor dies before its state is saved;
    4 is stored, the broker dies, and the client sends 4 again. The JMS Bridge then has 2, 3 and 4 twice."""
    settings = made_journal(bootstrap, tmp_path / "own", shards=1)
    topic = create_topic(bootstrap, f"{settings.journal}-out", PARTITIONS)
    env = command_env(bootstrap, settings.journal, tmp_path / "worker", worker_env(topic))
    worker = Child(["tests.chaos.worker", str(tmp_path), "one"], env, tmp_path / "worker.log")
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
            wait_until(worker.ended)
            store.send(message(4), ["q"]).wait()  # whose client never hears of it
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
