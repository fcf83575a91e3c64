"""Nodes as processes of their own, that can be told what to do, killed, stopped and continued."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.processes import command_env

DEADLINE_S = 90.0

Event = dict[str, Any]


class DrivenNode:
    """A `tests.support.node_driver`, or a driver like it. Its events are kept; `wait_for` looks at those that were not
    yet waited for."""

    def __init__(
        self,
        bootstrap: str,
        journal: str,
        directory: Path,
        name: str,
        env: Mapping[str, str],
        *,
        driver: str = "tests.support.node_driver",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.events: list[Event] = []
        self._seen = 0
        self._arrived = threading.Condition()
        self._log = directory / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", driver, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=command_env(bootstrap, journal, directory / name, env),
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._arrived:
                self.events.append(json.loads(line))
                self._arrived.notify_all()
        with self._arrived:
            self.events.append({"event": "gone", "at": time.monotonic()})
            self._arrived.notify_all()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

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
                    assert found["event"] != "gone", f"{self.name} ended; {self.told()}"
                left = until - time.monotonic()
                assert left > 0, f"{self.name}: no {event} {facts} in {timeout_s} s; {self.told()}"
                self._arrived.wait(left)

    def told(self) -> str:
        return f"its last events: {self.events[-5:]}; its log:\n{self._log.read_text(errors='replace')[-4000:]}"

    def write(self, count: int) -> set[int]:
        """Have it append; the ids, which are durable."""
        self.tell(f"write {count}")
        return set(self.wait_for("written")["ids"])

    def written(self) -> set[int]:
        """All that it has said to be durable so far."""
        with self._arrived:
            return {record_id for found in self.events if found["event"] == "written" for record_id in found["ids"]}

    def send_signal(self, number: signal.Signals) -> float:
        """When it was sent (monotonic)."""
        at = time.monotonic()
        self._process.send_signal(number)
        return at

    def kill(self) -> float:
        at = self.send_signal(signal.SIGKILL)
        self._process.wait()
        return at

    def terminate(self) -> int:
        """SIGTERM, and its exit code once it has ended."""
        self.send_signal(signal.SIGTERM)
        return self._process.wait(DEADLINE_S)

    def __enter__(self) -> DrivenNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
