"""Simulated processes taking turns: one greenlet a thread, and at every request chance decides who runs next.

All chance comes from one seeded generator and all time from the timeline, so a seed runs the same way every time.
A process that crashes is gone at once: its other threads are dropped wherever they stand. A frozen one (SIGSTOP) is
passed over until it thaws, while everybody's time goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from tests.simulation.faults import SimulatedCrash
from tests.simulation.timeline import SWITCH_S, Timeline, never


class Process:
    """What crashes, freezes and exits as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.stopped_at = 0.0
        """When it was frozen last, or ended."""
        self.crashed = False
        self.on_end: Callable[[], None] = _nothing
        """Called once, when the process is gone: after its last thread, or after a crash."""
        self.tasks: list[Task] = []


class Task:
    """One thread of a process: ready, or waiting for `until` or `deadline`."""

    __slots__ = ("answer", "deadline", "error", "greenlet", "process", "until")

    def __init__(self, process: Process, run: Callable[[], None], hub: greenlet) -> None:
        self.process = process
        self.greenlet = greenlet(run, hub)
        self.until: Callable[[], bool] | None = None
        self.deadline = 0.0
        self.answer = False
        self.error: Exception | None = None
        """What `until` raised: it is raised where the task waits."""


class Scheduler(Timeline):
    """A timeline on which several processes run."""

    def __init__(self, chance: Random, *, switch_chance: float = 0.6) -> None:
        super().__init__()
        self.freeze_for: Callable[[str], float] = _never
        """How long a process freezes at this request; 0: not at all."""
        self.failures: list[tuple[str, Exception]] = []
        """What no thread of the product may raise: it ended its process."""
        self._chance = chance.random
        self._switch_chance = switch_chance
        self._hub = getcurrent()
        self._tasks: list[Task] = []
        self._current: Task | None = None

    # ---- processes -------------------------------------------------------------------------------------------

    def spawn(self, process: Process, thread: Callable[[], None]) -> None:
        """Another thread of a process; it begins when chance has it."""

        def run() -> None:
            try:
                thread()
            except SimulatedCrash:
                process.crashed = True
            except Exception as error:  # noqa: BLE001  # whatever it is, the simulation looks for it
                self.failures.append((process.name, error))
                process.crashed = True

        task = Task(process, run, self._hub)
        process.tasks.append(task)
        self._tasks.append(task)

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop a process where it stands, and let it go on later."""
        if process.frozen or not process.alive:
            return

        def thaw() -> None:
            process.frozen = False

        process.frozen, process.stopped_at = True, self._now
        self.call_at(self._now + seconds, thaw)

    def kill(self, process: Process) -> None:
        """SIGKILL. Not from inside a thread: those raise SimulatedCrash."""
        if not process.alive:
            return
        process.alive, process.stopped_at = False, self._now
        for task in process.tasks:
            if task.greenlet:
                self._current = task
                task.greenlet.throw(SimulatedCrash(process.name))
        self._current = None
        self._tasks = [task for task in self._tasks if task.process is not process]
        process.on_end()

    # ---- turns -----------------------------------------------------------------------------------------------

    def run(self, seconds: float, until: Callable[[], bool]) -> bool:
        """Let everybody run until `until` holds, at most `seconds`; says whether it holds."""
        deadline = self._now + seconds
        while not until():
            if self._now >= deadline or self.failures:
                return False
            task = self._next()
            if task is None:
                self.pass_to(min(deadline, self._wake_at()))
            else:
                self._resume(task)
        return True

    def _next(self) -> Task | None:
        tasks, now = self._tasks, self._now
        count = len(tasks)
        place = int(self._chance() * count)
        for _ in range(count):
            task = tasks[place]
            place = place + 1 if place + 1 < count else 0
            if task.process.frozen:
                continue
            until = task.until
            if until is None:
                return task
            if until is never:
                if task.deadline <= now:
                    task.answer = False
                    return task
                continue
            try:
                task.answer = until()
            except Exception as error:  # noqa: BLE001  # it is the waiting thread's
                task.error = error
                return task
            if task.answer:
                return task
            if task.deadline <= now:
                return task
        return None

    def _wake_at(self) -> float:
        soonest = self._actions[0][0] if self._actions else float("inf")
        for task in self._tasks:
            if task.deadline < soonest and not task.process.frozen:
                soonest = task.deadline
        return soonest

    def _resume(self, task: Task) -> None:
        self._current = task
        task.until = None
        task.greenlet.switch()
        self._current = None
        if task.greenlet.dead:
            self._ended(task)

    def _ended(self, task: Task) -> None:
        process = task.process
        process.tasks.remove(task)
        self._tasks.remove(task)
        if process.crashed:
            self.kill(process)
        elif not process.tasks:
            process.alive = False
            process.on_end()

    # ---- what a simulated client calls -----------------------------------------------------------------------

    def switch(self) -> None:
        task = self._current
        if task is None:
            super().switch()
            return
        process = task.process
        if not process.alive:
            raise SimulatedCrash(process.name)
        now = self._now + SWITCH_S
        if self._actions and self._actions[0][0] <= now:
            self.pass_to(now)
        else:
            self._now = now
        seconds = self.freeze_for(process.name)
        if seconds:
            self.freeze(process, seconds)
        if process.frozen or self._chance() < self._switch_chance:
            self._hub.switch()
            if not process.alive:
                raise SimulatedCrash(process.name)

    def wait(self, seconds: float, until: Callable[[], bool]) -> bool:
        task = self._current
        if task is None:
            return super().wait(seconds, until)
        if not task.process.alive:
            raise SimulatedCrash(task.process.name)
        if until():
            return True
        if seconds <= 0:
            return False
        task.until, task.deadline = until, self._now + seconds
        self._hub.switch()
        if not task.process.alive:
            raise SimulatedCrash(task.process.name)
        error, task.error = task.error, None
        if error is not None:
            raise error
        return task.answer

    def pause(self, seconds: float) -> None:
        """Let time pass: the `pause` of `journal.wal.fencing.Timing`."""
        self.wait(seconds, never)


def _nothing() -> None: ...


def _never(process: str) -> float:
    return 0.0
