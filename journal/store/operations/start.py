"""How a message store takes over the state that the activation of its journal has loaded."""

from __future__ import annotations

from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.garbage import Garbage
from journal.store.queues.loaded import LoadedStore
from journal.store.restoring import restore_transactions, restore_windows


def start_from(loaded: LoadedStore, core: StoreCore, discard: MessageDiscard, garbage: Garbage) -> None:
    """Move the loaded state into an empty store. Its caller holds the store's lock."""
    state = core.state = loaded.state
    transactions = core.transactions
    transactions.open.update(restore_transactions(loaded, core.settings.transaction_bodies_bytes_max))
    for record_id, kept in loaded.address_settings:
        core.address_settings.keep(record_id, *kept)
    core.windows.update(restore_windows(loaded, state.addresses(), transactions.open))
    transactions.declaring.update({tx: txn for tx, txn in transactions.open.items() if txn.declared})
    for txn in transactions.open.values():
        transactions.stored_in.update(dict.fromkeys(txn.stored, txn.tx))
        for message_id in txn.stored:
            address_id = state.address(state.message(message_id).address).record_id
            discard.unrouted.add([message_id], address_id)
            txn.addresses.add(address_id)
    state.hold_all_over()
    state.count_from_now()
    absent = set(state.holders())
    for txn in transactions.open.values():
        acquired = {key: changed.holder for key, changed in txn.changed.items() if changed.holder}
        txn.unclaimed.update(dict.fromkeys(acquired, False))
        absent.update(acquired.values())
    core.absent.update(dict.fromkeys(sorted(absent)))
    core.grace_until_ms = core.elapsed_ms() + core.settings.acquire_grace_ms
    garbage.add(loaded.orphans)
    core.refusal = None
