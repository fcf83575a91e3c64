"""Nodes as processes: one writes down what it submits and what it is told, one does what it is told and says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support.node_history import Activation, parse_history
from tests.support.processes.child import DEADLINE_S, Child, program
from tests.support.processes.command import command_env


class NodeProcess(Child):
    """A `tests.support.children.node` on the journal of its environment. All that it keeps is under `directory`."""

    def __init__(
        self,
        bootstrap: str,
        journal: str,
        directory: Path,
        seed: int,
        *,
        operations: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("the node", (), directory / "node.log", command_env(bootstrap, journal, directory, env))
        self.history_file = directory / "node.history"
        self._arguments = seed, operations

    def start(self) -> Self:
        """Start it, or start it again; it goes on in the same history."""
        self.history_file.parent.mkdir(parents=True, exist_ok=True)
        self._command = program("node", self.history_file, *self._arguments)
        return super().start()

    def history(self) -> str:
        """What it has written down so far."""
        return self.history_file.read_text() if self.history_file.exists() else ""

    def activations(self) -> list[Activation]:
        return parse_history(self.history())

    def written(self) -> int:
        """The length of its history so far, in bytes."""
        return self.history_file.stat().st_size if self.history_file.exists() else 0

    def wait_for_lines(self, text: str, *, count: int = 1, after: int = 0, timeout_s: float = DEADLINE_S) -> None:
        """Wait until so many lines of its history begin with `text`, of those behind the first `after` bytes."""
        found, place = 0, after

        def are_there() -> bool:
            nonlocal found, place
            for line in self._lines(place):
                place += len(line)
                found += line.startswith(text.encode())
            return found >= count

        self.wait_until(are_there, f"{count} lines {text!r}", timeout_s)

    def wait_for_more(self, text: str, count: int) -> None:
        """Wait until so many more lines of its history begin with `text`."""
        self.wait_for_lines(text, count=count, after=self.written())

    def _lines(self, place: int) -> list[bytes]:
        """The whole lines behind the first `place` bytes."""
        if self.written() <= place:
            return []
        with self.history_file.open("rb") as history:
            history.seek(place)
            return [line for line in history if line.endswith(b"\n")]

    def wait_until_active(self) -> Self:
        """Wait for the first activation of a node that was started once."""
        self.wait_for_lines('{"active":')
        return self


class DrivenNode(Child):
    """A node that does what it is told: a `tests.support.children.driven_node`, or another program like it."""

    def __init__(
        self,
        bootstrap: str,
        journal: str,
        directory: Path,
        name: str,
        env: Mapping[str, str],
        *,
        driver: str = "driven_node",
    ) -> None:
        its = command_env(bootstrap, journal, directory / name, env)
        super().__init__(name, program(driver, name), directory / f"{name}.log", its, listens=True)
        self.start()

    def write(self, count: int) -> set[int]:
        """Have it append records; their ids, once they are durable."""
        self.tell(f"write {count}")
        return set(self.wait_for("written")["ids"])

    def written(self) -> set[int]:
        """Ids of all records that it has said to be durable so far."""
        return {record_id for found in list(self.events) if found["event"] == "written" for record_id in found["ids"]}
