"""QueueLoader: a message store's state, rebuilt from what a load tells (`journal.loading.Loader`).

Records come in order of ids, so addresses and queues mostly before their messages; a message's updates say which of its
references live. Transactions in doubt are laid over the state last: what they acknowledge is locked, what they add is
on its way. Memory while loading is that of the state afterwards; with an index that is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from journal.errors import RowError, StoreError
from journal.loading import LoadCounts, LoadedUpdate
from journal.store.loaded import LoadedDuplicate, LoadedOutcome, LoadedPrepared, LoadedStore
from journal.store.queue_loading import LoadedReference, place_of
from journal.store.queue_state import QueueState
from journal.store.records import (
    MessageFacts,
    decode_acknowledgement,
    decode_address,
    decode_binding,
    decode_duplicate,
    decode_queue,
    decode_reference,
    message_facts,
)
from journal.store.references import ReferenceIndex
from journal.v1.journal_pb2 import ADD, UPDATE, Mark, Operation
from journal.v1.store_pb2 import (
    ACKNOWLEDGE,
    ADDRESS,
    BINDING,
    DUPLICATE,
    MESSAGE,
    OUTCOME,
    QUEUE,
    REFERENCE,
    ROUTE,
)


class QueueLoader:
    """Fills a `LoadedStore`; `loaded` is whole after `complete`. A new one for every load."""

    def __init__(
        self,
        *,
        references_in_memory_max: int,
        queue_references_in_memory_max: int,
        index: ReferenceIndex | None = None,
    ) -> None:
        """As `QueueState`."""
        self._state = QueueState(
            references_in_memory_max=references_in_memory_max,
            queue_references_in_memory_max=queue_references_in_memory_max,
            index=index,
        )
        self.loaded = LoadedStore(self._state)
        self._address_ids: dict[str, int] = {}
        self._bindings: list[tuple[int, int, str, str]] = []

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        """Hot path: messages first."""
        if kind == MESSAGE:
            self._message(record_id, message_facts(data), updates)
        elif kind == ADDRESS:
            self._address(record_id, data, updates)
        elif kind == QUEUE:
            self._state.add_queue(record_id, decode_queue(data))
        elif kind == BINDING:
            self._bindings.append((record_id, *decode_binding(data)))
        elif kind == OUTCOME:
            self.loaded.outcomes.append(LoadedOutcome(record_id, data))

    def _address(self, record_id: int, data: bytes, updates: Sequence[LoadedUpdate]) -> None:
        name, window = decode_address(data)
        self._state.add_address(record_id, name, window)
        self._address_ids[name] = record_id
        entered = [
            LoadedDuplicate(update.subject, decode_duplicate(update.data))
            for update in updates
            if update.kind == DUPLICATE
        ]
        if entered:
            self.loaded.windows[record_id] = entered

    def _message(self, record_id: int, facts: MessageFacts, updates: Sequence[LoadedUpdate]) -> None:
        if len(updates) == 1 and updates[0].kind == ROUTE:
            _, _, _, queue, position = updates[0]
            references = [LoadedReference(queue, place_of(position), "", 0, facts.due)]
        else:
            references = living_references(updates, facts.due)
        if facts.due:
            self.loaded.due[record_id] = facts.due
        self._state.load_message(
            record_id,
            self._address_ids.get(facts.address, 0),
            priority=facts.priority,
            size=facts.size,
            expires=facts.expires,
            timestamp=facts.timestamp,
            chunks=facts.chunks,
            references=references,
        )

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.loaded.prepared.append(LoadedPrepared(tx, data, operations))

    def complete(self, counts: LoadCounts) -> None:
        for prepared in self.loaded.prepared:
            try:
                self._lay_over(prepared)
            except StoreError as error:
                raise RowError(f"transaction {prepared.tx} in doubt does not fit the queues: {error}") from error
        self._collect(self._state.load_complete())
        for record_id, queue_id, key, filter in self._bindings:
            if self._state.has_queue(queue_id):
                self._state.add_binding(record_id, queue_id, key, filter)
            else:
                self.loaded.orphans.append((record_id,))
        self._bindings.clear()

    def _collect(self, messages: Iterable[int]) -> None:
        """Note messages that nothing refers to, with their chunks, and forget them."""
        loaded, state = self.loaded, self._state
        for message_id in messages:
            loaded.orphans.append((message_id, *state.message(message_id).chunks))
            loaded.orphaned_messages += 1
            loaded.due.pop(message_id, None)
            state.forget(message_id)

    # ---- transactions in doubt -------------------------------------------------------------------------------------

    def _lay_over(self, prepared: LoadedPrepared) -> None:
        """What a transaction in doubt stores is known, what it routes arrives, what it acknowledges is locked."""
        state, due = self._state, self.loaded.due
        rescheduled = {
            (op.id, op.subject): decode_reference(op.data).due
            for op in prepared.operations
            if op.type == UPDATE and op.kind == REFERENCE
        }
        for op in prepared.operations:
            if op.type == ADD and op.kind == MESSAGE:
                self._store(op.id, message_facts(op.data))
            elif op.type == UPDATE and op.kind == ROUTE and state.has_queue(op.subject):
                own = rescheduled.get((op.id, op.subject), due.get(op.id, 0))
                state.route(op.id, op.subject, due=own, tx=prepared.tx)
            elif op.type == UPDATE and op.kind == ACKNOWLEDGE and state.has_queue(op.subject):
                _, holder = decode_acknowledgement(op.data)
                state.lock(op.id, op.subject, prepared.tx, holder)

    def _store(self, message_id: int, facts: MessageFacts) -> None:
        if facts.due:
            self.loaded.due[message_id] = facts.due
        self._state.store(
            message_id,
            self._address_ids.get(facts.address, 0),
            priority=facts.priority,
            size=facts.size,
            expires=facts.expires,
            timestamp=facts.timestamp,
            chunks=facts.chunks,
        )


def living_references(updates: Iterable[LoadedUpdate], due: int) -> list[LoadedReference]:
    """What a message's updates, in order, leave of its references; `due` is the message's own.

    An acknowledged reference may be routed again: that begins a new one.
    """
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
