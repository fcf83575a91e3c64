"""What a load says of transactions in doubt and duplicate windows, as the store's own bookkeeping.

The loaded state has a prepared transaction's references already, arriving or locked; here its operations are read for
what commit or rollback will do to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from journal.store.duplicates import DuplicateWindow, Reservation
from journal.store.loaded import LoadedPrepared, LoadedStore
from journal.store.records import decode_acknowledgement, decode_duplicate
from journal.store.transactions import Routed, StoreTransaction, Taken
from journal.v1.journal_pb2 import ADD, UPDATE
from journal.v1.store_pb2 import ACKNOWLEDGE, DUPLICATE, MESSAGE, ROUTE


def restore_transactions(loaded: LoadedStore, bodies_bytes_max: int) -> dict[int, StoreTransaction]:
    """Prepared transactions by number."""
    return {prepared.tx: _restored(prepared, bodies_bytes_max) for prepared in loaded.prepared}


def _restored(prepared: LoadedPrepared, bodies_bytes_max: int) -> StoreTransaction:
    txn = StoreTransaction(prepared.tx, 0, data=prepared.data, prepared=True)
    for op in prepared.operations:
        if op.type == ADD and op.kind == MESSAGE:
            txn.stored[op.id] = True
            txn.keep_body(op.id, op.data, bodies_bytes_max)
        elif op.type == UPDATE and op.kind == ROUTE:
            txn.routed.append(Routed(op.id, op.subject, True))
        elif op.type == UPDATE and op.kind == ACKNOWLEDGE:
            _, holder = decode_acknowledgement(op.data)
            txn.taken.append(Taken(op.id, op.subject, holder, True))
        elif op.type == UPDATE and op.kind == DUPLICATE:
            txn.reservations.append(Reservation(op.id, op.subject, decode_duplicate(op.data)))
    return txn


def restore_windows(loaded: LoadedStore, transactions: Mapping[int, StoreTransaction]) -> dict[int, DuplicateWindow]:
    """Duplicate windows by their address' record id, with what prepared transactions reserve."""
    windows: dict[int, DuplicateWindow] = {}
    reserved: dict[int, list[tuple[int, bytes, int]]] = {}
    for txn in transactions.values():
        for address, slot, duplicate_id in txn.reservations:
            reserved.setdefault(address, []).append((slot, duplicate_id, txn.tx))
    for entry in loaded.state.addresses():
        if entry.duplicate_window:
            window = windows[entry.record_id] = DuplicateWindow(entry.record_id, entry.duplicate_window)
            window.load(loaded.windows.get(entry.record_id, ()), reserved.get(entry.record_id, ()))
    return windows
