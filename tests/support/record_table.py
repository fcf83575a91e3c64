"""A message store's records as a table of a journal has them, and what a number makes of them: for any history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from journal.load.loading import LoadedUpdate
from journal.store.message_records import encode_message
from journal.store.model import Message, QueueConfig
from journal.store.records import (
    encode_acknowledgement,
    encode_address,
    encode_binding,
    encode_duplicate,
    encode_queue,
    encode_reference,
)
from journal.v1.journal_pb2 import Operation
from journal.v1.store_pb2 import (
    ACKNOWLEDGE,
    ADDRESS,
    BINDING,
    CHUNK,
    DUPLICATE,
    MESSAGE,
    OUTCOME,
    QUEUE,
    REFERENCE,
    ROUTE,
    Reference,
)
from loaders.queues import QueueLoader, living_references
from tests.support.build import add, update

NOW = 1_700_000_000_000
_LATER = 1 << 40
"""Queues of these ids are routed to before they are there, and may come back after they went."""
_TX = 7


@dataclass
class Row:
    """A record."""

    kind: int
    data: bytes
    updates: tuple[LoadedUpdate, ...] = ()


@dataclass
class RecordTable:
    """Records by id. `STEPS` change it; the numbers say which of the candidates is meant, and how."""

    rows: dict[int, Row] = field(default_factory=dict)
    told: dict[int, Row] = field(default_factory=dict)
    """The rows as they were at the last `changes`."""
    offset: int = 0
    last_id: int = 10

    # ---- telling ---------------------------------------------------------------------------------------------------

    def load(self, loader: QueueLoader) -> None:
        loader.begin({})
        for record_id, row in sorted(self.rows.items()):
            loader.record(record_id, row.kind, row.data, row.updates, (0, 0, 0))
        self.told = dict(self.rows)

    def changes(self) -> list[int]:
        """Ids of records that are not as they were told; now they are."""
        changed = [each for each in self.rows.keys() | self.told.keys() if self.rows.get(each) != self.told.get(each)]
        self.told = dict(self.rows)
        return sorted(changed)

    def tell(self, loader: QueueLoader, record_id: int) -> None:
        row = self.rows.get(record_id)
        if row is None:
            loader.deleted(record_id)
        else:
            loader.changed(record_id, row.kind, row.data, row.updates, (0, 0, 0))

    # ---- looking ---------------------------------------------------------------------------------------------------

    def ids(self, kind: int) -> list[int]:
        return [record_id for record_id, row in self.rows.items() if row.kind == kind]

    @property
    def addresses(self) -> dict[str, int]:
        return {self._names[each]: each for each in self.ids(ADDRESS)}

    def living(self, record_id: int) -> list[int]:
        """Queues that a message has not been acknowledged in."""
        return [each.queue for each in living_references(self.rows[record_id].updates, 0)]

    _names: dict[int, str] = field(default_factory=dict)
    _queues: dict[int, QueueConfig] = field(default_factory=dict)
    _messages: dict[int, str] = field(default_factory=dict)
    """Address of every message there ever was."""

    # ---- changing --------------------------------------------------------------------------------------------------

    def _new_id(self) -> int:
        self.last_id += 1
        return self.last_id << 10

    def _update(self, record_id: int, kind: int, subject: int, data: bytes = b"", *, replaceable: bool = False) -> None:
        self.offset += 1
        row = self.rows[record_id]
        others = tuple(
            each for each in row.updates if not (replaceable and (each.kind, each.subject) == (kind, subject))
        )
        new = LoadedUpdate(kind, data, replaceable, subject, (self.offset, 0, 0))
        self.rows[record_id] = Row(row.kind, row.data, (*others, new))

    def step(self, name: str, n: int, m: int) -> None:
        STEPS[name](self, n, m)

    def add_address(self, n: int, m: int) -> None:
        name = "xy"[n % 2]
        if name in self.addresses:
            return
        record_id = self._new_id()
        self._names[record_id] = name
        self.rows[record_id] = Row(ADDRESS, encode_address(name, m % 3))

    def remove_address(self, n: int, m: int) -> None:
        name = "xy"[n % 2]
        if name in self.addresses and not any(self._queues[each].address == name for each in self.ids(QUEUE)):
            del self.rows[self.addresses[name]]

    def enter_duplicate(self, n: int, m: int) -> None:
        if ids := self.ids(ADDRESS):
            self._update(ids[n % len(ids)], DUPLICATE, m % 3, encode_duplicate(b"%d" % self.offset), replaceable=True)

    def add_queue(self, n: int, m: int) -> None:
        self._add_queue(self._new_id(), n, m)

    def late_queue(self, n: int, m: int) -> None:
        """One that messages may be routed to before it is there comes, or goes."""
        record_id = _LATER + n // 2 % 2
        if record_id in self.rows:
            del self.rows[record_id]
        else:
            self._add_queue(record_id, n, m)

    def _add_queue(self, record_id: int, n: int, m: int) -> None:
        address = "xy"[n % 2]
        name = f"{address}-{m % 4}"
        if address not in self.addresses or record_id in self.rows:
            return
        if any(self._queues[each].name == name for each in self.ids(QUEUE)):
            return
        self._queues[record_id] = QueueConfig(name, address, deliveries_max=n % 3)
        self.rows[record_id] = Row(QUEUE, encode_queue(self._queues[record_id]))

    def remove_queue(self, n: int, m: int) -> None:
        """With its bindings, or without."""
        if ids := self.ids(QUEUE):
            gone = ids[n % len(ids)]
            del self.rows[gone]
            if m % 3:
                for each in self.ids(BINDING):
                    if self.rows[each].data == encode_binding(gone, "key", ""):
                        del self.rows[each]

    def bind(self, n: int, m: int) -> None:
        if queues := [*self.ids(QUEUE), _LATER]:
            self.rows[self._new_id()] = Row(BINDING, encode_binding(queues[n % len(queues)], "key", ""))

    def unbind(self, n: int, m: int) -> None:
        if ids := self.ids(BINDING):
            del self.rows[ids[n % len(ids)]]

    def add_outcome(self, n: int, m: int) -> None:
        self.rows[self._new_id()] = Row(OUTCOME, b"%d" % n)

    def remove_outcome(self, n: int, m: int) -> None:
        if ids := self.ids(OUTCOME):
            del self.rows[ids[n % len(ids)]]

    def send(self, n: int, m: int) -> None:
        self._store(self._new_id(), n, m)

    def send_many(self, n: int, m: int) -> None:
        for each in range(8):
            self._store(self._new_id(), n, m + each % 2)

    def store_again(self, n: int, m: int) -> None:
        """The id of a message, there or not, is another message's, or an outcome's."""
        if not self._messages:
            return
        record_id = list(self._messages)[n % len(self._messages)]
        if m % 5 == 0:
            self.rows[record_id] = Row(OUTCOME, b"again")
        else:
            self._store(record_id, n, m)

    def _store(self, record_id: int, n: int, m: int) -> None:
        address = "xy"[n % 2]
        if address not in self.addresses:
            return
        chunks = (record_id + 1, record_id + 2) if m % 7 == 0 else ()
        for each in chunks:
            self.rows[each] = Row(CHUNK, b"part")
        message = Message(
            address=address,
            body=b"." * (m % 4),
            priority=(4, 4, 4, 9)[n // 2 % 4],
            due=NOW + m % 20 if n % 11 == 0 else 0,
            expires=NOW + m % 20 if n % 13 == 0 else 0,
            timestamp=NOW - self.offset,
        )
        self._messages[record_id] = address
        self.rows[record_id] = Row(MESSAGE, encode_message(message, chunks=chunks, body_bytes=9 if chunks else 0))
        queues = self._routable(record_id)
        for bit, queue in enumerate(queues):
            if (m + 1) >> bit & 1:
                self._update(record_id, ROUTE, queue)

    def _routable(self, record_id: int) -> list[int]:
        """Queues of the message's address that it is not in, and those that come later."""
        address = self._messages[record_id]
        later = [_LATER + each for each in range(2) if self._address_of(_LATER + each) in (None, address)]
        queues = [each for each in self.ids(QUEUE) if self._queues[each].address == address]
        return [each for each in dict.fromkeys(queues + later) if each not in self.living(record_id)]

    def _address_of(self, queue_id: int) -> str | None:
        return self._queues[queue_id].address if queue_id in self._queues else None

    def route(self, n: int, m: int) -> None:
        if ids := self.ids(MESSAGE):
            record_id = ids[n % len(ids)]
            if queues := self._routable(record_id):
                self._update(record_id, ROUTE, queues[m % len(queues)])

    def acknowledge(self, n: int, m: int) -> None:
        """The last one deletes the message, mostly."""
        if found := self._reference(n):
            record_id, queue = found
            if len(self.living(record_id)) == 1 and m % 4:
                del self.rows[record_id]
            else:
                self._update(record_id, ACKNOWLEDGE, queue, encode_acknowledgement())

    def refer(self, n: int, m: int) -> None:
        """Acquired, released, or scheduled."""
        if found := self._reference(n):
            holder, deliveries, due = ("", "one", "two")[m % 3], m // 3 % 4, NOW + m % 9 if m % 4 == 0 else 0
            data = encode_reference(Reference.ACQUIRED, holder, deliveries, due)
            self._update(found[0], REFERENCE, found[1], data, replaceable=True)

    def _reference(self, n: int) -> tuple[int, int] | None:
        """A living one: in early messages for a small number."""
        ids = self.ids(MESSAGE)
        references = [(each, queue) for each in ids[n % 5 : n % 5 + 12] for queue in self.living(each)]
        return references[n % len(references)] if references else None

    def remove_message(self, n: int, m: int) -> None:
        if ids := self.ids(MESSAGE):
            del self.rows[ids[n % len(ids)]]

    # ---- in doubt --------------------------------------------------------------------------------------------------

    def in_doubt(self, numbers: list[int]) -> list[tuple[int, bytes, list[Operation]]]:
        """A transaction that acknowledges, routes, and stores messages, some of each."""
        operations: list[Operation] = []
        taken: set[tuple[int, int]] = set()
        for n in numbers:
            found = self._reference(n)
            if found and found not in taken and n % 3 == 0 and found[1] in self.rows:
                taken.add(found)
                holder = next(
                    each.holder for each in living_references(self.rows[found[0]].updates, 0) if each.queue == found[1]
                )
                data = encode_acknowledgement(holder=holder)
                operations.append(update(found[0], data, kind=ACKNOWLEDGE, subject=found[1], tx=_TX))
            elif (ids := self.ids(MESSAGE)) and n % 3 == 1:
                record_id = ids[n % len(ids)]
                queues = [each for each in self._routable(record_id) if (record_id, each) not in taken]
                if queues:
                    taken.add((record_id, queues[0]))
                    operations.append(update(record_id, kind=ROUTE, subject=queues[0], tx=_TX))
            elif self.addresses:
                record_id = self._new_id()
                address = list(self.addresses)[n % len(self.addresses)]
                operations.append(add(record_id, encode_message(Message(address=address)), kind=MESSAGE, tx=_TX))
        return [(_TX, b"xid", operations)] if operations else []


STEPS: dict[str, Callable[[RecordTable, int, int], None]] = {
    name: getattr(RecordTable, name)
    for name in (
        "add_address", "remove_address", "enter_duplicate", "add_queue", "late_queue", "remove_queue", "bind", "unbind",
        "add_outcome", "remove_outcome", "send", "send_many", "store_again", "route", "acknowledge", "refer",
        "remove_message",
    )
}  # fmt: skip
