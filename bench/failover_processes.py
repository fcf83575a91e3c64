"""Nodes and plain consumers as processes of their own, which take commands and can be killed.

Their reports have times of this machine's clock, which all of them share.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from bench.scene import RUN_TIMEOUT_S, TIMEOUT_S
from journal.config import Settings
from journal.errors import DeadlineError
from loaders.node.roles import Role

OPERATIONS_A_MESSAGE = 4
"""Operations of the journal for one message: add, route, acknowledge, delete."""

Event = dict[str, Any]

_LOOK_S = 0.05
_LOG_BYTES = 4000

_told = threading.Lock()


def tell(event: str, **facts: Any) -> float:
    """Writes an event with the present time to standard output."""
    at = time.time()
    with _told:
        print(json.dumps({"event": event, "at": at, **facts}), flush=True)
    return at


class Told:
    """A process that obeys its standard input and writes events as JSON lines. It is ended when the context ends."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        self.events: list[Event] = []
        self._arrived = threading.Condition()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | environment,
            )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._arrived:
                self._take(json.loads(line))
                self._arrived.notify_all()
        with self._arrived:
            self._take({"event": "gone", "at": time.time()})
            self._arrived.notify_all()

    def _take(self, event: Event) -> None:
        self.events.append(event)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def wait(self, ready: Callable[[], bool], what: str, timeout_s: float = RUN_TIMEOUT_S) -> None:
        """Waits until the process's events make `ready` true. Raises DeadlineError, also if the process ends or fails
        before."""
        with self._arrived:
            self._arrived.wait_for(lambda: ready() or self._has("gone", 0.0) or self._has("failed", 0.0), timeout_s)
            if not ready():
                log = self._log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
                raise DeadlineError(f"no {what} from pid {self.pid}: its last events {self.events[-5:]}; {log}")

    def _has(self, event: str, after: float) -> bool:
        return any(found["event"] == event and found["at"] >= after for found in reversed(self.events))

    def next(self, event: str, after: float) -> Event:
        """Returns the process's first event of this name at or after the time `after`."""
        self.wait(lambda: self._has(event, after), event)
        return next(found for found in self.events if found["event"] == event and found["at"] >= after)

    def kill(self) -> float:
        """Sends SIGKILL; returns the time."""
        at = time.time()
        self._process.kill()
        self._process.wait()
        return at

    def terminate(self) -> float:
        """Sends SIGTERM without waiting for the end; returns the time."""
        at = time.time()
        self._process.send_signal(signal.SIGTERM)
        return at

    def ended(self) -> None:
        """Waits until it has ended."""
        self._process.wait(TIMEOUT_S)

    def __enter__(self) -> Told:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class NodeProcess(Told):
    """A process of `bench.failover_node`."""

    def __init__(self, settings: Settings, name: str, *flags: str) -> None:
        directory = settings.journal_directory / name
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.name = name
        self.flags = flags
        self.acknowledged: list[float] = []
        """Times at which messages of this node's load were acknowledged, in order."""
        self._role = Role.STARTING.value
        self._fit = False
        super().__init__(
            ["bench.failover_node", name, *flags], _environment(settings, directory), directory.with_suffix(".log")
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        # A worker whose node was killed gives its shards back before it ends, and writes until then.
        for lock in self._directory.rglob("worker-*.lock"):
            with lock.open() as held:
                fcntl.flock(held, fcntl.LOCK_EX)

    def kill(self) -> float:
        """Sends SIGKILL to the node and its worker, as if their machine had died; returns the time."""
        workers = psutil.Process(self.pid).children()
        at = time.time()
        for each in (*workers, self._process):
            each.kill()
        self._process.wait()
        return at

    def _take(self, event: Event) -> None:
        if event["event"] == "acknowledged":
            self.acknowledged += event["times"]
            return
        if event["event"] == "role":
            self._role, self._fit = event["role"], event["fit"]
        super()._take(event)

    def wait_fit(self) -> None:
        """Waits until the node is a standby that can take over."""
        self.wait(lambda: self._role == Role.STANDBY.value and self._fit, "fitness")

    def wait_served(self, after: float, for_s: float) -> float:
        """Waits until the node has acknowledged messages of its load at or after the time `after`, and again at least
        `for_s` seconds later. Returns the time of the first of these acknowledgements."""
        times = self.acknowledged

        def served() -> bool:
            first = bisect_left(times, after)
            return first < len(times) and times[-1] >= times[first] + for_s

        self.wait(served, "acknowledgement")
        return times[bisect_left(times, after)]


def _environment(settings: Settings, directory: Path) -> dict[str, str]:
    """Returns the environment variables of a process with a directory of its own: all settings that differ from the
    defaults."""
    given = settings.model_dump(mode="json", include=settings.model_fields_set - {"node", "directory"})
    return {f"KAFKA_JOURNAL_{name.upper()}": str(value) for name, value in given.items()} | {
        "KAFKA_JOURNAL_DIRECTORY": str(directory)
    }


def wait_for_members(bootstrap: str, group: str, members: int) -> None:
    """Waits until a group is stable and has this number of members."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        found = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result(TIMEOUT_S)
        if found.state is ConsumerGroupState.STABLE and len(found.members) == members:
            return
        time.sleep(_LOOK_S)
    raise DeadlineError(f"group {group} has not come to rest with {members} members in {TIMEOUT_S:g} s")
