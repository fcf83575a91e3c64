"""A scripted node: it stands by for a while, activates, and serves until it is closed, fenced, or killed."""

from __future__ import annotations

from journal.errors import CorruptionError, FencedError, JournalError, OperatingError
from tests.simulation.node_copy import NodeCopy
from tests.simulation.node_journal import NodeJournal
from tests.simulation.node_process import NodeProcess
from tests.simulation.setting import REQUEST_S

_TRIES = 4


class Node(NodeProcess):
    """One that takes over whoever is active: what an operator's command may make of any process."""

    _journal: NodeJournal | None = None

    def close(self) -> None:
        self.stop.set()
        if self._journal is not None:
            self._journal.begin_close()

    def main(self) -> None:
        try:
            copy = self.open_copy()
        except (OperatingError, CorruptionError) as error:
            self.require_outside(error)
            return
        journal = self._journal = NodeJournal(self, copy)
        journal.start()
        if not self._stand_by(copy) or not self._activate(journal):
            return
        self.scheduler.spawn(self.process, copy.run)
        journal.serve()
        while not journal.is_written:
            self.scheduler.wait(REQUEST_S, lambda: journal.is_written)
        journal.close()
        copy.close()

    def _stand_by(self, copy: NodeCopy) -> bool:
        """Some nodes follow for a while before they activate; False if that comes to an end."""
        if self.chance.random() < 0.5:
            return True
        until = self.scheduler.now() + self.chance.choice((0.05, 0.3, 1.0))
        while self.scheduler.now() < until:
            try:
                copy.turn()
            except (OperatingError, CorruptionError) as error:
                copy.suspect(error)
        return not self.stop.is_set()

    def _activate(self, journal: NodeJournal) -> bool:
        for _ in range(_TRIES):
            try:
                journal.activate()
            except FencedError:
                return False
            except JournalError:
                if self.stop.is_set():
                    return False
            else:
                return True
        return False
