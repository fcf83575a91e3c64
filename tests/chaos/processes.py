"""The processes under test, each with the same handles: start, stop, kill, pause, resume.

Every one can run in a place of its own: with an address of its own, behind a command that runs it there by exec
(`nsenter`, say), so that a fault can cut it off from the others.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
from abc import ABC, abstractmethod
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.crash_points import CrashPoints
from tests.support.processes.child import LAST_CHARACTERS, Child
from tests.support.waiting import wait_until

log = logging.getLogger(__name__)

WAIT_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0
_SHARES = re.compile(r": (reading from|gave back) (\{.*\}|\[.*\])\n")


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Wait until the condition holds; an AssertionError says what did not come."""
    wait_until(condition, lambda: f"{what} did not come within {timeout_s} s", timeout_s)


@dataclass(frozen=True)
class Place:
    """Where a process runs. `prefix` must run the command behind it by exec; `env` is added to the process' own."""

    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Process(ABC):
    """One process under test. All calls may be repeated; each blocks until what it says is so."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.host = place.host
        self.prefix = place.prefix
        self.ended_by_itself: list[str] = []
        """How it ended each time that nobody had ended it, as far as `note_end` knows."""
        self._is_to_run = False

    @property
    def kind(self) -> str:
        """broker, node or worker."""
        return self.name.partition("-")[0]

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """None while it does not run."""

    @abstractmethod
    def start(self, *, ready: bool = True) -> None:
        """With `ready`, until it does what it is for: a broker answers, a worker has joined, a node has a role."""

    @abstractmethod
    def stop(self) -> None:
        """Cleanly: SIGTERM, and it must end by itself."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL; nothing if it does not run."""

    def pause(self) -> None:
        """SIGSTOP."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    @property
    def running(self) -> bool:
        return self.pid is not None

    def note_end(self) -> None:
        """Notes it if the process has ended by itself; whatever starts or ends one does that first."""
        if self._is_to_run and not self.running:
            self._is_to_run = False
            self.ended_by_itself.append(self._how_it_ended())

    def _how_it_ended(self) -> str:
        return f"{self.name} ended"

    def _send(self, number: signal.Signals) -> None:
        pid = self.pid
        assert pid is not None, f"{self.name} does not run"
        os.kill(pid, number)


class ChildProcess(Process):
    """A process of ours; its log goes on in the same file through all its lives.

    `directory` is where everything lives that it keeps: a fault may fill or damage it.
    """

    def __init__(
        self, name: str, place: Place, directory: Path, command: Sequence[str], env: Mapping[str, str]
    ) -> None:
        super().__init__(name, place)
        self.directory = directory / name / "data"
        self._log_before = 0
        self._progress_before = 0
        self._home = directory / name
        self._home.mkdir(parents=True, exist_ok=True)
        self._child = Child(name, [*place.prefix, *command], self._home / "log", {**env, **place.env})
        self.crash_points = CrashPoints(self._home)

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child.running else None

    @property
    def log_file(self) -> Path:
        return self._child.log_file

    def log(self) -> str:
        """What it has logged in all its lives."""
        return self._child.log()

    def start(self, *, ready: bool = True) -> None:
        self.note_end()
        if self.running:
            return
        before = self._progress_before = self.progress()
        self._log_before = len(self.log())
        self.directory.mkdir(parents=True, exist_ok=True)
        self._child.start()
        self._is_to_run = True
        if ready:
            wait_for(lambda: self.progress() > before or not self.running, f"{self.name}'s start")
            assert self.running, f"{self.name} ended:\n{self.log()[-LAST_CHARACTERS:]}"

    def stop(self) -> None:
        self.note_end()
        self._is_to_run = False
        if not self.running:
            return
        self._child.send_signal(signal.SIGTERM)
        self._child.resume()
        code = self._child.wait(STOP_TIMEOUT_S)
        # one that is only being started knows nothing of signals yet
        still_starting = self.progress() == self._progress_before and code == -signal.SIGTERM
        assert code == 0 or still_starting, f"{self.name} ended with {code}:\n{self.log()[-LAST_CHARACTERS:]}"

    def kill(self) -> None:
        self.note_end()
        self._is_to_run = False
        if self._child.started:
            self._child.kill()

    def wait_for_crash(self, point: str) -> None:
        """Until the process has killed itself at this point, which is armed; disarms it. Any other end is an
        AssertionError."""
        wait_for(lambda: not self.running, f"{self.name}'s end at {point!r} ({self.log_file})")
        code, reached = self._child.ended(), self.crash_points.crashed_at
        assert (code, reached) == (-signal.SIGKILL, point), (
            f"{self._how_it_ended()}, at {reached or 'no point'} instead of {point!r}:\n{self.log()[-LAST_CHARACTERS:]}"
        )
        self.crash_points.disarm()
        self._is_to_run = False

    def note_end(self) -> None:
        noted = len(self.ended_by_itself)
        super().note_end()
        for how in self.ended_by_itself[noted:]:
            log.error("%s by itself, having logged last:\n%s", how, self.log()[-LAST_CHARACTERS:])

    def _how_it_ended(self) -> str:
        return f"{self.name} ended with {self._child.ended()}"

    @abstractmethod
    def progress(self) -> int:
        """Grows when a start has come to something."""


class WorkerProcess(ChildProcess):
    """`tests.support.children.mortal_worker`: `kafka-journal worker`, which can end at named points."""

    def progress(self) -> int:
        return self.log().count("reading from")

    @property
    def shards(self) -> set[int]:
        """Those that it reads, as its log says: what one that is dead, stopped or cut off last said of itself."""
        shards: set[int] = set()
        for what, told in _SHARES.findall(self.log()[self._log_before :]):
            named = set(literal_eval(told))
            shards = shards | named if what == "reading from" else shards - named
        return shards


class NodeProcess(ChildProcess):
    """`tests.chaos.node`: a node that runs the seeded workload while it is active, and writes down what it was told."""

    def __init__(
        self, name: str, place: Place, directory: Path, command: Sequence[str], env: Mapping[str, str], history: Path
    ) -> None:
        super().__init__(name, place, directory, [*command, str(history)], env)
        self.history_file = history
        self._read = 0
        self._role = "stopped"
        self._epoch = 0
        self._acknowledged = 0
        self._fenced = 0
        self._roles = 0

    @property
    def role(self) -> str:
        """What it last wrote down of itself."""
        self._follow()
        return self._role if self.running else "stopped"

    @property
    def epoch(self) -> int:
        """The last one it was active in."""
        self._follow()
        return self._epoch

    @property
    def acknowledged(self) -> int:
        """Operations, in all its lives."""
        self._follow()
        return self._acknowledged

    @property
    def fenced(self) -> int:
        """How often it was told that it is active no more, in all its lives: `role` may be another so soon after that
        nobody sees it."""
        self._follow()
        return self._fenced

    def progress(self) -> int:
        self._follow()
        return self._roles

    def _follow(self) -> None:
        """Reads what was written since the last look; whole lines only."""
        if not self.history_file.exists():
            return
        with self.history_file.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        self._acknowledged += new.count(b'{"done":')
        self._fenced += new.count(b'{"fenced":')
        for line in new.splitlines() if b'{"role":' in new else ():
            if line.startswith(b'{"role":'):
                self._roles += 1
                change = json.loads(line)
                self._role, self._epoch = change["role"], change["epoch"] or self._epoch
