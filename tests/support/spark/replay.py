"""What a replay is given, in a file for a process of its own; a journal whose node ends once something is in doubt."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from journal.append.appends import Appends, Records
from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.operations import PlainOperation
from loaders.replay_state import ReplaySource, Selected


class UntilInDoubt(Appends):
    """Calls `end` as soon as a PREPARE is committed, before anything else can be appended."""

    def __init__(self, journal: Appends, end: Callable[[], None]) -> None:
        self._journal = journal
        self._end = end

    def require_core(self) -> Core:
        return self._journal.require_core()

    def require_lookup(self) -> Records:
        return self._journal.require_lookup()

    def prepare(self, tx: int, data: bytes = b"", *, then: Sequence[PlainOperation] = ()) -> Completion:
        completion = super().prepare(tx, data, then=then)
        completion.wait()
        self._end()
        return completion


def write_replay(path: Path, source: ReplaySource, operations: Iterable[Selected]) -> None:
    """All that a replay is of, read once: whoever replays it needs no Spark."""
    path.write_bytes(pickle.dumps((source, [tuple(each) for each in operations])))


def read_replay(path: Path) -> tuple[ReplaySource, list[Selected]]:
    source, operations = pickle.loads(path.read_bytes())
    return source, [Selected(*each) for each in operations]
