"""The owner in `kafka-journal node`: a message store over the journal, while this node is active."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from journal.broker.security.security import ServerSecurity
from journal.broker.server import AmqpServer
from journal.cli.operations.acting import Served
from journal.config import Settings
from journal.disk.slots import take_slot
from journal.errors import JournalError, NotActiveError
from journal.process.commands import command
from journal.sources.service import SourcesService, sources_of
from journal.store.disposal import Disposal
from journal.store.queues.rocks_index import RocksReferenceIndex
from journal.store.store import MessageStore
from journal.words import counted_are
from journal.xa.policy import InDoubtPolicy, OnInDoubt
from journal.xa.resource import XaResource
from journal.xa.watch import InDoubtWatch
from loaders.node.standing import ActiveNode
from loaders.queues import QueueLoader

log = logging.getLogger(__name__)


class StoreOwner:
    """The owner's callbacks run in the node's thread. Any thread may read `served`."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError for sources that read the journal's own topics, for a store that the limits contradict,
        and for users or certificates that cannot be read."""
        sources_of(settings)
        settings.store.require_fit(settings.limits)
        if settings.amqp.listen:
            ServerSecurity(settings.amqp)
        self._settings = settings
        self._policy = InDoubtPolicy(OnInDoubt(settings.on_in_doubt), settings.on_in_doubt_after_ms)
        self._sources: SourcesService | None = None
        self._in_doubt: InDoubtWatch | None = None
        self._disposal: Disposal | None = None
        self._amqp: AmqpServer | None = None
        self._ending = ExitStack()
        self._index: RocksReferenceIndex | None = None
        self.served: Served | None = None
        """The active store, for the control socket; None while there is none."""

    def __enter__(self) -> StoreOwner:
        """Take the local directories that the store needs. Raises LocalStorageError if that is not possible."""
        settings = self._settings
        if settings.store.swap_directory is not None:
            # a missing directory is noticed here, before an activation has fenced another node
            take_slot(settings.store.swap_directory, "swap").release()
        # a node holds one loader at a time, so they may have the same directory one after the other
        slot = take_slot(settings.journal_directory, "references")
        self._ending.callback(slot.release)
        self._directory = slot.path
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_store()
        self._close_index()
        self._ending.close()

    def loader(self) -> QueueLoader:
        """A loader that uses bounded memory and puts the rest into the directory. The loader before it must not be used
        any more."""
        self._close_index()
        self._index = RocksReferenceIndex(self._directory)
        return QueueLoader(
            references_in_memory_max=self._settings.references_in_memory_max,
            queue_references_in_memory_max=self._settings.queue_references_in_memory_max,
            index=self._index,
        )

    def on_active(self, active: ActiveNode) -> None:
        assert isinstance(active.loader, QueueLoader)
        loaded = active.loader.loaded
        store = MessageStore(active.journal, self._settings.store)
        try:
            store.start(loaded)
            resource = XaResource(store, active.journal, loaded)
            self.served = Served(store, active.journal, loaded.outcomes, resource)
            self._in_doubt = InDoubtWatch(resource, self._policy)
            self._in_doubt.start()
            self._disposal = Disposal(store)
            self._disposal.start()
            self._sources = SourcesService(self._settings, store)
            self._sources.start()
            self._serve_amqp(store)
            log.info("%s served", counted_are(len(list(store.queues())), "queue"))
        except BaseException:
            # the node gives no notice when a failed activation is over
            try:
                self._close_store()
            finally:
                store.close()
            raise

    def _serve_amqp(self, store: MessageStore) -> None:
        settings = self._settings
        if settings.amqp.listen:
            self._amqp = AmqpServer(
                store, settings.amqp, container_id=settings.node, message_bytes_max=settings.store.message_bytes_max
            )
            host, port = self._amqp.start()
            log.info("AMQP clients are served on %s://%s:%d", settings.amqp.scheme, host, port)

    def on_standby(self) -> None:
        self._close_store()

    def on_fenced(self, error: JournalError) -> None:
        if self._sources is not None:
            self._sources.stop()  # it does not wait, because the store is closed right after it
            self._sources = None
        self._close_store()

    def sources(self) -> dict[str, Any] | None:
        """The state of the sources; None while this node does not consume them."""
        sources = self._sources
        return None if sources is None else sources.status()

    def resume_source(self, source: str, *, skip: bool, operator: str) -> dict[str, Any]:
        """Let a stopped source go on; returns what is skipped. Raises InvalidOperationError."""
        sources = self._sources
        if sources is None:
            raise NotActiveError(f"this node consumes no sources now: {command('status')} names the active one")
        skipped = sources.resume(source, skip=skip)
        log.warning("%s has source %s go on%s", operator, source, f" without {skipped}" if skipped else "")
        return {"source": source, "skipped": skipped, "operator": operator}

    def _close_store(self) -> None:
        amqp, self._amqp = self._amqp, None
        if amqp is not None:
            amqp.stop("this node is no longer active")
        sources, self._sources = self._sources, None
        if sources is not None:
            sources.close()
        in_doubt, self._in_doubt = self._in_doubt, None
        if in_doubt is not None:
            in_doubt.stop()
        disposal, self._disposal = self._disposal, None
        if disposal is not None:
            disposal.stop()
        served, self.served = self.served, None
        if served is not None:
            served.store.close()

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None
