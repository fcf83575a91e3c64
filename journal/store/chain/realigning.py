"""Stores of a chain brought in line after a crash between them: the others are made to hold what the first one holds.

    realign([kafka, local])
    chain = MessageStoreChain([kafka, local])

A crash leaves one store with groups that another did not get. None of those operations was told complete, as that takes
all stores; so the first store's outcome is as good as any, and it is taken for all. What a transaction in doubt in the
first store adds, changes, acknowledges, creates or destroys is left alone: another store may have settled it already,
and its coordinator will say the same again.

What cannot be brought in line: the place in its queue of a message that a store lacks (it comes last of its priority,
which is where a message belongs that was cut off), what a store's duplicate windows have seen, and a transaction in
doubt that only the first store has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from journal.errors import MessageMissingError
from journal.store.chain.lockstep import chained_id
from journal.store.chain.ports import ChainedStore
from journal.store.declared import AddressDeclared, BindingDeclared, QueueDeclared
from journal.store.model import ReferenceInfo, ReferenceState
from journal.store.pending import Pending
from journal.store.transactions import TransactionInfo

log = logging.getLogger(__name__)

_PENDING_MAX = 256
"""The number of operations that may be on their way; the next one waits for them."""


@dataclass(slots=True)
class _Undecided:
    """What transactions in doubt in the first store touch: there it is not visible, or locked."""

    messages: set[int] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    bindings: set[int] = field(default_factory=set)
    """Bindings, by the ids that the other stores know them by."""

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
    """Numbers of operations that brought one store in line."""

    store: str
    rolled_back: int = 0
    """Transactions in doubt that the first store does not have."""
    declared: int = 0
    """How many addresses, queues and bindings were created or destroyed."""
    added: int = 0
    """References that the store lacked."""
    removed: int = 0
    """References that the first store does not have."""
    changed: int = 0
    """Holders, delivery counts and due times."""

    def __bool__(self) -> bool:
        return any((self.rolled_back, self.declared, self.added, self.removed, self.changed))


def realign(stores: Sequence[ChainedStore], names: Sequence[str] = ()) -> list[Realigned]:
    """Bring all other stores in line with the first. Returns what was done, store by store. Nobody uses them meanwhile.

    Reads what both have, queue by queue; blocks until it is durable. Raises what a store refuses or fails with: call it
    again then.
    """
    first = stores[0]
    names = names or [f"store {number} of {len(stores)}" for number in range(1, len(stores) + 1)]
    done = [_Realigning(first, store, name).run() for store, name in zip(stores[1:], names[1:], strict=True)]
    for each in done:
        if each:
            log.warning("brought in line with the first store of the chain: %s", each)
    return done


class _Realigning:
    """Brings one store in line with the first one."""

    def __init__(self, first: ChainedStore, other: ChainedStore, name: str) -> None:
        self._first = first
        self._other = other
        self._done = Realigned(name)
        self._pending: list[Pending] = []
        self._undecided = _Undecided()
        self._lacking: list[ReferenceInfo] = []
        """References that the other store lacks, queue by queue in the first store's order.

        Each is added alone: a message that went to all its queues at once would overtake others in the later queues.
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
        """Destroy first what is not wanted, so that its names are free."""
        first, other, undecided = self._first, self._other, self._undecided
        addresses = {entry.name: entry.duplicate_window for entry in first.addresses()}
        queues = {info.config.name: info.config for info in first.queues() if info.config.durable}
        theirs = {info.config.name: info.config for info in other.queues() if info.config.name not in undecided.queues}
        going = {entry.name for entry in other.addresses() if addresses.get(entry.name) != entry.duplicate_window}
        going -= undecided.addresses
        for name, config in list(theirs.items()):
            if queues.get(name) != config or config.address in going:
                del theirs[name]
                self._count(other.destroy_queue(name))
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
        """Add a reference; if the other store does not have the message, as it is in the first store."""
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
