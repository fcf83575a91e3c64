"""Messages and their references in memory, as columns of numbers, without an object for each message.

A row of one table is a message, a row of the other its reference in one queue. Most messages have one reference, which
the message's row names; a message with more has a dictionary. Data that few references have (a holder, a transaction, a
due time) are kept elsewhere.

Measured (Python 3.11, one reference a message, bodies not held): 1,000,000 messages over 10,000 queues take 200 bytes a
message as tracemalloc counts, 240 as the process grows, the queues included. Objects would take more memory, and the
process would pause whenever Python's garbage collector goes through them.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

from journal.store.queues.columns import fill, gather, reach, same_bytes, same_numbers, together

ARRIVING, READY, SCHEDULED, HELD, LOCKED, SETTLING, FREE = range(7)
"""States of a reference. FREE: nothing uses its row."""
STATE = 7
QUEUED = 8
"""A flag that is added to the state while a line has the row in its order. The row is not reused before the line drops
it."""
READY_QUEUED = READY | QUEUED
_STATES = bytes(flag & STATE for flag in range(256))
"""The state of each flag, without `QUEUED`."""

_NONE, _MANY = -1, -2
_RUN_MIN = 8
"""The smallest number of consecutive free rows that is kept as a range."""
DURABLE, DELETED, PRIORITY = 128, 64, 15


class _FreeRows:
    """Free rows. Hot path: rows that are freed together are mostly taken together again."""

    __slots__ = ("in_runs", "rows", "runs")

    def __init__(self) -> None:
        self.rows = array("i")
        self.runs: list[range] = []
        """Further free rows, as ranges of consecutive rows."""
        self.in_runs = 0

    def __len__(self) -> int:
        return len(self.rows) + self.in_runs

    def add_all(self, rows: Sequence[int]) -> None:
        if type(rows) is range and len(rows) >= _RUN_MIN:
            self.runs.append(rows)
            self.in_runs += len(rows)
        else:
            self.rows.extend(rows)

    def take_run_apart(self) -> bool:
        """Move free rows from a range to `rows`, which the caller has found empty. False if there is no range."""
        if not self.runs:
            return False
        run = self.runs.pop()
        self.in_runs -= len(run)
        self.rows.extend(run)
        return True

    def take(self, count: int, end: int) -> Sequence[int]:
        """Take `count` rows: first free ones, and then new ones from `end` on."""
        if self.runs and len(self.runs[-1]) >= count:
            run = self.runs.pop()
            self.in_runs -= count
            if len(run) > count:
                self.runs.append(run[count:])
            return run[:count]
        rows = self.rows
        while len(rows) < count and self.take_run_apart():
            pass
        taken = rows[max(0, len(rows) - count) :]
        del rows[max(0, len(rows) - count) :]
        return together([*taken, *range(end, end + count - len(taken))])


class References:
    """The two tables. Their columns are public because of the hot paths; only QueueState and its lines write them."""

    __slots__ = (
        "_free_messages", "_free_references", "_many", "address", "block", "chunks", "deliveries", "due", "expires",
        "first", "flags", "high", "id", "live", "low", "marks", "message", "paged", "queue", "row_of", "size",
        "timestamp",
    )  # fmt: skip

    def __init__(self) -> None:
        # messages
        self.row_of: dict[int, int] = {}
        self.id = array("q")
        self.address = array("q")
        self.marks = bytearray()
        """Priority, whether durable, and whether deleted (its last reference was acknowledged)."""
        self.size = array("q")
        self.expires = array("q")
        self.timestamp = array("q")
        self.first = array("i")
        self.live = array("i")
        """The number of references that are not being settled, including those in the index."""
        self.chunks: dict[int, tuple[int, ...]] = {}
        self.due: dict[int, int] = {}
        """The messages' own scheduled times, which later routes use."""
        self.paged: dict[int, int] = {}
        """The number of references in the index, for messages that have some there."""
        self._many: dict[int, dict[int, int]] = {}
        self._free_messages = _FreeRows()
        # references
        self.message = array("i")
        self.queue = array("q")
        self.high = array("Q")
        self.low = array("Q")
        self.flags = bytearray()
        self.deliveries = array("I")
        self.block = array("i")
        """The number of the row's block in its line."""
        self._free_references = _FreeRows()

    # ---- messages --------------------------------------------------------------------------------------------------

    def add_message(
        self,
        message_id: int,
        address_id: int,
        priority: int,
        size: int,
        expires: int,
        timestamp: int,
        durable: bool,
        chunks: Sequence[int],
        due: int,
    ) -> int:
        marks = priority | DURABLE if durable else priority
        free = self._free_messages
        if free.rows or free.take_run_apart():
            row = free.rows.pop()
            self.id[row] = message_id
            self.address[row] = address_id
            self.marks[row] = marks
            self.size[row] = size
            self.expires[row] = expires
            self.timestamp[row] = timestamp
        else:
            row = len(self.id)
            self.id.append(message_id)
            self.address.append(address_id)
            self.marks.append(marks)
            self.size.append(size)
            self.expires.append(expires)
            self.timestamp.append(timestamp)
            self.first.append(_NONE)
            self.live.append(0)
        self.row_of[message_id] = row
        if chunks:
            self.chunks[row] = tuple(chunks)
        if due:
            self.due[row] = due
        return row

    def drop_message(self, row: int) -> None:
        """Forget a message that has no references in memory."""
        del self.row_of[self.id[row]]
        if self.chunks:
            self.chunks.pop(row, None)
        if self.due:
            self.due.pop(row, None)
        if self.paged:
            self.paged.pop(row, None)
        self.id[row] = 0
        self.expires[row] = 0
        self.live[row] = 0
        self._free_messages.rows.append(row)

    def priority(self, row: int) -> int:
        return self.marks[row] & PRIORITY

    def is_durable(self, row: int) -> bool:
        return bool(self.marks[row] & DURABLE)

    def is_deleted(self, row: int) -> bool:
        return bool(self.marks[row] & DELETED)

    def delete(self, row: int) -> None:
        """Give a message the flag DELETED, because its last reference is acknowledged."""
        self.marks[row] |= DELETED

    # ---- references ------------------------------------------------------------------------------------------------

    @property
    def references(self) -> int:
        """Number of rows in use."""
        return len(self.flags) - len(self._free_references)

    def add_reference(self, message_row: int, queue_id: int, state: int) -> int:
        free = self._free_references
        if free.rows or free.take_run_apart():
            row = free.rows.pop()
            self.message[row] = message_row
            self.queue[row] = queue_id
            self.flags[row] = state
            self.deliveries[row] = 0
        else:
            row = len(self.flags)
            self.message.append(message_row)
            self.queue.append(queue_id)
            self.high.append(0)
            self.low.append(0)
            self.flags.append(state)
            self.deliveries.append(0)
            self.block.append(0)
        first = self.first[message_row]
        if first == _NONE:
            self.first[message_row] = row
        elif first == _MANY:
            self._many[message_row][queue_id] = row
        else:
            self._many[message_row] = {self.queue[first]: first, queue_id: row}
            self.first[message_row] = _MANY
        return row

    def add_routed(
        self,
        message_ids: Sequence[int],
        address_id: int,
        priorities: Sequence[int],
        sizes: Sequence[int],
        expires: Sequence[int],
        timestamps: Sequence[int],
        queue_id: int,
        state: int,
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Add durable messages, each with one reference in one queue. Returns the rows of the messages and the rows of
        the references.

        Hot path: column by column it takes a quarter of the time of `add_message` and `add_reference`.
        """
        count = len(message_ids)
        rows = self._free_references.take(count, len(self.flags))
        message_rows = self._free_messages.take(count, len(self.id))
        fill(self.id, message_rows, array("q", message_ids))
        fill(self.address, message_rows, same_numbers(self.address.typecode, address_id, count))
        fill(self.marks, message_rows, bytearray([priority | DURABLE for priority in priorities]))
        fill(self.size, message_rows, array("q", sizes))
        typecode = self.expires.typecode
        fill(self.expires, message_rows, array(typecode, expires) if expires else same_numbers(typecode, 0, count))
        fill(self.timestamp, message_rows, array("q", timestamps))
        fill(self.first, message_rows, array("i", rows))
        fill(self.live, message_rows, same_numbers(self.live.typecode, 1, count))
        fill(self.message, rows, array("i", message_rows))
        fill(self.queue, rows, same_numbers(self.queue.typecode, queue_id, count))
        reach(self.high, rows)  # the place is set when the reference arrives
        reach(self.low, rows)
        reach(self.block, rows)  # and so is the block
        fill(self.flags, rows, same_bytes(state, count))
        fill(self.deliveries, rows, same_numbers(self.deliveries.typecode, 0, count))
        self.row_of.update(zip(message_ids, message_rows, strict=True))
        return message_rows, rows

    def drop_reference(self, row: int) -> None:
        """Remove a reference from its message. The row is free once no line has it."""
        message_row = self.message[row]
        if self.first[message_row] == _MANY:
            many = self._many[message_row]
            del many[self.queue[row]]
            if len(many) == 1:
                (self.first[message_row],) = many.values()
                del self._many[message_row]
        else:
            self.first[message_row] = _NONE
        if self.flags[row] & QUEUED:
            self.flags[row] = FREE | QUEUED
        else:
            self.flags[row] = FREE
            self._free_references.rows.append(row)

    def drop_settled(self, message_id: int, queue_id: int) -> int:
        """Forget a deleted message with its only reference, which is SETTLING. Returns the row of the reference.

        Returns -1, and changes nothing, for any other message, or if there are further data about it. Hot path:
        `drop_reference` and `drop_message` in one step.
        """
        message_row = self.row_of.get(message_id, -1)
        row = self.first[message_row] if message_row >= 0 else _NONE
        if (
            row < 0
            or self.queue[row] != queue_id
            or self.flags[row] & STATE != SETTLING
            or not self.marks[message_row] & DELETED
            or self.expires[message_row]
            or message_row in self.chunks
            or message_row in self.due
            or message_row in self.paged
        ):
            return _NONE
        if self.flags[row] & QUEUED:
            self.flags[row] = FREE | QUEUED
        else:
            self.flags[row] = FREE
            self._free_references.rows.append(row)
        self.first[message_row] = _NONE
        del self.row_of[message_id]
        self.id[message_row] = 0
        self._free_messages.rows.append(message_row)
        return row

    def drop_all_settled(self, message_rows: Sequence[int], rows: Sequence[int]) -> None:
        """Forget deleted messages with their only references, which are SETTLING. There must be no further data about
        them.

        Hot path.
        """
        row_of, flags, count = self.row_of, self.flags, len(rows)
        deque(map(row_of.__delitem__, gather(self.id, message_rows)), maxlen=0)
        fill(self.id, message_rows, same_numbers(self.id.typecode, 0, count))
        fill(self.first, message_rows, same_numbers(self.first.typecode, _NONE, count))
        self._free_messages.add_all(message_rows)
        if gather(flags, rows).count(SETTLING) == count:
            fill(flags, rows, same_bytes(FREE, count))
            self._free_references.add_all(rows)
            return
        for row in rows:
            flags[row] = FREE | flags[row] & QUEUED
            if flags[row] == FREE:
                self._free_references.rows.append(row)

    def unqueue(self, row: int) -> None:
        """Called when a line has dropped a row. If the row is free, it can be used again from now on."""
        state = self.flags[row] = self.flags[row] & STATE
        if state == FREE:
            self._free_references.rows.append(row)

    def unqueue_all(self, rows: Sequence[int]) -> None:
        """Called when a line has dropped these rows. Those that are free can be used again from now on."""
        if not rows:
            return
        rows, flags = together(rows), self.flags
        states = gather(flags, rows).translate(_STATES)
        fill(flags, rows, states)
        free = states.count(FREE)
        if free == len(rows):
            self._free_references.add_all(rows)
        elif free:
            self._free_references.rows.extend([row for row in rows if flags[row] == FREE])

    def find(self, message_row: int, queue_id: int) -> int:
        """The row of a message's reference in a queue, or -1."""
        first = self.first[message_row]
        if first >= 0:
            return first if self.queue[first] == queue_id else _NONE
        return self._many[message_row].get(queue_id, _NONE) if first == _MANY else _NONE

    def of_message(self, message_row: int) -> list[int]:
        """The rows of all references of a message in memory."""
        first = self.first[message_row]
        if first == _MANY:
            return list(self._many[message_row].values())
        return [] if first == _NONE else [first]

    def place(self, row: int) -> int:
        return self.high[row] << 64 | self.low[row]

    def set_place(self, row: int, place: int) -> None:
        self.high[row] = place >> 64
        self.low[row] = place & 0xFFFF_FFFF_FFFF_FFFF
