"""Addresses, queues and bindings of a message store: created, changed and destroyed by their broker.

Later calls see them at once; they are durable when the operation completes. A queue that is not durable, and its
bindings, are never in the journal.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from journal.append.operations import PlainOperation
from journal.errors import (
    AddressExistsError,
    AddressInUseError,
    InvalidOperationError,
    QueueExistsError,
    QueueInDoubtError,
)
from journal.limits import VIRTUAL_SHARDS
from journal.store.declared import (
    AddressDeclared,
    BindingDeclared,
    Declared,
    QueueDeclared,
)
from journal.store.duplicates import DuplicateWindow
from journal.store.model import QueueConfig, fixed_differences
from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.ids import StoreIds
from journal.store.pending import Pending
from journal.store.queues.entry import BindingEntry, QueueEntry
from journal.store.queues.state import QueueState
from journal.store.records import encode_address, encode_binding, encode_queue
from journal.store.transactions import StoreTransaction
from journal.v1.journal_pb2 import DELETE
from journal.v1.store_pb2 import ADDRESS, BINDING, QUEUE, QUEUE_CHANGED


def virtual_shard_of(address: str) -> int:
    """The virtual shard of an address, in which all its records are."""
    return zlib.crc32(address.encode()) % VIRTUAL_SHARDS


class DeclareOperations:
    """Operations on addresses, queues and bindings. `journal.store.declared` has their state inside a transaction."""

    def __init__(self, core: StoreCore, ids: StoreIds, discard: MessageDiscard) -> None:
        self._core = core
        self._ids = ids
        self._discard = discard

    # ---- addresses -------------------------------------------------------------------------------------------------

    def create_address(self, name: str, duplicate_window: int = 0, tx: int = 0) -> Pending:
        _require_name("an address", name)
        data = encode_address(name, duplicate_window)
        core = self._core
        with core.lock:
            state = core.enter()
            txn = core.transactions.accepting(tx) if tx else None
            for other in core.transactions.declaring.values():
                if other.declared.claims_address(name, own=other is txn):
                    raise AddressExistsError(f"transaction {other.tx} creates or destroys address {name!r}")
            state.require_new_address(name)
            record_id = core.journal.new_id(virtual_shard_of(name))
            completion = core.journal.add(record_id, ADDRESS, data, tx=tx)
            if txn is not None:
                self._declare(txn, AddressDeclared(True, record_id, name, duplicate_window))
                return Pending(record_id, completion)
            state.add_address(record_id, name, duplicate_window)
            if duplicate_window:
                core.windows[record_id] = DuplicateWindow(record_id, duplicate_window)
            return Pending(record_id, completion)

    def destroy_address(self, name: str, tx: int = 0, *, discard: bool = True) -> Pending:
        core = self._core
        with core.lock:
            state = core.enter()
            txn = core.transactions.accepting(tx) if tx else None
            entry = state.address(name)
            if self._discard.taking_in.has(entry.record_id):
                raise AddressInUseError(f"messages are on their way to address {name} from a topic: try again")
            rolled_back = [txn for txn in core.transactions.settling if txn.rolled_back]
            storing = [*core.transactions.open.values(), *rolled_back]
            stored_in = {txn.tx for txn in storing if entry.record_id in txn.addresses}
            if stored_in:
                raise AddressInUseError(f"transactions {sorted(stored_in)} store messages at address {name}")
            for other in core.transactions.declaring.values():
                if other.declared.needs_address(name, own=other is txn):
                    raise AddressInUseError(f"transaction {other.tx} creates or destroys queues of address {name}")
            state.unused_address(name)
            completion = core.journal.delete(entry.record_id, tx=tx)
            state.remove_address(name)
            if txn is not None:
                self._declare(txn, AddressDeclared(False, entry.record_id, name, entry.duplicate_window))
                return Pending(entry.record_id, completion)
            core.windows.pop(entry.record_id, None)
            self._discard.leaving.append(self._discard.unrouted.parts(entry.record_id))
        if discard:
            self._discard.discard_leaving()
        return Pending(entry.record_id, completion)

    # ---- queues ----------------------------------------------------------------------------------------------------

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending:
        _require_name("a queue", config.name)
        data = _encode_checked(config)
        core = self._core
        with core.lock:
            state = core.enter()
            txn = core.transactions.accepting(tx) if tx else None
            for other in core.transactions.declaring.values():
                if other.declared.claims_queue(config, own=other is txn):
                    raise QueueExistsError(f"transaction {other.tx} creates or destroys queue {config.name!r}")
            state.require_new_subscription(config)
            if txn is not None:
                return self._create_queue_in(state, txn, config, data)
            state.require_new_name(config)
            pending = Pending(self._ids.new(state.address(config.address), durable=config.durable))
            if config.durable:
                pending.completion = core.journal.add(pending.id, QUEUE, data)
            state.add_queue(pending.id, config)
            return pending

    def _create_queue_in(self, state: QueueState, txn: StoreTransaction, config: QueueConfig, data: bytes) -> Pending:
        state.require_new_name(config)
        made = txn.declared.made_address(config.address)
        record_id = self._ids.new(made or state.address(config.address), durable=config.durable)
        pending = Pending(record_id)
        if config.durable:
            pending.completion = self._core.journal.add(record_id, QUEUE, data, tx=txn.tx)
        self._declare(txn, QueueDeclared(True, record_id, config))
        return pending

    def change_queue(self, config: QueueConfig) -> Pending:
        data = _encode_checked(config)
        core = self._core
        with core.lock:
            entry = core.enter().queue(config.name)
            _require_changeable(entry.config, config)
            return self._change(entry, config, data)

    def pause(self, queue: str, *, paused: bool) -> Pending:
        core = self._core
        with core.lock:
            entry = core.enter().queue(queue)
            config = replace(entry.config, paused=paused)
            return self._change(entry, config, encode_queue(config))

    def _change(self, entry: QueueEntry, config: QueueConfig, data: bytes) -> Pending:
        pending = Pending(entry.record_id)
        if config.durable:
            pending.completion = self._core.journal.update(pending.id, QUEUE_CHANGED, data, replaceable=True)
        entry.config = config
        if entry.watch is not None:
            entry.watch.has_something(entry)
        return pending

    def destroy_queue(self, name: str, tx: int = 0, *, discard: bool = True) -> Pending:
        core = self._core
        with core.lock:
            state = core.enter()
            txn = core.transactions.accepting(tx) if tx else None
            entry = state.queue(name)
            record_id = entry.record_id
            touching = {each.tx for each in core.transactions.unsettled() if record_id in each.queues}
            declaring = core.transactions.declaring.values()
            touching |= {each.tx for each in declaring if each.declared.needs_queue(record_id, own=each is txn)}
            if touching:
                raise QueueInDoubtError(f"transactions {sorted(touching)} hold messages of queue {name}: settle them")
            if entry.locked:
                raise QueueInDoubtError(f"records of a topic on their way settle messages of queue {name}: try again")
            bindings = tuple(state.bindings(record_id))
            pending = Pending(record_id)
            if entry.config.durable:
                going = [record_id, *(binding.record_id for binding in bindings)]
                deletes: list[PlainOperation] = [(DELETE, each, 0, b"", False, 0) for each in going]
                pending.completion = core.journal.append_all(deletes, tx=tx)
            if txn is None:
                self._discard.leaving.append(state.remove_queue(name))
            else:
                state.unlist_queue(entry)
                self._declare(txn, QueueDeclared(False, record_id, entry.config, bindings))
        if discard:
            self._discard.discard_leaving()
        return pending

    # ---- bindings --------------------------------------------------------------------------------------------------

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0, *, id: int = 0) -> Pending:
        core = self._core
        with core.lock:
            state = core.enter()
            txn = core.transactions.accepting(tx) if tx else None
            made = None if txn is None else txn.declared.made_queue(queue)
            entry = made or state.queue(queue)
            made_there = None if txn is None else txn.declared.made_address(entry.config.address)
            address = made_there or state.address(entry.config.address)
            record_id = self._ids.new(address, id, durable=entry.config.durable)
            data = encode_binding(entry.record_id, key, filter)
            pending = Pending(record_id)
            if entry.config.durable:
                pending.completion = core.journal.add(record_id, BINDING, data, tx=tx)
            if txn is None:
                state.add_binding(record_id, entry.record_id, key, filter)
            else:
                bound = BindingEntry(record_id, entry.record_id, key, filter)
                self._declare(txn, BindingDeclared(True, bound, queue, entry.config.durable))
            return pending

    def unbind(self, binding_id: int, tx: int = 0) -> Pending:
        core = self._core
        with core.lock:
            state = core.enter()
            txn = core.transactions.accepting(tx) if tx else None
            binding = state.binding(binding_id)
            config = state.queue_of(binding.queue_id).config
            pending = Pending(binding_id)
            if config.durable:
                pending.completion = core.journal.delete(binding_id, tx=tx)
            state.remove_binding(binding_id)
            if txn is not None:
                self._declare(txn, BindingDeclared(False, binding, config.name, config.durable))
            return pending

    def _declare(self, txn: StoreTransaction, declared: Declared) -> None:
        txn.declared.add(declared)
        self._core.transactions.declaring[txn.tx] = txn

    def bindings(self, queue: str) -> list[BindingEntry]:
        with self._core.lock:
            state = self._core.enter()
            return state.bindings(state.queue(queue).record_id)


def _require_name(what: str, name: str) -> None:
    if not (isinstance(name, str) and name):
        raise InvalidOperationError(f"{what} has a name, a text that is not empty; not {name!r}")


def _encode_checked(config: QueueConfig) -> bytes:
    """Raises InvalidOperationError for a queue whose dead or expired messages would come back to it."""
    if config.address in (config.dead_letter_address, config.expiry_address):
        raise InvalidOperationError(
            f"queue {config.name!r} cannot send what is dead or has expired to its own address {config.address!r}"
        )
    return encode_queue(config)


def _require_changeable(old: QueueConfig, new: QueueConfig) -> None:
    """Raises InvalidOperationError if another field than the changeable ones differs."""
    differences = fixed_differences(old, new)
    if differences:
        raise InvalidOperationError(
            f"queue {old.name!r} cannot change its {', '.join(differences)}: create another queue, "
            "or destroy this one first"
        )
