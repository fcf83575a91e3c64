"""One process under test, in as many lives as it is given: started, told, listened to, stopped and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.support.processes.forked import ForkedCommand
from tests.support.waiting import wait_until

DEADLINE_S = 90.0
LAST_CHARACTERS = 4000
_LOOK_EVERY_S = 0.005
_NOTHING = Path(os.devnull)

Event = dict[str, Any]


def program(name: str, *arguments: object) -> list[str]:
    """The command of a program of `tests.support.children`."""
    return [sys.executable, "-m", "tests.support.children", name, *map(str, arguments)]


class Child:
    """A process that does not outlive a `with`. Its log goes on in one file through all its lives.

    With `listens` its standard output is JSON lines, which are kept as `events`; otherwise that goes to the log too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[object],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        listens: bool = False,
        own_session: bool = False,
    ) -> None:
        self.name = name
        self.log_file = log
        self.events: list[Event] = []
        self._command = [str(each) for each in command]
        self._env = env
        self._listens = listens
        self._own_session = own_session
        self._process: subprocess.Popen[str] | ForkedCommand | None = None
        self._seen = 0
        self._arrived = threading.Condition()

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, or start it again."""
        assert not self.running, "it runs already"
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if self._listens else log,
                stderr=log,
                text=True,
                env=self._env,
                start_new_session=self._own_session,
            )
        if self._listens:
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return self

    def start_forked(self, arguments: Sequence[str]) -> Self:
        """Start it as `kafka-journal` with these arguments, forked from a process that has imported it."""
        assert not self.running, "it runs already"
        assert self._env is not None
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self.log_file.touch()
        self._process = ForkedCommand(arguments, self._env, [_NOTHING, self.log_file, self.log_file])
        return self

    @property
    def process(self) -> subprocess.Popen[str] | ForkedCommand:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ended(self) -> int | None:
        """Its exit code; None while it runs, and before it was started."""
        return None if self._process is None else self._process.poll()

    def send_signal(self, number: signal.Signals) -> float:
        """The time (monotonic) at which it was sent; one that has ended gets none."""
        at = time.monotonic()
        self.process.send_signal(number)
        return at

    def pause(self) -> None:
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def kill(self) -> float:
        """The time (monotonic) of its SIGKILL."""
        at = self.send_signal(signal.SIGKILL)
        self.wait()
        return at

    def terminate(self) -> int:
        """SIGTERM, and its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Its exit code, once it has ended. Raises subprocess.TimeoutExpired."""
        return self.process.wait(timeout_s)

    def stop(self) -> None:
        """Close its standard input, which lets it end; it must end well."""
        assert isinstance(self.process, subprocess.Popen)
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.wait() == 0, self.told()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()

    # ---- what it says, and is told ---------------------------------------------------------------------------------

    def tell(self, line: str) -> None:
        """A line on its standard input; nothing to one that has just ended."""
        assert isinstance(self.process, subprocess.Popen)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def log(self) -> str:
        """What it has logged in all its lives."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def told(self) -> str:
        """What it said last, for whoever reads why a test failed."""
        return f"{self.name}: its last events: {self.events[-5:]}; its log:\n{self.log()[-LAST_CHARACTERS:]}"

    def wait_until(self, holds: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
        """Wait for a condition, while the process runs."""

        def looked() -> object:
            there = holds()
            assert there or self.running, f"no {what}: the process ended; {self.told()}"
            return there

        wait_until(looked, lambda: f"no {what}; {self.told()}", timeout_s, look_s=_LOOK_EVERY_S)

    def wait_for_log(self, text: str, *, after: int = 0, timeout_s: float = DEADLINE_S) -> None:
        """Wait until `text` is in its log behind character `after`."""
        self.wait_until(lambda: text in self.log()[after:], repr(text), timeout_s)

    def wait_for(self, event: str, timeout_s: float = DEADLINE_S, **facts: Any) -> Event:
        """The next event of that kind with these facts; those before it are passed over."""
        until = time.monotonic() + timeout_s
        with self._arrived:
            while True:
                while self._seen < len(self.events):
                    found = self.events[self._seen]
                    self._seen += 1
                    if found["event"] == event and facts.items() <= found.items():
                        return found
                    assert found["event"] != "gone", f"the process ended; {self.told()}"
                left = until - time.monotonic()
                assert left > 0, f"no {event} {facts} in {timeout_s} s; {self.told()}"
                self._arrived.wait(left)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._note(json.loads(line))
        self._note({"event": "gone", "at": time.monotonic()})

    def _note(self, event: Event) -> None:
        with self._arrived:
            self.events.append(event)
            self._arrived.notify_all()
