"""Two workers share the shards of a journal that is being written; one leaves, one is killed: the other takes over. The
same of the processes of one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from journal.embedded.process import wait_until
from journal.kafka.clients import KafkaClients
from journal.topics.names import table_topic, worker_group
from tests.support.judgement import judge, settings_of
from tests.support.processes.command import COMMAND, command_env, new_journal
from tests.support.processes.node import NodeProcess
from tests.support.processes.worker import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


SEED = 11
SESSION_MS = 2000
TIMEOUT_S = 60.0


class Group:
    """The workers' consumer group, as Kafka shows it."""

    def __init__(self, bootstrap: str, journal: str, shards: int) -> None:
        self._cluster = KafkaClients(bootstrap).cluster()
        self._group = worker_group(journal)
        self._shards = shards

    def wait_for(self, *names: str) -> float:
        """Until exactly these workers are members and hold all shards between them; seconds that took."""
        began = time.monotonic()
        while not self._is_shared_by(names):
            assert time.monotonic() - began < TIMEOUT_S, self._cluster.group_members(self._group, TIMEOUT_S)
            time.sleep(0.05)
        return time.monotonic() - began

    def shards_of(self, name: str) -> set[int]:
        """The shards that a worker has."""
        members = self._cluster.group_members(self._group, TIMEOUT_S)
        return {shard for member in members if f".{name}." in member.client_id for _, shard in member.partitions}

    def _is_shared_by(self, names: tuple[str, ...]) -> bool:
        members = self._cluster.group_members(self._group, TIMEOUT_S)
        held = sorted(shard for member in members for _, shard in member.partitions)
        nodes = sorted(member.client_id.rsplit(".", 2)[1] for member in members)
        spread = sum(1 for member in members if member.partitions)
        return nodes == sorted(names) and held == list(range(self._shards)) and spread == min(len(names), self._shards)


def named_worker(bootstrap: str, journal: str, directory: Path, name: str, *options: str) -> WorkerProcess:
    """A worker that was started, and that the group shows under this name."""
    env = {"KAFKA_JOURNAL_NODE": name, "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": str(SESSION_MS)}
    return WorkerProcess(bootstrap, journal, directory / name, env, options=options).start(ready=False)


def table_ends(bootstrap: str, journal: str, shards: int) -> dict[int, int]:
    """How many offsets each partition of the table has."""
    reader = KafkaClients(bootstrap).reader(table_topic(journal))
    try:
        return {shard: reader.start_and_end(shard, TIMEOUT_S)[1] for shard in range(shards)}
    finally:
        reader.close()


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("shards", [1, 8])
def test_one_worker_leaves_and_one_is_killed_and_the_other_goes_on(bootstrap: str, tmp_path: Path, shards: int) -> None:
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    group = Group(bootstrap, journal, shards)
    with (
        NodeProcess(bootstrap, journal, tmp_path / "node", SEED) as node,
        named_worker(bootstrap, journal, tmp_path, "one") as one,
        named_worker(bootstrap, journal, tmp_path, "two") as two,
    ):
        node.start().wait_until_active()
        group.wait_for("one", "two")
        assert one.terminate() == 0
        print(f"{shards} shards: the other worker had them all {group.wait_for('two'):.2f} s after one had left")
        node.wait_for_lines('{"done":', count=500)
        with named_worker(bootstrap, journal, tmp_path, "three") as three:
            group.wait_for("three", "two")
            two.kill()
            seconds = group.wait_for("three")
            print(f"{shards} shards: {seconds:.2f} s after one was killed (session time-out {SESSION_MS} ms)")
            node.wait_for_lines('{"done":', count=1000)
            node.stop()
            judge(settings_of(bootstrap, journal, tmp_path / "judge"), node.activations())
            assert three.terminate() == 0
    if shards > 1:
        refuses_too_few_descriptors(bootstrap, journal, tmp_path / "three")


def refuses_too_few_descriptors(bootstrap: str, journal: str, directory: Path) -> None:
    """A worker that cannot open its copies ends with the number that it needs, and they are what they were."""
    files = sorted(directory.rglob("*.sst"))
    assert files
    command = ["/bin/sh", "-c", 'ulimit -n 150; exec "$0" "$@"', str(COMMAND), "worker", "--name", "three"]
    env = command_env(bootstrap, journal, directory)
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=TIMEOUT_S)
    assert ended.returncode == 1
    assert "error: a worker, which may have 8 shards, needs 420 open files and connections" in ended.stderr
    assert sorted(directory.rglob("*.sst")) == files


