"""A journal's records as a message store writes them, told to a QueueLoader."""

from __future__ import annotations

from collections.abc import Iterable

from journal.load.loading import LoadCounts, LoadedUpdate
from journal.store.message_records import encode_message
from journal.store.model import Message, QueueConfig
from journal.store.queues.index import ReferenceIndex
from journal.store.queues.loaded import LoadedStore
from journal.store.records import encode_acknowledgement, encode_address, encode_queue, encode_reference
from journal.v1.journal_pb2 import Operation
from journal.v1.store_pb2 import ACKNOWLEDGE, ADDRESS, MESSAGE, QUEUE, REFERENCE, ROUTE, Acknowledgement, Reference
from loaders.queues import QueueLoader
from tests.support.build import update
from tests.support.queue_model import ARRIVING, LOCKED, ModelMessage, QueueModel

Record = tuple[int, int, bytes, list[LoadedUpdate]]
"""Id, kind, data and updates."""


def at(offset: int, index: int = 0, ordinal: int = 0) -> tuple[int, int, int]:
    return offset, index, ordinal


def routed(queue: int, offset: int, index: int = 0, ordinal: int = 0) -> LoadedUpdate:
    return LoadedUpdate(ROUTE, b"", False, queue, (offset, index, ordinal))


def acknowledged(queue: int, offset: int) -> LoadedUpdate:
    return LoadedUpdate(ACKNOWLEDGE, b"", False, queue, (offset, 0, 0))


def referred(queue: int, offset: int, holder: str = "", deliveries: int = 0, due: int = 0) -> LoadedUpdate:
    data = encode_reference(Reference.ACQUIRED, holder, deliveries, due)
    return LoadedUpdate(REFERENCE, data, True, queue, (offset, 0, 0))


def tell(
    records: Iterable[Record],
    *,
    prepared: Iterable[tuple[int, bytes, list[Operation]]] = (),
    bounds: tuple[int, int] = (10**6, 10**6),
    index: ReferenceIndex | None = None,
) -> LoadedStore:
    """What a loader makes of records and prepared transactions."""
    node, queue = bounds
    loader = QueueLoader(references_in_memory_max=node, queue_references_in_memory_max=queue, index=index)
    loader.begin({})
    for record_id, kind, data, updates in sorted(records, key=lambda record: record[0]):
        loader.record(record_id, kind, data, updates, (0, 0, 0))
    for tx, data, operations in prepared:
        loader.prepared(tx, data, operations)
    loader.complete(LoadCounts(0, 0, 0, 0))
    return loader.loaded


def load_of(
    model: QueueModel, arguments: tuple[int, int, ReferenceIndex | None], tx: int, unreferenced: list[int]
) -> LoadedStore:
    """A load of what a model stands for; what it has of transactions is one in doubt."""
    records: list[Record] = [(1 << 10, ADDRESS, encode_address("address", 0), [])]
    records += [
        (queue, QUEUE, encode_queue(QueueConfig(name=name, address="address")), [])
        for queue, name in model.queues.items()
    ]
    staged: list[Operation] = []
    for message in model.messages.values():
        records.append((message.id, MESSAGE, _data(message), _updates(message)))
        for each in message.references.values():
            if each.state == ARRIVING:
                staged.append(update(message.id, kind=ROUTE, subject=each.queue, tx=tx))
                scheduled = encode_reference(Reference.SCHEDULED, due=each.due)
                staged.append(update(message.id, scheduled, kind=REFERENCE, subject=each.queue, tx=tx))
            elif each.state is LOCKED:
                data = encode_acknowledgement(Acknowledgement.CONSUMED, each.holder)
                staged.append(update(message.id, data, kind=ACKNOWLEDGE, subject=each.queue, tx=tx))
    gone = ModelMessage(0, 4, 5000, 0, 0)
    records += [(message, MESSAGE, _data(gone), []) for message in unreferenced]
    node, queue_max, index = arguments
    return tell(records, prepared=[(tx, b"", staged)] if staged else [], bounds=(node, queue_max), index=index)


def _data(message: ModelMessage) -> bytes:
    """A record of the message's size (some thousands): what its fields do not take is a large one's body."""
    plain = Message("address", priority=message.priority, expires=message.expires, timestamp=message.timestamp)
    return encode_message(plain, body_bytes=message.size - len(encode_message(plain, body_bytes=5000)))


def _updates(message: ModelMessage) -> list[LoadedUpdate]:
    updates: list[LoadedUpdate] = []
    for each in message.references.values():
        if each.state != ARRIVING:
            updates.append(routed(each.queue, each.place))
            updates.append(referred(each.queue, each.place, each.holder, each.deliveries, each.due))
    return sorted(updates, key=lambda found: found.position)
