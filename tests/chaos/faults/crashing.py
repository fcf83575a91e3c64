"""Crashes at named points (`tests.chaos.crash_points`): of a node that takes over, and of a worker in a checkpoint."""

from __future__ import annotations

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Choice, FaultOfOne, any_worker
from tests.chaos.processes import ChildProcess


class _CrashAt(FaultOfOne):
    def __init__(self, seed: int, point: str, choose: Choice, name: str) -> None:
        super().__init__(name, seed, choose)
        self._point = point

    def _arm(self, cluster: Cluster) -> ChildProcess:
        process = self.choose(cluster)
        assert isinstance(process, ChildProcess)
        process.crash_points.arm(self._point)
        return process


class CrashInActivation(_CrashAt):
    """A standby that takes over, from a node that was killed or left, ends at a point; both come back when healed.

    Without `clean` the seed decides how the other one ends.
    """

    def __init__(self, seed: int, point: str, *, clean: bool | None = None) -> None:
        super().__init__(seed, point, lambda cluster, _: cluster.wait_for_standby(), f"node ends at: {point}")
        self._clean = clean

    def inject(self, cluster: Cluster) -> None:
        standby = self._arm(cluster)
        active = cluster.wait_for_active()
        clean = self.chance.random() < 0.5 if self._clean is None else self._clean
        if clean:
            active.stop()
        else:
            active.kill()
        standby.wait_for_crash(self._point)

    def heal(self, cluster: Cluster) -> None:
        cluster.mend()


class CrashInCheckpoint(_CrashAt):
    """A worker ends at a point."""

    def __init__(self, seed: int, point: str) -> None:
        super().__init__(seed, point, any_worker, f"worker ends at: {point}")

    def inject(self, cluster: Cluster) -> None:
        self._arm(cluster).wait_for_crash(self._point)

    def heal(self, cluster: Cluster) -> None:
        self.target.start(ready=False)
