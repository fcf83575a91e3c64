"""QueueLoader rebuilds a message store's state from what a load tells, and keeps it up to date as records change
(`journal.load.loading.FollowingLoader`).

The records of a load come in order of their ids, so most addresses and queues come before their messages; later changes
come in any order. A message's updates say which of its references are live. Transactions in doubt are laid over the
state last: what they acknowledge is locked, and what they add is on its way. Loading takes as much memory as the state
needs afterwards; an index bounds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from journal.errors import RowError, StoreError
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.store.address_settings import KeptSettings
from journal.store.message_records import message_facts
from journal.store.queues.index import ReferenceIndex
from journal.store.queues.loaded import LoadedDuplicate, LoadedOutcome, LoadedPrepared, LoadedStore
from journal.store.queues.loading import LoadedReference, place_of
from journal.store.queues.state import QueueState
from journal.store.records import (
    decode_acknowledgement,
    decode_address,
    decode_address_settings,
    decode_binding,
    decode_duplicate,
    decode_queue,
    decode_reference,
)
from journal.store.settings import QUEUE_REFERENCES_IN_MEMORY_MAX, REFERENCES_IN_MEMORY_MAX
from journal.v1.journal_pb2 import ADD, UPDATE, Mark, Operation
from journal.v1.store_pb2 import (
    ACKNOWLEDGE,
    ADDRESS,
    ADDRESS_SETTINGS,
    BINDING,
    DUPLICATE,
    MESSAGE,
    OUTCOME,
    QUEUE,
    QUEUE_CHANGED,
    REFERENCE,
    ROUTE,
)
from loaders.declared import Declared


class QueueLoader:
    """Fills a `LoadedStore`; `loaded` is whole after `complete`. Every load needs a new QueueLoader.

    As a `FollowingLoader`, it does work only for what is new of a changed record. `complete` does work for queues,
    bindings, transactions in doubt and messages without references, however many messages there are.
    """

    def __init__(
        self,
        *,
        references_in_memory_max: int = REFERENCES_IN_MEMORY_MAX,
        queue_references_in_memory_max: int = QUEUE_REFERENCES_IN_MEMORY_MAX,
        index: ReferenceIndex | None = None,
    ) -> None:
        """The arguments are those of `QueueState`."""
        self._state = QueueState(
            references_in_memory_max=references_in_memory_max,
            queue_references_in_memory_max=queue_references_in_memory_max,
            index=index,
        )
        self.loaded = LoadedStore(self._state)
        self._declared = Declared(self._state)
        self._outcomes: dict[int, bytes] = {}
        self._settings: dict[int, KeptSettings] = {}
        self._kinds: dict[int, int] = {}
        """The kinds of records that are neither messages nor their chunks."""
        self._following = False

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        """Hot path: messages first."""
        if kind == MESSAGE:
            facts = message_facts(data)
            self._state.load_message(record_id, facts, living_references(updates, facts.due))
        else:
            self._other(record_id, kind, data, updates)

    def _other(self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate]) -> None:
        """Take a record that is not a message. A chunk is ignored, because its message holds all that is needed."""
        if kind == ADDRESS:
            self._declared.address(record_id, *decode_address(data))
            self._window(record_id, updates)
        elif kind == QUEUE:
            changed = next((each.data for each in updates if each.kind == QUEUE_CHANGED), data)
            self._declared.queue(record_id, decode_queue(changed))
        elif kind == BINDING:
            self._declared.binding(record_id, decode_binding(data))
        elif kind == OUTCOME:
            self._outcomes[record_id] = data
        elif kind == ADDRESS_SETTINGS:
            self._settings[record_id] = decode_address_settings(data)
        else:
            return
        self._kinds[record_id] = kind

    def _window(self, record_id: int, updates: Sequence[LoadedUpdate]) -> None:
        entered = [
            LoadedDuplicate(update.subject, decode_duplicate(update.data))
            for update in updates
            if update.kind == DUPLICATE
        ]
        if entered:
            self.loaded.windows[record_id] = entered
        else:
            self.loaded.windows.pop(record_id, None)

    # ---- following -------------------------------------------------------------------------------------------------

    def changed(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        """Take a record that has changed. Raises StateError for a queue that is back with the id of a destroyed one:
        the state must be loaded anew. Hot path: messages."""
        self._follow()
        known = self._kinds.get(record_id)
        if known is not None and known != kind:
            self.deleted(record_id)
        if kind != MESSAGE:
            if known is None:
                self._state.unload_message(record_id)
            self._other(record_id, kind, data, updates)
            return
        facts = message_facts(data)
        self._state.follow_message(record_id, facts, living_references(updates, facts.due))

    def deleted(self, record_id: int) -> None:
        """Hot path: messages."""
        self._follow()
        kind = self._kinds.pop(record_id, None)
        if kind is None:
            self._state.unload_message(record_id)
        elif kind == ADDRESS:
            self._declared.forget_address(record_id)
            self.loaded.windows.pop(record_id, None)
        elif kind == QUEUE:
            self._declared.forget_queue(record_id)
        elif kind == BINDING:
            self._declared.forget_binding(record_id)
        elif kind == ADDRESS_SETTINGS:
            del self._settings[record_id]
        else:
            del self._outcomes[record_id]

    def _follow(self) -> None:
        if not self._following:
            self._following = True
            self._state.sort_lines()

    # ---- everything was told ---------------------------------------------------------------------------------------

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.loaded.prepared.append(LoadedPrepared(tx, data, operations))

    def complete(self, counts: LoadCounts) -> None:
        """Complete the state. Raises RowError for addresses, queues and transactions that do not fit each other."""
        try:
            self._declared.complete()
        except StoreError as error:
            raise RowError(f"addresses and queues do not fit each other: {error}") from error
        for prepared in self.loaded.prepared:
            try:
                self._lay_over(prepared)
            except StoreError as error:
                raise RowError(f"transaction {prepared.tx} in doubt does not fit the queues: {error}") from error
        self._collect(self._state.load_complete())
        self.loaded.orphans += [(record_id,) for record_id in self._declared.bind()]
        self.loaded.address_settings += sorted(self._settings.items())
        self.loaded.outcomes += [LoadedOutcome(*outcome) for outcome in sorted(self._outcomes.items())]

    def _collect(self, messages: Iterable[int]) -> None:
        """Note the messages without a reference, and their chunks, as orphans. The state then forgets the messages."""
        loaded, state = self.loaded, self._state
        for message_id in messages:
            loaded.orphans.append((message_id, *state.message(message_id).chunks))
            loaded.orphaned_messages += 1
            state.forget(message_id)

    # ---- transactions in doubt -------------------------------------------------------------------------------------

    def _lay_over(self, prepared: LoadedPrepared) -> None:
        """Lay a transaction in doubt over the state: it adds messages, routes references, and locks what it
        acknowledges."""
        state = self._state
        rescheduled = {
            (op.id, op.subject): decode_reference(op.data).due
            for op in prepared.operations
            if op.type == UPDATE and op.kind == REFERENCE
        }
        for op in prepared.operations:
            if op.type == ADD and op.kind == MESSAGE:
                state.load_unrouted(op.id, message_facts(op.data))
            elif op.type == UPDATE and op.kind == ROUTE and state.has_queue(op.subject):
                due = rescheduled.get((op.id, op.subject), state.message(op.id).due)
                state.route(op.id, op.subject, due=due, tx=prepared.tx)
            elif op.type == UPDATE and op.kind == ACKNOWLEDGE and state.has_queue(op.subject):
                _, holder = decode_acknowledgement(op.data)
                state.lock(op.id, op.subject, prepared.tx, holder)


def living_references(updates: Sequence[LoadedUpdate], due: int) -> list[LoadedReference]:
    """The references of a message that its updates, in their order, leave; `due` is the message's own.

    A reference that was acknowledged may be routed again, which begins a new one. Hot path: one route and nothing else.
    """
    if len(updates) == 1 and updates[0].kind == ROUTE:
        _, _, _, queue, position = updates[0]
        return [LoadedReference(queue, place_of(position), "", 0, due)]
    living: dict[int, LoadedReference] = {}
    for kind, data, _, queue, position in updates:
        if kind == ROUTE:
            living[queue] = LoadedReference(queue, place_of(position), "", 0, due)
        elif kind == ACKNOWLEDGE:
            living.pop(queue, None)
        elif kind == REFERENCE and queue in living:
            holder, deliveries, rescheduled = decode_reference(data)
            living[queue] = LoadedReference(queue, living[queue].place, holder, deliveries, rescheduled)
    return list(living.values())
