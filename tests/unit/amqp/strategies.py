"""Hypothesis strategies for AMQP values, and for the fields of described lists by their tables."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import strategies as st

from journal.amqp import message_types, transport_types
from journal.amqp.described import Composite, CompositeField
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

TYPES: list[type[Composite]] = [
    each
    for module in (transport_types, message_types)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Composite) and each.__module__ == module.__name__
]
"""Every described list of the tables."""


def unsigned(kind: type, bits: int) -> st.SearchStrategy[Any]:
    return st.integers(0, 2**bits - 1).map(kind)


def signed(kind: type, bits: int) -> st.SearchStrategy[Any]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(kind)


ASCII = st.text(string.ascii_letters + "-:.", max_size=300)
SYMBOLS = ASCII.map(Symbol)
TEXTS = st.text(max_size=300)
BINARIES = st.binary(max_size=300)
ULONGS = unsigned(Ulong, 64)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    unsigned(Ubyte, 8),
    unsigned(Ushort, 16),
    unsigned(Uint, 32),
    ULONGS,
    signed(Byte, 8),
    signed(Short, 16),
    signed(Int, 32),
    signed(int, 64),
    signed(Timestamp, 64),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.uuids(),
    BINARIES,
    TEXTS,
    SYMBOLS,
)
ARRAYS = st.one_of(
    st.lists(SYMBOLS, max_size=4).map(lambda items: Array(0xB3, items)),
    st.lists(unsigned(Uint, 32), max_size=4).map(lambda items: Array(0x70, items)),
    st.lists(signed(int, 8), max_size=4).map(lambda items: Array(0x55, items)),
    st.lists(st.uuids(), max_size=4).map(lambda items: Array(0x98, items)),
    st.lists(st.lists(SCALARS, max_size=3), max_size=3).map(lambda items: Array(0xD0, items)),
    st.lists(TEXTS, max_size=4).map(lambda items: Array(0xB1, items, Ulong(99))),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(TEXTS, inner, max_size=4),
        st.builds(Described, SYMBOLS.filter(lambda name: not name.startswith("amqp:")), inner),
    ),
    max_leaves=12,
)

FIELD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "*": SCALARS,
    "annotations": st.dictionaries(SYMBOLS | ULONGS, SCALARS, max_size=3),
    "binary": BINARIES,
    "boolean": st.booleans(),
    "fields": st.dictionaries(SYMBOLS, SCALARS, max_size=3),
    "map": st.dictionaries(TEXTS, SCALARS, max_size=3),
    "message-id": st.one_of(ULONGS, st.uuids(), BINARIES, TEXTS),
    "string": TEXTS,
    "symbol": SYMBOLS,
    "symbol, multiple": st.lists(SYMBOLS, max_size=3).map(tuple),
    "timestamp": signed(Timestamp, 64),
    "ubyte": unsigned(Ubyte, 8),
    "uint": unsigned(Uint, 32),
    "ulong": ULONGS,
    "ushort": unsigned(Ushort, 16),
}


def field_values(row: CompositeField) -> st.SearchStrategy[Any]:
    values = FIELD_VALUES.get(row.type.name)
    if values is None:
        values = st.sampled_from(row.type.accepts).flatmap(composites)
    return values if row.mandatory else st.one_of(st.just(row.default), values)


def composites(kind: type[Composite]) -> st.SearchStrategy[Any]:
    return st.tuples(*map(field_values, kind.TABLE)).map(lambda values: kind(*values))
