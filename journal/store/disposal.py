"""`Disposal`: while a node is active, it settles messages that are dead or have expired, in a thread of its own.

    disposal = Disposal(store)      # a store that was started
    disposal.start()
    ...
    disposal.stop()                 # before the store is closed

A message that goes to another address may have to be read from the disk first, so no call of a client does this work.
A message that cannot be settled now is tried again later, and is handed out to nobody meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from journal.errors import (
    CallerError,
    DeadlineError,
    JournalError,
    LocalStorageError,
    MessageMissingError,
    OperatingError,
    QueueMissingError,
    StateError,
)
from journal.store.pending import Moved

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
"""Time between two looks."""

AT_ONCE = 100
"""The most messages of a kind that one look settles before the other kind has its turn."""


class SettlingStore(Protocol):
    """The operations of a store, or a chain of stores, that a disposal calls."""

    def dead(self, limit: int = 1000) -> list[tuple[int, str]]: ...

    def expired(self, limit: int = 1000) -> list[tuple[int, str]]: ...

    def dead_letter(self, message_id: int, queue: str) -> Moved: ...

    def expire(self, message_id: int, queue: str) -> Moved: ...


class Disposal:
    """The disposal of one activation. `start` and `stop` do not wait for anything."""

    def __init__(self, store: SettlingStore) -> None:
        self._store = store
        self._stop = threading.Event()
        self._warned: set[str] = set()
        """Queues of which it was said that their messages cannot be settled."""
        self._thread = threading.Thread(target=self._run, name="kafka-journal-disposal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Settle no more after the message that is being settled now."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended; returns whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def settle(self) -> int:
        """Settle some messages that are dead or have expired by now. Returns the number of settled ones."""
        store = self._store
        settled = sum(self._settle(store.dead_letter, *each) for each in store.dead(AT_ONCE))
        return settled + sum(self._settle(store.expire, *each) for each in store.expired(AT_ONCE))

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._try():
                    self._stop.wait(LOOK_EVERY_S)
        except JournalError as error:
            if not self._stop.is_set():
                log.warning("nothing that is dead or has expired is settled any more in this activation: %s", error)

    def _try(self) -> int:
        """`settle`, or nothing if the journal cannot do it now."""
        try:
            return self.settle()
        except OperatingError as error:
            log.info("what is dead or has expired waits: %s", error)
            return 0

    def _settle(self, act: Callable[[int, str], Moved], message_id: int, queue: str) -> bool:
        """Settle one message; returns whether it is settled. One that cannot be settled or read does not keep others
        from being settled. Raises the errors that meet all messages."""
        if self._stop.is_set():
            return False
        try:
            act(message_id, queue)
        except (MessageMissingError, QueueMissingError):
            return False  # somebody else has settled it meanwhile
        except StateError:
            raise
        except (CallerError, DeadlineError, LocalStorageError) as error:
            if queue not in self._warned:
                self._warned.add(queue)
                log.warning("what is dead or has expired in queue %s stays there: %s", queue, error)
            return False
        return True
