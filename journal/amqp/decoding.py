"""Bytes to values: the primitive and compound encodings of part 1 of the specification.

Nothing is believed before it is checked. A size that goes beyond what holds it, more than `ITEMS_MAX` items, more than
`DEPTH_MAX` levels, text that is not UTF-8, two equal keys: each is an `AmqpPeerError` with the condition for its
sender.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any
from uuid import UUID

from journal.amqp.conditions import DECODE_ERROR
from journal.amqp.values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from journal.errors import AmqpPeerError

DEPTH_MAX = 32
"""Levels of lists, maps, arrays and descriptors inside each other; more could exhaust the interpreter's stack."""

ITEMS_MAX = 16_384
"""Items of one value in all its levels: a list of nulls costs its sender one byte for each, and the reader far more."""

_LIST8, _LIST32, _MAP8, _MAP32, _ARRAY8, _ARRAY32 = 0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0
_UINT32 = Struct(">I")


def decode_error(text: str) -> AmqpPeerError:
    return AmqpPeerError(DECODE_ERROR, text)


def _number(kind: Callable[[int], Any], *, signed: bool = False) -> Callable[[bytes], Any]:
    from_bytes = int.from_bytes
    if not signed:
        return lambda raw: kind(from_bytes(raw, "big"))
    return lambda raw: kind(from_bytes(raw, "big", signed=True))


def _real(layout: str, kind: Callable[[float], Any]) -> Callable[[bytes], Any]:
    unpack = Struct(layout).unpack
    return lambda raw: kind(unpack(raw)[0])


def _char(raw: bytes) -> Char:
    try:
        return Char(raw.decode("utf-32-be"))
    except UnicodeDecodeError:
        raise decode_error(f"a char is {raw.hex()}, which is no Unicode character") from None


def _boolean(raw: bytes) -> bool:
    if raw[0] > 1:
        raise decode_error(f"a boolean's byte is {raw[0]}, neither 0 nor 1")
    return raw[0] == 1


