"""Restores transactions in doubt and duplicate windows from the result of a load.

The loaded state already has the references of a prepared transaction: arriving, or locked for their acknowledgement.
This module reads the transaction's operations, to know the effects of its commit or rollback. It locks the references
that the transaction changes, and removes the things that it destroys from the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from journal.errors import RowError, StoreError
from journal.store.declared import AddressDeclared, BindingDeclared, QueueDeclared, destroyed, lay_out, queue_name
from journal.store.duplicates import DuplicateWindow, Reservation
from journal.store.queues.entry import AddressEntry, BindingEntry
from journal.store.queues.loaded import LoadedPrepared, LoadedStore
from journal.store.queues.state import QueueState
from journal.store.records import (
    decode_acknowledgement,
    decode_address,
    decode_binding,
    decode_duplicate,
    decode_queue,
    decode_reference,
)
from journal.store.transactions import Changed, StoreTransaction, Taken
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Operation
from journal.v1.store_pb2 import ACKNOWLEDGE, ADDRESS, BINDING, DUPLICATE, MESSAGE, QUEUE, REFERENCE, ROUTE


def restore_transactions(loaded: LoadedStore, bodies_bytes_max: int) -> dict[int, StoreTransaction]:
    """The prepared transactions by number. In the loaded state, the references that they change are locked, and the
    things that they destroy are removed."""
    return {prepared.tx: _restored(loaded.state, prepared, bodies_bytes_max) for prepared in loaded.prepared}


def _restored(state: QueueState, prepared: LoadedPrepared, bodies_bytes_max: int) -> StoreTransaction:
    txn = StoreTransaction(prepared.tx, 0, data=prepared.data, prepared=True)
    changes: dict[tuple[int, int], Changed] = {}
    for op in prepared.operations:
        if op.type == ADD and op.kind == MESSAGE:
            txn.stored[op.id] = True
            txn.keep_body(op.id, op.data, bodies_bytes_max)
        elif op.type == UPDATE and op.kind == ROUTE:
            txn.route(op.id, op.subject, durable=True)
        elif op.type == UPDATE and op.kind == ACKNOWLEDGE:
            reason, holder = decode_acknowledgement(op.data)
            txn.take([Taken(op.id, op.subject, holder, True, reason)])
        elif op.type == UPDATE and op.kind == DUPLICATE:
            txn.reservations.append(Reservation(op.id, op.subject, decode_duplicate(op.data)))
        elif op.type == UPDATE and op.kind == REFERENCE:
            changes[op.id, op.subject] = Changed(*decode_reference(op.data), True)
    _restore_changes(state, txn, changes)
    _restore_declared(state, txn, prepared.operations)
    return txn


def _restore_changes(state: QueueState, txn: StoreTransaction, changes: Mapping[tuple[int, int], Changed]) -> None:
    """Restore the changes of references that existed before the transaction. A change of a reference that the
    transaction itself routes is a part of its route."""
    routed = {(item.message, item.queue) for item in txn.routed}
    taken = {(item.message, item.queue) for item in txn.taken}
    for key, changed in changes.items():
        if key in routed:
            continue
        txn.change(key, changed._replace(acknowledged=key in taken))
        if key in taken:
            continue
        try:
            state.lock(*key, txn.tx, state.reference(*key).holder)
        except StoreError as error:
            raise RowError(f"transaction {txn.tx} in doubt does not fit the queues: {error}") from error


def _restore_declared(state: QueueState, txn: StoreTransaction, operations: Sequence[Operation]) -> None:
    declared, names = txn.declared, {}
    for op in operations:
        if op.type == ADD and op.kind == ADDRESS:
            declared.add(AddressDeclared(True, op.id, *decode_address(op.data)))
        elif op.type == ADD and op.kind == QUEUE:
            config = decode_queue(op.data)
            names[op.id] = config.name
            declared.add(QueueDeclared(True, op.id, config))
        elif op.type == ADD and op.kind == BINDING:
            bound = BindingEntry(op.id, *decode_binding(op.data))
            name = names.get(bound.queue_id) or queue_name(state, bound.queue_id)
            declared.add(BindingDeclared(True, bound, name, True))
    going = [op.id for op in operations if op.type == DELETE]
    if going:
        for each in destroyed(state, going):
            declared.add(each)
        lay_out(state, declared)


def restore_windows(
    loaded: LoadedStore, addresses: Sequence[AddressEntry], transactions: Mapping[int, StoreTransaction]
) -> dict[int, DuplicateWindow]:
    """Duplicate windows by the record id of their address, with the ids that prepared transactions reserve."""
    windows: dict[int, DuplicateWindow] = {}
    reserved: dict[int, list[tuple[int, bytes, int]]] = {}
    for txn in transactions.values():
        for address, slot, duplicate_id in txn.reservations:
            reserved.setdefault(address, []).append((slot, duplicate_id, txn.tx))
    for entry in addresses:
        if entry.duplicate_window:
            window = windows[entry.record_id] = DuplicateWindow(entry.record_id, entry.duplicate_window)
            window.load(loaded.windows.get(entry.record_id, ()), reserved.get(entry.record_id, ()))
    return windows