def lags(log: str) -> dict[int, int]:
    """Shards that a worker recovered, and how far its copy of each was behind the table then, in offsets."""
    found = re.findall(r"shard (\d+): the local copy is (-?\d+) offsets behind the table", log)
    return {int(shard): int(offsets) for shard, offsets in found}


def test_a_standby_has_the_shards_of_a_killed_worker_at_hand(bootstrap: str, tmp_path: Path) -> None:
    shards = 4
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    group = Group(bootstrap, journal, shards)
    with (
        NodeProcess(bootstrap, journal, tmp_path / "node", SEED) as node,
        named_worker(bootstrap, journal, tmp_path, "one") as one,
        named_worker(bootstrap, journal, tmp_path, "two", "--standby") as two,
    ):
        group.wait_for("one", "two")
        moving = group.shards_of("one")
        for shard in moving:
            two.wait_for_log(f"shard {shard}: following, as a standby")
        node.start().wait_for_lines('{"done":', count=1500)
        before = len(two.log())
        one.kill()
        group.wait_for("two")
        for shard in moving:
            two.wait_for_log(f"shard {shard}: the local copy is", after=before)
        node.wait_for_more('{"done":', 200)
        node.stop()
        rows = table_ends(bootstrap, journal, shards)
        moved = lags(two.log()[before:])
        assert set(moved) == moving, "the others stay, and are not recovered"
        assert all(lag * 5 < rows[shard] for shard, lag in moved.items()), (moved, rows)
        judge(settings_of(bootstrap, journal, tmp_path / "judge"), node.activations())
        assert two.terminate() == 0


def test_a_worker_that_was_stopped_and_goes_on_spoils_nothing(bootstrap: str, tmp_path: Path) -> None:
    shards = 8
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    group = Group(bootstrap, journal, shards)
    with (
        NodeProcess(bootstrap, journal, tmp_path / "node", SEED) as node,
        named_worker(bootstrap, journal, tmp_path, "zombie") as zombie,
        named_worker(bootstrap, journal, tmp_path, "other") as other,
    ):
        group.wait_for("zombie", "other")
        node.start().wait_for_lines('{"done":', count=100)
        os.kill(zombie.pid, signal.SIGSTOP)
        group.wait_for("other")
        node.wait_for_more('{"done":', 300)
        os.kill(zombie.pid, signal.SIGCONT)
        group.wait_for("zombie", "other")
        node.wait_for_more('{"done":', 300)
        node.stop()
        judge(settings_of(bootstrap, journal, tmp_path / "judge"), node.activations())
        assert (zombie.terminate(), other.terminate()) == (0, 0)


def test_processes_of_a_worker_share_its_shards_and_end_with_it(bootstrap: str, tmp_path: Path) -> None:
    shards = 4
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    group = Group(bootstrap, journal, shards)
    with (
        NodeProcess(bootstrap, journal, tmp_path / "node", SEED) as node,
        named_worker(bootstrap, journal, tmp_path, "one", "--processes", "3") as one,
    ):
        group.wait_for("one", "one", "one")
        node.start().wait_for_lines('{"done":', count=100)
        killed, other = psutil.Process(one.pid).children()
        killed.kill()
        one.wait_for_log("the worker ended with -9; it is started again")
        assert wait_until(lambda: len(psutil.Process(one.pid).children()) == 2, TIMEOUT_S)
        group.wait_for("one", "one", "one")
        assert runs(other)
        node.wait_for_more('{"done":', 200)
        others = psutil.Process(one.pid).children()
        one.kill()
        assert wait_until(lambda: not any(map(runs, others)), TIMEOUT_S), "they end with the first one"
        with named_worker(bootstrap, journal, tmp_path, "two", "--processes", "2") as two:
            group.wait_for("two", "two")
            node.wait_for_more('{"done":', 200)
            node.stop()
            judge(settings_of(bootstrap, journal, tmp_path / "judge"), node.activations())
            others = psutil.Process(two.pid).children()
            assert two.terminate() == 0
            assert not any(map(runs, others))
            assert two.log().count("everything it had read is checkpointed") == 2
