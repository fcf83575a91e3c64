"""The example service, twice: one is killed while alerts are sent; none is sent twice and none is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from journal.kafka.clients import KafkaClients
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore
from journal.topics.names import worker_group
from tests.support.in_process import made_journal
from tests.support.processes.command import command_env
from tests.support.stream_apps import active_store, committed_records, free_port, new_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "queue_alerts" / "alerts.py"
SHARDS = 4
LATE_MS = 3_600_000


class AlertsProcess:
    """The example as a process; its log and its copies are under `directory`."""

    def __init__(self, bootstrap: str, journal: str, directory: Path, to: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        env = command_env(bootstrap, journal, directory, {"KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000"})
        self._log = directory / "log"
        command = [sys.executable, str(EXAMPLE), "--to", to, "--after", "60", "--look-every", "0.1"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, "--port", str(free_port())], stdout=log, stderr=log, env=env)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        self._process.terminate()
        return self._process.wait(60)


@contextmanager
def alerts_process(bootstrap: str, journal: str, directory: Path, to: str) -> Iterator[AlertsProcess]:
    process = AlertsProcess(bootstrap, journal, directory, to)
    try:
        yield process
    finally:
        process.kill()


def holders(bootstrap: str, journal: str) -> list[int]:
    """How many shards each worker of the group has."""
    cluster = KafkaClients(bootstrap).cluster()
    try:
        return sorted(len(member.partitions) for member in cluster.group_members(worker_group(journal), 30.0))
    finally:
        cluster.close()


def send_late(store: MessageStore, names: Sequence[str]) -> dict[str, int]:
    """A queue of its own for each name, with a message that was sent an hour ago."""
    sent_ms = int(time.time() * 1000) - LATE_MS
    messages = {}
    for name in names:
        store.create_address(name)
        store.create_queue(QueueConfig(name, address=name)).wait()
        sent = store.send(Message(name, b"x", timestamp=sent_ms), [name])
        sent.wait()
        messages[name] = sent.id
    return messages


def alerts(bootstrap: str, topic: str) -> Counter[tuple[str, str]]:
    """Queue and what was said of it."""
    return Counter(
        ((key or b"").decode(), json.loads(value or b"{}")["alert"])
        for key, value in committed_records(bootstrap, topic)
    )


def test_no_alert_comes_twice_and_none_is_missing_when_one_of_two_is_killed(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path / "node", shards=SHARDS)
    journal, to = settings.journal, new_topic(bootstrap)

    def wait_for(*said: tuple[str, str]) -> None:
        wait_until(lambda: set(said) <= set(alerts(bootstrap, to)), lambda: (alerts(bootstrap, to), one.log()))

    with ExitStack() as processes:
        one = processes.enter_context(alerts_process(bootstrap, journal, tmp_path / "one", to))
        two = processes.enter_context(alerts_process(bootstrap, journal, tmp_path / "two", to))
        wait_until(lambda: holders(bootstrap, journal) == [2, 2], lambda: (one.log(), two.log()))
        store = processes.enter_context(active_store(settings))
        messages = send_late(store, [f"a{n}" for n in range(8)])
        wait_for(("a0", "late"))
        messages |= send_late(store, [f"b{n}" for n in range(8)])
        two.kill()
        messages |= send_late(store, [f"c{n}" for n in range(4)])
        wait_for(*((name, "late") for name in messages))
        for name in ("a1", "b1", "c1"):
            store.acquire(messages[name], name, "me")
            store.acknowledge(messages[name], name, "me").wait()
        store.destroy_queue("a2").wait()
        wait_for(*((name, "over") for name in ("a1", "b1", "c1", "a2")))
        again = processes.enter_context(alerts_process(bootstrap, journal, tmp_path / "elsewhere", to))
        wait_until(lambda: holders(bootstrap, journal) == [2, 2], again.log)
        messages |= send_late(store, [f"d{n}" for n in range(8)])
        wait_for(*((name, "late") for name in messages))
        assert (one.terminate(), again.terminate()) == (0, 0), (one.log(), again.log())
    over = ("a1", "b1", "c1", "a2")
    expected = Counter((name, "late") for name in messages) + Counter((name, "over") for name in over)
    assert alerts(bootstrap, to) == expected
