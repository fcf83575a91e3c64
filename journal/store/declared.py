"""Changes that transactions make to addresses, queues and bindings, and the effect of their commit or rollback on the
state.

Things that a transaction destroys are gone for everybody when the operation is accepted, and come back with a rollback.
Things that it creates exist once the transaction is committed. Until the transaction ends, nobody else can create or
destroy them.

The functions are pure: they only change the state that they get. The order of operations in a transaction does not
matter, because a load may give another order: first things are destroyed and then created, addresses before their
queues, and queues before their bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from journal.errors import QueueMissingError
from journal.store.model import QueueConfig
from journal.store.queues.directory import subscription_of
from journal.store.queues.entry import AddressEntry, BindingEntry
from journal.store.queues.state import QueueState


class AddressDeclared(NamedTuple):
    """An address that a transaction creates (`made`) or destroys."""

    made: bool
    record_id: int
    name: str
    duplicate_window: int

    def __str__(self) -> str:
        return f"{'create' if self.made else 'destroy'} address {self.name}"

    @property
    def durable(self) -> bool:
        return True

    def entry(self) -> AddressEntry:
        return AddressEntry(self.record_id, self.name, self.duplicate_window)


class QueueDeclared(NamedTuple):
    """A queue that a transaction creates (`made`), or destroys together with its bindings."""

    made: bool
    record_id: int
    config: QueueConfig
    bindings: tuple[BindingEntry, ...] = ()

    def __str__(self) -> str:
        return f"{'create' if self.made else 'destroy'} queue {self.config.name}"

    @property
    def durable(self) -> bool:
        return self.config.durable


class BindingDeclared(NamedTuple):
    """A binding that a transaction adds (`made`) or removes; `durable` if its queue is."""

    made: bool
    entry: BindingEntry
    queue: str
    durable: bool

    def __str__(self) -> str:
        return f"{'bind' if self.made else 'unbind'} queue {self.queue}"


Declared: TypeAlias = AddressDeclared | QueueDeclared | BindingDeclared


class Declarations:
    """What one transaction declares."""

    __slots__ = ("addresses", "bindings", "queues")

    def __init__(self, declared: Iterable[Declared] = ()) -> None:
        self.addresses: list[AddressDeclared] = []
        self.queues: list[QueueDeclared] = []
        self.bindings: list[BindingDeclared] = []
        for each in declared:
            self.add(each)

    def __bool__(self) -> bool:
        return bool(self.addresses or self.queues or self.bindings)

    def add(self, declared: Declared) -> None:
        match declared:
            case AddressDeclared():
                self.addresses.append(declared)
            case QueueDeclared():
                self.queues.append(declared)
            case BindingDeclared():
                self.bindings.append(declared)

    def all(self) -> tuple[Declared, ...]:
        """All changes, without the bindings that are removed with their queue."""
        going = {queue.record_id for queue in self.queues if not queue.made}
        bindings = [each for each in self.bindings if each.made or each.entry.queue_id not in going]
        return (*self.addresses, *self.queues, *bindings)

    def not_durable(self) -> tuple[str, ...]:
        """The changes that the transaction makes to queues that are not durable, as texts for people. A crash loses
        such changes."""
        return tuple(str(each) for each in self.all() if not each.durable)

    # ---- what other transactions may not change ---------------------------------------------------------------------

    def made_address(self, name: str) -> AddressEntry | None:
        """The address with that name, if the transaction creates it."""
        return next((each.entry() for each in self.addresses if each.made and each.name == name), None)

    def made_queue(self, name: str) -> QueueDeclared | None:
        """The queue with that name, if the transaction creates it."""
        return next((each for each in self.queues if each.made and each.config.name == name), None)

    def claims_address(self, name: str, *, own: bool) -> bool:
        """Whether nobody can create an address with that name now. With `own`: whether the transaction itself cannot
        either."""
        return any(each.name == name and (each.made or not own) for each in self.addresses)

    def claims_queue(self, config: QueueConfig, *, own: bool) -> bool:
        """Whether nobody can create such a queue now."""
        wanted = subscription_of(config)
        return any(
            (each.made or not own)
            and (each.config.name == config.name or (wanted is not None and subscription_of(each.config) == wanted))
            for each in self.queues
        )

    def needs_address(self, name: str, *, own: bool) -> bool:
        """Whether an address cannot be destroyed, because it would have queues after the commit, or after the
        rollback."""
        return any(each.config.address == name and (each.made or not own) for each in self.queues)

    def needs_queue(self, queue_id: int, *, own: bool) -> bool:
        """Whether a queue cannot be destroyed, because it would have bindings after the commit, or after the
        rollback."""
        return any(each.entry.queue_id == queue_id and (each.made or not own) for each in self.bindings)


def lay_out(state: QueueState, declarations: Declarations) -> None:
    """Remove the things that a transaction destroys from the state, for good or until a rollback. Messages stay in
    their queues."""
    for binding in declarations.bindings:
        if not binding.made:
            state.remove_binding(binding.entry.record_id)
    for queue in declarations.queues:
        if not queue.made:
            state.unlist_queue(state.queue(queue.config.name))
    for address in declarations.addresses:
        if not address.made:
            state.remove_address(address.name)


def bring_back(state: QueueState, declarations: Declarations) -> None:
    """Undo `lay_out`, because the transaction is rolled back."""
    for address in declarations.addresses:
        if not address.made:
            state.add_address(address.record_id, address.name, address.duplicate_window)
    for queue in declarations.queues:
        if not queue.made:
            state.add_queue(queue.record_id, queue.config)
            for binding in queue.bindings:
                state.add_binding(*binding)
    for each in declarations.bindings:
        if not each.made:
            state.add_binding(*each.entry)


def carry_out(state: QueueState, declarations: Declarations) -> list[Iterator[Sequence[int]]]:
    """Apply a committed transaction, after `lay_out`. Returns the results of `QueueState.remove_queue` for the
    destroyed queues."""
    bring_back(state, declarations)
    leaving: list[Iterator[Sequence[int]]] = []
    for binding in declarations.bindings:
        if not binding.made:
            state.remove_binding(binding.entry.record_id)
    for queue in declarations.queues:
        if not queue.made:
            leaving.append(state.remove_queue(queue.config.name))
    for address in declarations.addresses:
        if not address.made:
            state.remove_address(address.name)
    for address in declarations.addresses:
        if address.made:
            state.add_address(address.record_id, address.name, address.duplicate_window)
    for queue in declarations.queues:
        if queue.made:
            state.add_queue(queue.record_id, queue.config)
    for binding in declarations.bindings:
        if binding.made:
            state.add_binding(*binding.entry)
    return leaving


def destroyed(state: QueueState, record_ids: Sequence[int]) -> list[Declared]:
    """Those records of a state that a transaction would destroy with it; records of other kinds are left out."""
    going = set(record_ids)
    found: list[Declared] = [
        AddressDeclared(False, entry.record_id, entry.name, entry.duplicate_window)
        for entry in state.addresses()
        if entry.record_id in going
    ]
    for queue in state.queues():
        bindings = state.bindings(queue.record_id)
        name, durable = queue.config.name, queue.config.durable
        found += [BindingDeclared(False, each, name, durable) for each in bindings if each.record_id in going]
        if queue.record_id in going:
            found.append(QueueDeclared(False, queue.record_id, queue.config))
    return found


def queue_name(state: QueueState, queue_id: int) -> str:
    """The name of a queue; empty if it does not exist (any more)."""
    try:
        return state.queue_of(queue_id).config.name
    except QueueMissingError:
        return ""
