"""Makes the stores of a chain equal after a crash: the other stores get the state of the first one.

    realign([kafka, local])
    chain = MessageStoreChain([kafka, local])

After a crash one store may have groups that another did not get. No caller was told that those operations are complete,
because all stores must complete them first. So the first store's state may be taken for all. Messages, queues and
addresses that a transaction in doubt in the first store touches are left alone: another store may have settled it
already, and its coordinator will settle it again in the same way.

These differences remain: the place in its queue of a message that a store lacks (it comes last of its priority, where
it would have come without the crash), the contents of duplicate windows, and a transaction in doubt that only the first
store has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from journal.errors import MessageMissingError
from journal.store.chain.lockstep import chained_id
from journal.store.chain.ports import ChainedStore
from journal.store.declared import AddressDeclared, BindingDeclared, QueueDeclared
from journal.store.model import ReferenceInfo, ReferenceState, fixed_differences
from journal.store.pending import Pending
from journal.store.transactions import TransactionInfo

log = logging.getLogger(__name__)

_PENDING_MAX = 256
"""The most operations that may be under way; the next one waits for them."""


@dataclass(slots=True)
class _Undecided:
    """The messages and names that transactions in doubt touch in the first store, where they are not visible, or
    locked."""

    messages: set[int] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    bindings: set[int] = field(default_factory=set)
    """Bindings, by their ids in the other stores."""

    def add(self, info: TransactionInfo) -> None:
        self.messages.update(info.messages)
        self.messages.update(message for message, _ in (*info.references, *info.acknowledgements, *info.changes))
        for each in info.declarations:
            match each:
                case AddressDeclared():
                    self.addresses.add(each.name)
                case QueueDeclared():
                    self.queues.add(each.config.name)
                case BindingDeclared():
                    self.bindings.add(chained_id(each.entry.record_id))


@dataclass(slots=True)
class Realigned:
    """The numbers of operations that made one store equal to the first."""

    store: str
    rolled_back: int = 0
    """Transactions in doubt that the first store does not have, and that were rolled back."""
    declared: int = 0
    """The number of addresses, queues, bindings and settings that were created, changed or destroyed."""
    added: int = 0
    """The number of references that the store lacked."""
    removed: int = 0
    """The number of references that the first store does not have."""
    changed: int = 0
    """The number of changed holders, delivery counts and due times."""

    def __bool__(self) -> bool:
        return any((self.rolled_back, self.declared, self.added, self.removed, self.changed))


def realign(stores: Sequence[ChainedStore], names: Sequence[str] = ()) -> list[Realigned]:
    """Make all other stores equal to the first. Returns the numbers for each of them. Nobody may use the stores
    meanwhile.

    It reads both stores queue by queue, and blocks until all changes are durable. Raises the error with which a store
    refuses or fails; it may then be called again.
    """
    first = stores[0]
    names = names or [f"store {number} of {len(stores)}" for number in range(1, len(stores) + 1)]
    done = [_Realigning(first, store, name).run() for store, name in zip(stores[1:], names[1:], strict=True)]
    for each in done:
        if each:
            log.warning("brought in line with the first store of the chain: %s", each)
    return done


class _Realigning:
    """Makes one store equal to the first one."""

    def __init__(self, first: ChainedStore, other: ChainedStore, name: str) -> None:
        self._first = first
        self._other = other
        self._done = Realigned(name)
        self._pending: list[Pending] = []
        self._undecided = _Undecided()
        self._lacking: list[ReferenceInfo] = []
        """References that the other store lacks, for each queue in the first store's order.

        Each is added in its own turn, because a message that was added to all its queues at once would overtake others
        in some of them.
        """

    def run(self) -> Realigned:
        self._settle()
        self._declare()
        for info in self._first.queues():
            if info.config.durable:
                self._compare(info.config.name)
        self._wait()
        for lacked in self._lacking:
            self._add(lacked)
        self._wait()
        return self._done

    def _do(self, pending: Pending) -> None:
        self._pending.append(pending)
        if len(self._pending) >= _PENDING_MAX:
            self._wait()

    def _wait(self) -> None:
        pending, self._pending = self._pending, []
        for each in pending:
            each.wait()

    def _settle(self) -> None:
        known = {chained_id(info.tx) for info in self._first.in_doubt()}
        for info in self._other.in_doubt():
            if info.tx not in known:
                self._other.rollback(info.tx).wait()
                self._done.rolled_back += 1
        for info in self._first.in_doubt():
            self._undecided.add(info)

    # ---- objects ---------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        """Create, change and destroy addresses, queues and bindings. Unwanted ones are destroyed first, so that their
        names are free."""
        first, other, undecided = self._first, self._other, self._undecided
        addresses = {entry.name: entry.duplicate_window for entry in first.addresses()}
        queues = {info.config.name: info.config for info in first.queues() if info.config.durable}
        theirs = {info.config.name: info.config for info in other.queues() if info.config.name not in undecided.queues}
        going = {entry.name for entry in other.addresses() if addresses.get(entry.name) != entry.duplicate_window}
        going -= undecided.addresses
        for name, config in list(theirs.items()):
            wanted = queues.get(name)
            if wanted is None or fixed_differences(config, wanted) or config.address in going:
                del theirs[name]
                self._count(other.destroy_queue(name))
            elif wanted != config:
                self._count(other.change_queue(wanted))
        self._set_settings()
        for name in going:
            self._count(other.destroy_address(name))
        there = {entry.name for entry in other.addresses()}
        for name, window in addresses.items():
            if name not in there:
                self._count(other.create_address(name, window))
        for name, config in queues.items():
            if name not in theirs:
                self._count(other.create_queue(config))
            self._bind(name)

    def _set_settings(self) -> None:
        """Set and unset settings of addresses."""
        wanted = dict(self._first.address_settings())
        theirs = dict(self._other.address_settings())
        for pattern in theirs.keys() - wanted.keys():
            self._count(self._other.unset_address_settings(pattern))
        for pattern, settings in wanted.items():
            if pattern not in theirs or theirs[pattern].named != settings.named:
                self._count(self._other.set_address_settings(pattern, settings))

    def _count(self, pending: Pending) -> None:
        self._do(pending)
        self._done.declared += 1

    def _bind(self, queue: str) -> None:
        wanted = {chained_id(each.record_id): each for each in self._first.bindings(queue)}
        there = {each.record_id for each in self._other.bindings(queue)}
        for binding_id in there - wanted.keys() - self._undecided.bindings:
            self._count(self._other.unbind(binding_id))
        for binding_id in wanted.keys() - there:
            binding = wanted[binding_id]
            self._count(self._other.bind(queue, binding.key, binding.filter, id=binding_id))

    # ---- references ------------------------------------------------------------------------------------------------

    def _compare(self, queue: str) -> None:
        undecided = self._undecided.messages
        wanted = {info.message: info for info in self._first.browse(queue) if info.message not in undecided}
        there = {info.message: info for info in self._other.browse(queue)}
        kept = {chained_id(message_id) for message_id in (*wanted, *undecided)}
        for their_id, info in there.items():
            if their_id not in kept:
                self._do(self._other.acknowledge(their_id, queue, info.holder))
                self._done.removed += 1
        for message_id, info in wanted.items():
            theirs = there.get(chained_id(message_id))
            if theirs is None:
                self._lacking.append(info)
            else:
                self._change(info, theirs)

    def _add(self, info: ReferenceInfo) -> None:
        """Add a reference. If the other store does not have the message, it is stored too, as it is in the first
        store."""
        other, their_id = self._other, chained_id(info.message)
        if self._has(their_id):
            other.route(their_id, info.queue).wait()
        else:
            other.send(self._first.message(info.message), [info.queue], id=their_id, checked=True).wait()
        self._done.added += 1
        arrived = {each.queue: each for each in other.explain(their_id)}
        self._change(info, arrived[info.queue])

    def _has(self, their_id: int) -> bool:
        try:
            self._other.explain(their_id)
        except MessageMissingError:
            return False
        return True

    def _change(self, wanted: ReferenceInfo, theirs: ReferenceInfo) -> None:
        other, their_id, queue = self._other, theirs.message, wanted.queue
        holder = wanted.holder if wanted.state is ReferenceState.HELD else ""
        if (holder, wanted.deliveries, wanted.due) == (theirs.holder, theirs.deliveries, theirs.due):
            return
        self._done.changed += 1
        if theirs.holder not in ("", holder):
            self._do(other.release(their_id, queue, theirs.holder))
        if holder and theirs.holder != holder:
            self._do(other.schedule(their_id, queue, 0))
            self._do(other.acquire(their_id, queue, holder, checked=True))
        self._do(other.deliveries(their_id, queue, wanted.deliveries))
        self._do(other.schedule(their_id, queue, wanted.due))