def _string(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise decode_error("a string is not UTF-8") from None


def _symbol(raw: bytes) -> Symbol:
    try:
        return Symbol(raw.decode("ascii"))
    except UnicodeDecodeError:
        raise decode_error("a symbol is not ASCII") from None


FIXED: dict[int, tuple[int, Callable[[bytes], object]]] = {
    0x40: (0, lambda raw: None),
    0x41: (0, lambda raw: True),
    0x42: (0, lambda raw: False),
    0x43: (0, lambda raw: Uint(0)),
    0x44: (0, lambda raw: Ulong(0)),
    0x45: (0, lambda raw: []),
    0x50: (1, _number(Ubyte)),
    0x51: (1, _number(Byte, signed=True)),
    0x52: (1, _number(Uint)),
    0x53: (1, _number(Ulong)),
    0x54: (1, _number(Int, signed=True)),
    0x55: (1, _number(int, signed=True)),
    0x56: (1, _boolean),
    0x60: (2, _number(Ushort)),
    0x61: (2, _number(Short, signed=True)),
    0x70: (4, _number(Uint)),
    0x71: (4, _number(Int, signed=True)),
    0x72: (4, _real(">f", Float)),
    0x73: (4, _char),
    0x74: (4, Decimal32),
    0x80: (8, _number(Ulong)),
    0x81: (8, _number(int, signed=True)),
    0x82: (8, _real(">d", float)),
    0x83: (8, _number(Timestamp, signed=True)),
    0x84: (8, Decimal64),
    0x94: (16, Decimal128),
    0x98: (16, lambda raw: UUID(bytes=raw)),
}
"""Width and decoder of each encoding of fixed width, by its constructor."""

CONSTANTS: dict[int, object] = {code: FIXED[code][1](b"") for code in range(0x40, 0x45)}
"""The values that are their constructor alone, and can be shared."""

VARIABLE: dict[int, tuple[int, Callable[[bytes], object]]] = {
    0xA0: (1, bytes),
    0xA1: (1, _string),
    0xA3: (1, _symbol),
    0xB0: (4, bytes),
    0xB1: (4, _string),
    0xB3: (4, _symbol),
}
"""Width of the size, and decoder, of each encoding of variable width, by its constructor."""

DESCRIBED_TYPES: dict[object, Callable[[list[object]], object]] = {}
"""Functions that make a value of a described list's fields, by descriptor. `described.py` registers each class of its
tables."""


class ValueReader:
    """Values one after the other, from bytes that end at `end`."""

    __slots__ = ("at", "data", "depth", "end", "items_left")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None, items_max: int = ITEMS_MAX) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end
        self.depth = 0
        self.items_left = items_max

    def value(self) -> Any:
        at = self.at
        if at >= self.end:
            raise decode_error("a value is missing at the end")
        code = self.data[at]
        self.at = at + 1
        if code in CONSTANTS:
            return CONSTANTS[code]
        if code == 0:
            return self._described()
        return self._body(code)

    def _take(self, size: int) -> bytes:
        at = self.at
        stop = at + size
        if stop > self.end:
            raise decode_error(f"a value of {size} bytes goes {stop - self.end} bytes beyond what holds it")
        self.at = stop
        return self.data[at:stop]

    def _body(self, code: int) -> Any:
        fixed = FIXED.get(code)
        if fixed is not None:
            return fixed[1](self._take(fixed[0]))
        variable = VARIABLE.get(code)
        if variable is not None:
            return variable[1](self._take(int.from_bytes(self._take(variable[0]), "big")))
        width = 1 if code in (_LIST8, _MAP8, _ARRAY8) else 4
        stop, count = self._compound(code, width)
        if code in (_LIST8, _LIST32):
            value: Any = [self.value() for _ in range(count)]
        elif code in (_MAP8, _MAP32):
            value = self._map(count)
        else:
            value = self._array(count, stop)
        self._leave(stop)
        return value

    def _compound(self, code: int, width: int) -> tuple[int, int]:
        """The end of a list, map or array and its number of items, both checked."""
        if code not in (_LIST8, _LIST32, _MAP8, _MAP32, _ARRAY8, _ARRAY32):
            raise decode_error(f"0x{code:02x} is no constructor of AMQP 1.0")
        size = int.from_bytes(self._take(width), "big")
        stop = self.at + size
        if size < width or stop > self.end:
            raise decode_error(f"a list, map or array says that it has {size} bytes, which do not fit what holds it")
        count = int.from_bytes(self._take(width), "big")
        if count > self.items_left:
            raise decode_error(f"a value has more than {ITEMS_MAX} items")
        self.items_left -= count
        self._enter()
        return stop, count

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise decode_error(f"a value has more than {DEPTH_MAX} levels")

    def _leave(self, stop: int) -> None:
        self.depth -= 1
        if self.at != stop:
            raise decode_error("the items of a list, map or array do not end where its size says")

    def _map(self, count: int) -> dict[Any, Any]:
        if count % 2:
            raise decode_error("a map has a key without a value")
        found = {}
        for _ in range(count // 2):
            key = self.value()
            try:
                found[key] = self.value()
            except TypeError:
                raise decode_error("a map's key is a list, a map or an array") from None
        if len(found) * 2 != count:
            raise decode_error("a map has two equal keys")
        return found

    def _array(self, count: int, stop: int) -> Array:
        end, self.end = self.end, stop
        code, descriptor = self._take(1)[0], None
        if code == 0:
            descriptor = self.value()
            code = self._take(1)[0]
        items = [self._body(code) for _ in range(count)]
        self.end = end
        return Array(code, items, descriptor)

    def _described(self) -> Any:
        self._enter()
        at = self.at
        if self.data[at : at + 1] == b"\x53" and at + 1 < self.end:
            descriptor: Any = Ulong(self.data[at + 1])
            self.at = at + 2
        else:
            descriptor = self.value()
        value = self.value()
        self.depth -= 1
        try:
            make = DESCRIBED_TYPES.get(descriptor)
        except TypeError:
            raise decode_error("a descriptor is a list, a map or an array") from None
        if make is None:
            return Described(descriptor, value)
        if not isinstance(value, list):
            raise decode_error(f"the value of descriptor {descriptor!r} is not a list")
        return make(value)


def skip_value(data: bytes, at: int, end: int) -> int:
    """Returns where the value at `at` ends, by its constructor and size alone; its inside is not looked at."""
    for _ in range(DEPTH_MAX):
        if at >= end:
            raise decode_error("a value is missing at the end")
        code = data[at]
        at += 1
        if code:
            break
        at = skip_value_plain(data, at, end)
    return _checked_end(data, code, at, end)


def skip_value_plain(data: bytes, at: int, end: int) -> int:
    """`skip_value` for a value that must have no descriptor, such as a descriptor itself."""
    if at >= end or not data[at]:
        raise decode_error("a descriptor is missing, or has a descriptor")
    return _checked_end(data, data[at], at + 1, end)


def _checked_end(data: bytes, code: int, at: int, end: int) -> int:
    if code in FIXED:
        at += FIXED[code][0]
    elif code in VARIABLE or code in (_LIST8, _LIST32, _MAP8, _MAP32, _ARRAY8, _ARRAY32):
        width = 1 if code & 0x10 == 0 else 4
        at += width + int.from_bytes(data[at : at + width], "big")
    else:
        raise decode_error(f"0x{code:02x} is no constructor of AMQP 1.0")
    if at > end:
        raise decode_error(f"a value goes {at - end} bytes beyond what holds it")
    return at
