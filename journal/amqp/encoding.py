"""Values to bytes: the encodings of part 1 of the specification, each in its shortest form.

A value's Python type says its AMQP type (values.py). What no AMQP type can hold is an `InvalidOperationError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any
from uuid import UUID

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
from journal.errors import InvalidOperationError

NULL = b"\x40"

_FLOAT, _DOUBLE = Struct(">f"), Struct(">d")


def encode_uint(value: int) -> bytes:
    if 0 < value < 256:
        return bytes((0x52, value))
    return b"\x70" + _raw(value, 4) if value else b"\x43"


def encode_ulong(value: int) -> bytes:
    if 0 < value < 256:
        return bytes((0x53, value))
    return b"\x80" + _raw(value, 8) if value else b"\x44"


def encode_ubyte(value: int) -> bytes:
    return b"\x50" + _raw(value, 1)


def encode_ushort(value: int) -> bytes:
    return b"\x60" + _raw(value, 2)


def encode_int(value: int) -> bytes:
    if -128 <= value < 128:
        return b"\x54" + _raw(value, 1, signed=True)
    return b"\x71" + _raw(value, 4, signed=True)


def encode_long(value: int) -> bytes:
    if -128 <= value < 128:
        return b"\x55" + _raw(value, 1, signed=True)
    return b"\x81" + _raw(value, 8, signed=True)


def encode_timestamp(value: int) -> bytes:
    return b"\x83" + _raw(value, 8, signed=True)


def encode_boolean(value: bool) -> bytes:
    return b"\x41" if value else b"\x42"


def encode_binary(value: bytes) -> bytes:
    return _sized(0xA0, bytes(value))


def encode_string(value: str) -> bytes:
    return _sized(0xA1, value.encode())


def encode_symbol(value: str) -> bytes:
    try:
        return _sized(0xA3, value.encode("ascii"))
    except UnicodeEncodeError:
        raise InvalidOperationError(f"{value!r} is no symbol of AMQP: it has characters that are not ASCII") from None


def encode_list(items: Iterable[bytes]) -> bytes:
    """The list of items that are encoded already."""
    encoded = tuple(items)
    return _compound(0xC0, len(encoded), b"".join(encoded)) if encoded else b"\x45"


def encode_map(pairs: Mapping[Any, Any], key: Callable[[Any], bytes] | None = None) -> bytes:
    """The map; `key` encodes each key, else the key's type says how."""
    encode_key = key or encode_value
    items = [part for each, value in pairs.items() for part in (encode_key(each), encode_value(value))]
    return _compound(0xC1, len(items), b"".join(items))


def encode_symbol_array(symbols: Sequence[str]) -> bytes:
    return encode_array(Array(0xA3 if all(len(each) < 256 for each in symbols) else 0xB3, [*map(Symbol, symbols)]))


def encode_array(array: Array) -> bytes:
    constructor = bytes((array.code,))
    if array.descriptor is not None:
        constructor = b"\x00" + encode_value(array.descriptor) + constructor
    return _compound(0xE0, len(array.items), constructor + b"".join(_item(array.code, each) for each in array.items))


def _raw(value: int, width: int, *, signed: bool = False) -> bytes:
    try:
        return int(value).to_bytes(width, "big", signed=signed)
    except OverflowError:
        raise InvalidOperationError(f"{value} does not fit an AMQP number of {8 * width} bits") from None


def _sized(code: int, raw: bytes) -> bytes:
    """`code` is the constructor with a size of one byte; the one with a size of four bytes is 0x10 above it."""
    if len(raw) < 256:
        return bytes((code, len(raw))) + raw
    return bytes((code + 0x10,)) + _raw(len(raw), 4) + raw


def _compound(code: int, count: int, raw: bytes) -> bytes:
    if len(raw) < 255 and count < 256:
        return bytes((code, len(raw) + 1, count)) + raw
    return bytes((code + 0x10,)) + _raw(len(raw) + 4, 4) + _raw(count, 4) + raw


def _item(code: int, value: Any) -> bytes:
    """An array's item: its encoding by the array's constructor, without the constructor."""
    if code in (0x40, 0x41, 0x42, 0x43, 0x44, 0x45):
        return b""
    if code in _ITEM_WIDTHS:
        width, signed = _ITEM_WIDTHS[code]
        return _raw(value, width, signed=signed)
    if code in (0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0):
        return _compound_item(code, value)
    if code in (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3):
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return _raw(len(raw), 1 if code < 0xB0 else 4) + raw
    return encode_value(value)[1:]


_ITEM_WIDTHS = {
    0x50: (1, False),
    0x51: (1, True),
    0x52: (1, False),
    0x53: (1, False),
    0x54: (1, True),
    0x55: (1, True),
    0x56: (1, False),
    0x60: (2, False),
    0x61: (2, True),
    0x70: (4, False),
    0x71: (4, True),
    0x80: (8, False),
    0x81: (8, True),
    0x83: (8, True),
}
"""Width and sign of the numbers that have several encodings, by constructor."""


def _compound_item(code: int, value: Any) -> bytes:
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in map(encode_value, pair)]
    elif isinstance(value, list):
        parts = [*map(encode_value, value)]
    else:
        whole = encode_array(value)
        width, count = (1, whole[2]) if whole[0] == 0xE0 else (4, int.from_bytes(whole[5:9], "big"))
        return _narrow_or_wide(code, count, whole[1 + 2 * width :])
    return _narrow_or_wide(code, len(parts), b"".join(parts))


def _narrow_or_wide(code: int, count: int, raw: bytes) -> bytes:
    width = 4 if code & 0x10 else 1
    return _raw(len(raw) + width, width) + _raw(count, width) + raw


ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: NULL,
    bool: encode_boolean,
    Ubyte: encode_ubyte,
    Ushort: encode_ushort,
    Uint: encode_uint,
    Ulong: encode_ulong,
    Byte: lambda value: b"\x51" + _raw(value, 1, signed=True),
    Short: lambda value: b"\x61" + _raw(value, 2, signed=True),
    Int: encode_int,
    int: encode_long,
    Timestamp: encode_timestamp,
    Float: lambda value: b"\x72" + _FLOAT.pack(value),
    float: lambda value: b"\x82" + _DOUBLE.pack(value),
    Char: lambda value: b"\x73" + value.encode("utf-32-be"),
    Decimal32: lambda value: b"\x74" + value,
    Decimal64: lambda value: b"\x84" + value,
    Decimal128: lambda value: b"\x94" + value,
    UUID: lambda value: b"\x98" + value.bytes,
    bytes: encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
    list: lambda value: encode_list(map(encode_value, value)),
    tuple: lambda value: encode_list(map(encode_value, value)),
    dict: encode_map,
    Array: encode_array,
    Described: lambda value: b"\x00" + encode_value(value.descriptor) + encode_value(value.value),
}
"""Encoder of each Python type; `described.py` adds each class of its tables."""


def encode_value(value: object) -> bytes:
    encoder = ENCODERS.get(type(value))
    if encoder is None:
        raise InvalidOperationError(f"{type(value).__name__} has no type of AMQP 1.0: use one of journal.amqp.values")
    return encoder(value)
