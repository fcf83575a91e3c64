"""A fast way to make messages from a source's plain records, which encodes each message directly.

A record is plain if its address follows from its topic, its value becomes the body as it is, and all its headers become
properties. Four more properties say which record it was. `encode` gives the same bytes as the general way in
`journal.routing.record_in`, and stops at the first record that is not plain or has a fault.

Hot path: encoded pieces that come again (a header with its value, a partition) are kept, and a message is put together
from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from journal.process.kept import Kept
from journal.routing.headers import KAFKA_FACTS, KAFKA_KEY, KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TOPIC
from journal.routing.outcomes import Header
from journal.store.incoming import PlainRun
from journal.store.message_records import body_head, message_end, message_start, property_entry
from journal.store.model import PRIORITY_DEFAULT, Value
from journal.wire.operations import varint

if TYPE_CHECKING:
    from journal.routing.source_record import SourceRecord

_KEY_HEADS_KEPT = 1024
_NAME_BYTES = 64
"""Bytes in memory that a name takes besides its characters."""
_SHORT_BYTES = 64
"""The longest header value whose encoded form is kept."""
_OFFSET_BITS = 6
"""The number of an offset's low bits that are in the first byte of its zigzag varint."""
_OFFSETS_KEPT = 1024
_TIMESTAMPS_KEPT = 1024

Classify = Callable[[str], tuple[str, Callable[[bytes], Value]] | None]
"""A function that gives the property that a header of this name becomes and the decoder of its value; None if the
header becomes more than a property."""


class _Order(NamedTuple):
    """The order in which the headers of a record are encoded: the properties of a message are sorted by name. Each
    number is the index of a header in the record."""

    before: tuple[int, ...]
    """The headers that are encoded before the four properties that say which record it was."""
    after: tuple[int, ...]


class PlainRecords:
    """Makes messages from the plain records of one source."""

    def __init__(self, address_of: Callable[[str], str], classify: Classify) -> None:
        """`address_of` gives the address of a topic's records; it is empty if they do not all have the same one."""
        self._address_of = address_of
        self._classify = classify
        self._addresses: Kept[str, tuple[str, bytes]] = Kept()
        """The address of each topic, and the first bytes of a message with this address. The bytes are empty if the
        topic's records do not all have the same address."""
        self._orders: Kept[tuple[str, ...], _Order | None] = Kept()
        """The order of headers by their names; None if headers of these names make a record that is not plain."""
        self._pieces: Kept[Header, bytes] = Kept()
        self._partitions: Kept[tuple[str, int], bytes] = Kept()

    def encode(
        self, records: Sequence[SourceRecord], start: int, end: int, bytes_max: int, room: int
    ) -> PlainRun | None:
        """Encode the plain records of one partition, from index `start` to before `end`; None if the first one is not
        plain.

        A record with a value of more than `bytes_max` is not plain. The run ends after the record with which its
        messages exceed `room` bytes.
        """
        topic, partition = records[start].topic, records[start].partition
        try:
            address, head = self._addresses[topic]
        except KeyError:
            address, head = self._learn_address(topic)
        if not head:
            return None
        orders, pieces = self._orders, self._pieces
        where = self._partitions.get((topic, partition)) or self._partition(topic, partition)
        encoded: list[bytes] = []
        timestamps: list[int] = []
        for place in range(start, end):
            at_topic, at_partition, offset, timestamp, key, value, headers = records[place]
            body = value or b""
            size = len(body)
            if at_partition != partition or at_topic != topic or headers is None or size > bytes_max or room < 0:
                break
            names = tuple([name for name, _ in headers])
            try:
                order = orders[names]
            except KeyError:
                order = self._learn_order(names)
            if order is None:
                break
            parts = [head, body_head(size), body]
            add = parts.append
            try:
                for which in order.before:
                    header = headers[which]
                    add(pieces[header] if header in pieces else self._piece(header))
                if key is not None:
                    add(_key_head(len(key)))
                    add(key)
                high, rest = _offset_ends(offset >> _OFFSET_BITS)
                add(high)
                add(_OFFSET_STARTS[offset & _OFFSET_MASK] if rest else _SHORT_OFFSETS[offset])
                add(rest)
                add(where)
                for which in order.after:
                    header = headers[which]
                    add(pieces[header] if header in pieces else self._piece(header))
            except Exception:  # noqa: BLE001  # such as a value that is not of its type: the slow way says what it is
                break
            timestamp = max(0, timestamp)
            add(_end(timestamp))
            data = b"".join(parts)
            encoded.append(data)
            timestamps.append(timestamp)
            room -= len(data)
        return PlainRun(address, encoded, timestamps) if encoded else None

    def _learn_address(self, topic: str) -> tuple[str, bytes]:
        address = self._address_of(topic)
        head = message_start(address) if address else b""
        return self._addresses.keep(topic, (address, head), len(topic) + len(address) + len(head))

    def _learn_order(self, names: tuple[str, ...]) -> _Order | None:
        found = [self._classify(name) for name in names]
        own = [each[0] for each in found if each is not None]
        order = None
        if len(set(own)) == len(names) and not any(KAFKA_KEY <= name <= KAFKA_TOPIC for name in own):
            places = sorted(range(len(own)), key=own.__getitem__)
            before = tuple(place for place in places if own[place] < KAFKA_KEY)
            order = _Order(before, tuple(places[len(before) :]))
        return self._orders.keep(names, order, sum(map(len, names)) + _NAME_BYTES * len(names))

    def _piece(self, header: Header) -> bytes:
        """The encoded property of a header. Raises an error for a value that is not of its header's type."""
        name, value = header
        found = self._classify(name)
        assert found is not None, "its names were found to be plain"
        piece = property_entry(found[0], found[1](value))  # type: ignore[arg-type]  # raises for None
        if value is not None and len(value) <= _SHORT_BYTES:
            self._pieces.keep(header, piece, len(name) + len(value) + len(piece))
        return piece

    def _partition(self, topic: str, partition: int) -> bytes:
        piece = property_entry(KAFKA_PARTITION, partition) + property_entry(KAFKA_TOPIC, topic)
        return self._partitions.keep((topic, partition), piece, len(topic) + len(piece))


_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_SHORT_OFFSETS = tuple(varint(offset << 1) for offset in range(1 << _OFFSET_BITS))
_OFFSET_STARTS = tuple(bytes([varint(offset << 1)[0] | 0x80]) for offset in range(1 << _OFFSET_BITS))
assert sorted(KAFKA_FACTS) == [KAFKA_KEY, KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TOPIC]


@lru_cache(maxsize=_KEY_HEADS_KEPT)
def _key_head(size: int) -> bytes:
    """The bytes in front of a key of this size."""
    whole = property_entry(KAFKA_KEY, bytes(size))
    return whole[: len(whole) - size]


@lru_cache(maxsize=_OFFSETS_KEPT)
def _offset_ends(high: int) -> tuple[bytes, bytes]:
    """The bytes before and after the first byte of an encoded offset, from the offset's bits above the low ones."""
    offset = high << _OFFSET_BITS
    number = varint(offset << 1)  # zigzag encoding doubles a number that is not negative
    whole = property_entry(KAFKA_OFFSET, offset)
    return whole[: len(whole) - len(number)], number[1:]


@lru_cache(maxsize=_TIMESTAMPS_KEPT)
def _end(timestamp: int) -> bytes:
    return message_end(PRIORITY_DEFAULT, timestamp)
