"""The demo's child processes. Each is started with a log, its memory is watched, and it is ended whatever happens."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from journal.errors import DeadlineError, DemoError

SAMPLE_S = 0.1
STOP_S = 20.0
SILENCE_S = 300.0
_LOOK_S = 0.5

Event = dict[str, Any]
"""One line that a node prints; `event` is its name."""


class Child:
    """A child process in a session of its own, so that Ctrl-C reaches the demo alone, which ends the child in order.

    Its standard output is read as events; standard error goes to `log`.
    """

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        # the arguments name the settings file; variables of the environment must not change them
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_JOURNAL_")}
        environment["XDG_CACHE_HOME"] = str(log.parent / "cache")
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"events of {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def events(self, look: Callable[[], None]) -> Iterator[Event]:
        """The child's events until its end; `look` is called while there are none. Raises DeadlineError."""
        silence = 0
        while True:
            try:
                event = self._events.get(timeout=_LOOK_S)
            except queue.Empty:
                look()
                silence += 1
                if silence * _LOOK_S >= SILENCE_S:
                    raise DeadlineError(f"{self.name} told nothing for {SILENCE_S:g} s; its log: {self.log}") from None
                continue
            if event is None:
                return
            silence = 0
            yield event

    def require_alive(self) -> None:
        """Raises DemoError if the child has ended by itself."""
        if self._process.poll() is not None:
            raise self.ended()

    def require_success(self) -> None:
        """Wait for the child's end. Raises DemoError if it failed."""
        if self._process.wait(STOP_S) != 0:
            raise self.ended()

    def kill(self) -> None:
        """Kill the child with SIGKILL, and wait until it has ended."""
        self.require_alive()
        self._process.kill()
        self._process.wait()

    def stop(self, *, at_once: bool = False) -> None:
        """Send SIGTERM, and SIGKILL if that does not help, or `at_once`."""
        if self._process.poll() is None:
            self._process.kill() if at_once else self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it was asked for"
        for line in self._process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def ended(self) -> DemoError:
        """The error for a child that has ended too early; this waits for its end."""
        self._process.wait(STOP_S)
        return DemoError(f"{self.name} ended with exit code {self._process.returncode}; its log: {self.log}")


class Processes:
    """All children of one demo, and the most memory that each was seen to use."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []
        self._watched: dict[str, psutil.Process] = {}
        self._peaks: dict[str, int] = {}
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="memory", daemon=True)

    def start(self, name: str, arguments: Sequence[str]) -> Child:
        """Run this Python with `arguments`."""
        child = Child(name, arguments, self._logs / f"{name.replace(' ', '-')}.log")
        self._children.append(child)
        self.watch(name, child.pid)
        return child

    def watch(self, name: str, pid: int) -> None:
        """Also watch the memory of another process."""
        self._watched[name] = psutil.Process(pid)

    def peaks(self) -> dict[str, int]:
        """The most resident memory in bytes, by name."""
        return dict(self._peaks)

    def __enter__(self) -> Self:
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._children):
            child.stop(at_once=error is not None)
        self._stopping.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            for name, process in list(self._watched.items()):
                try:
                    self._peaks[name] = max(self._peaks.get(name, 0), process.memory_info().rss)
                except psutil.NoSuchProcess:
                    del self._watched[name]
