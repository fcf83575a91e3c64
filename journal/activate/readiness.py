"""Readiness: a standby connects its clients and checks its journal's topics before it activates, so that the activation
need not.

No answer that decides anything is kept here: an activation asks itself who is active, what the epoch is, and where the
WAL ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing

from journal.activate.connected_clients import AheadClients
from journal.errors import JournalError, TopicError
from journal.kafka.ports import Kafka
from journal.settings import JournalSettings
from journal.topics.made_and_checked import check_journal
from journal.v1.journal_pb2 import Identity

log = logging.getLogger(__name__)

_EVERY_S = 2.0
"""How often connections are used, so that brokers do not close them."""
_LOOK_S = 0.2
"""How often the thread checks whether a client was taken. The interval is short, because the next activation may come
soon."""
_CONNECT_S = 2.0
_CHECK_EVERY_S = 60.0
_CHECK_COUNTS_S = 180.0
_END_S = 5.0


class Readiness:
    """Keeps the owner of one copy of the tables ready to activate. It has a thread of its own from `start` to
    `close`."""

    def __init__(self, kafka: Kafka, settings: JournalSettings, identity: Callable[[], Identity]) -> None:
        """`identity` gives the journal's identity, or raises a JournalError while it is not known."""
        self._kafka = kafka
        self._settings = settings
        self._identity = identity
        self.clients = AheadClients(kafka, settings.journal, lambda: range(identity().shards), time.monotonic)
        """The clients that activations take."""
        self._checked: tuple[Identity, float] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def note_check(self) -> None:
        """Note that the journal's topics were just checked and have no fault."""
        self._checked = self._identity(), time.monotonic()

    @property
    def checked(self) -> bool:
        """Whether the last check of the topics found no fault, and was a short time ago."""
        if self._checked is None:
            return False
        identity, at = self._checked
        return identity == self._identity() and time.monotonic() - at < _CHECK_COUNTS_S

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="kafka-journal-ready", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the clients that nobody took. A broker that does not answer is not waited for."""
        self._stop.set()
        self.clients.close()
        if self._thread is not None:
            self._thread.join(_END_S)

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        check_at = time.monotonic() + _CHECK_EVERY_S
        keep_at, was_whole = 0.0, False
        while not self._stop.is_set():
            try:
                if time.monotonic() >= keep_at or (was_whole and self.clients.lacks_some):
                    was_whole = False
                    try:
                        self.clients.keep(_CONNECT_S)
                    finally:
                        keep_at = time.monotonic() + _EVERY_S
                    was_whole = not self.clients.lacks_some
                if time.monotonic() >= check_at:
                    check_at = time.monotonic() + _CHECK_EVERY_S
                    self._check()
            except JournalError as error:
                log.debug("this node is not ready to activate at once: %s", error)
            self._stop.wait(_LOOK_S)

    def _check(self) -> None:
        identity, began = self._identity(), time.monotonic()
        try:
            with closing(self._kafka.cluster()) as cluster:
                check_journal(cluster, self._settings, identity, self._settings.request_timeout_ms / 1000)
        except TopicError as error:
            self._checked = None
            log.warning("this node could not activate: %s", error)
        else:
            self._checked = identity, began
