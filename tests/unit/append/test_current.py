"""Whether an active node may hand out what it holds: not once its last commit is long ago by either clock."""

from __future__ import annotations

from dataclasses import dataclass

from journal.append.group import Group
from journal.append.writing import Joining
from journal.process.clocks import Timing
from tests.support.cores import Committing, active_core

FENCE_CHECK_S = 3.0


@dataclass
class Machine:
    """Its clocks: while it is suspended only that of the wall goes on."""

    monotonic_s: float = 100.0
    wall_s: float = 1_700_000_000.0

    def pass_time(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds

    def suspend(self, seconds: float) -> None:
        self.wall_s += seconds


class Dated(Committing):
    """A writer that says when it last committed."""

    def __init__(self, timing: Timing) -> None:
        super().__init__(shards=1)
        self.committed_at = timing.now()
        self._timing = timing

    def write(self, group: Group, joining: Joining) -> None:
        self.committed_at = self._timing.now()
        super().write(group, joining)


class Scene:
    def __init__(self) -> None:
        machine = self.machine = Machine()
        timing = Timing(
            lambda: machine.monotonic_s,
            machine.pass_time,
            request_s=1.0,
            recovery_s=1.0,
            fence_check_s=FENCE_CHECK_S,
            wall_s=lambda: machine.wall_s,
        )
        self.writer = Dated(timing)
        self.core = active_core(self.writer, timing=timing, shards=1)


def test_a_node_is_current_for_as_long_after_its_last_commit_as_nobody_else_could_be_active() -> None:
    scene = Scene()
    assert scene.core.current
    scene.machine.pass_time(FENCE_CHECK_S)
    assert scene.core.current
    scene.machine.pass_time(0.1)
    assert not scene.core.current


def test_a_machine_that_was_suspended_hands_out_nothing_before_it_has_committed_again() -> None:
    scene = Scene()
    scene.machine.suspend(600.0)
    assert not scene.core.current
    scene.core.step(0.0)
    assert (len(scene.writer.written), scene.core.current) == (1, True)


def test_a_clock_that_is_set_back_makes_nobody_current_for_longer() -> None:
    scene = Scene()
    scene.machine.suspend(-600.0)
    scene.machine.pass_time(FENCE_CHECK_S + 0.1)
    assert not scene.core.current


def test_a_node_without_anything_to_write_is_current_all_the_time() -> None:
    scene = Scene()
    pause_s = FENCE_CHECK_S / 20
    for _ in range(100):
        scene.machine.pass_time(pause_s)
        assert scene.core.current
        scene.core.step(0.0)
    assert len(scene.writer.written) == 10
