"""SIGSTOP and SIGCONT: a process that keeps its connections, says nothing, and does not know that time went by."""

from __future__ import annotations

import time
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Choice, FaultOfOne, active_node, any_worker
from tests.chaos.processes import WAIT_TIMEOUT_S, NodeProcess, WorkerProcess, wait_for

REQUEST_TIMEOUT_S = 10.0
LOOKS = 5
LOOK_EVERY_S = 0.2


class Pause(FaultOfOne):
    """One process, wherever it is."""

    def __init__(self, seed: int, choose: Choice, name: str = "pause") -> None:
        super().__init__(name, seed, choose)

    def inject(self, cluster: Cluster) -> None:
        self.choose(cluster).pause()

    def heal(self, cluster: Cluster) -> None:
        if self.target.running:
            self.target.resume()


class IdlePause(Pause):
    """The active node while nothing is appended, until another one is active.

    Nothing is appended again before it knows.
    """

    def __init__(self, seed: int, name: str = "pause idle node") -> None:
        super().__init__(seed, active_node, name)

    def inject(self, cluster: Cluster) -> None:
        cluster.rest()
        super().inject(cluster)
        cluster.wait_until_left_out(self.target)

    def heal(self, cluster: Cluster) -> None:
        super().heal(cluster)
        node = self.target
        assert isinstance(node, NodeProcess)
        wait_for(lambda: node.role != "active", f"{node.name}'s end as the active node")
        cluster.work()


class PauseInTransaction(Pause):
    """A worker whose Kafka transaction is open: rows of it are in the table topic, and readers wait before them.

    It is stopped and let go on until the same transaction stays open through several looks; that of any other worker
    would have been committed meanwhile. Then it stays stopped until other workers read its shards: it goes on inside a
    transaction that has been aborted, as a producer that has been fenced.
    """

    def __init__(self, seed: int, name: str = "pause in a transaction") -> None:
        super().__init__(seed, any_worker, name)

    def inject(self, cluster: Cluster) -> None:
        until = time.monotonic() + WAIT_TIMEOUT_S
        cluster.wait_for_shares()
        worker = self.choose(cluster)
        assert isinstance(worker, WorkerProcess)
        with TransactionWatch(cluster) as watch:
            worker.pause()
            while not (still_open := watch.stay_open()):
                worker.resume()
                assert time.monotonic() < until, f"{worker.name} could not be stopped inside a transaction"
                time.sleep(self.chance.uniform(0.02, 0.1))
                worker.pause()
        assert {shard for shard, _ in still_open} <= worker.shards, f"the transaction of {worker.name} is not open"
        cluster.wait_until_left_out(worker)


class TransactionWatch:
    """Sees open transactions on a cluster's table topic: what is there, and not yet for readers of committed rows."""

    def __init__(self, cluster: Cluster) -> None:
        self._partitions = [TopicPartition(f"{cluster.journal}.table", shard) for shard in range(cluster.shards)]
        self._committed, self._all = (
            Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "watch", "isolation.level": level})
            for level in ("read_committed", "read_uncommitted")
        )

    def stay_open(self) -> set[tuple[int, int]]:
        """Partition and first offset of each transaction that is open at every look."""
        still = self.open_now()
        for _ in range(LOOKS):
            if not still:
                break
            time.sleep(LOOK_EVERY_S)
            still &= self.open_now()
        return still

    def open_now(self) -> set[tuple[int, int]]:
        """Partition and first offset of each that is open."""
        found = set()
        for partition in self._partitions:
            committed, high = (self._end(consumer, partition) for consumer in (self._committed, self._all))
            if committed < high:
                found.add((partition.partition, committed))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._committed.close()
        self._all.close()

    @staticmethod
    def _end(consumer: Consumer, partition: TopicPartition) -> int:
        offsets = consumer.get_watermark_offsets(partition, REQUEST_TIMEOUT_S)
        assert offsets is not None, f"{partition}: no answer"
        return offsets[1]
