"""Xids: what is one, and that they survive their encoding."""

from __future__ import annotations

from typing import Any

import pytest

from journal.errors import XidError
from journal.xa.codes import XaCode
from journal.xa.xid import AnyXid, Xid, as_xid, decode_xid, encode_xid, make_xid, text


@pytest.mark.parametrize(
    "xid", [Xid(0, b"g", b""), Xid(2**31 - 1, bytes(64), bytes(range(64))), make_xid(7, "order 1", "shop")]
)
def test_an_xid_survives_its_encoding(xid: Xid) -> None:
    assert decode_xid(encode_xid(xid)) == xid


@pytest.mark.parametrize(
    ("format_id", "gtrid", "bqual"),
    [
        (-1, b"g", b"b"),
        (2**31, b"g", b"b"),
        (1, b"", b"b"),
        (1, bytes(65), b""),
        (1, b"g", bytes(65)),
        (1, "ü" * 33, ""),
        ("1", b"g", b"b"),
        (None, b"g", b"b"),
        (1.0, b"g", b"b"),
        (True, b"g", b"b"),
        (1, 5, b"b"),
        (1, b"g", 3),
        (1, None, b"b"),
        (1, b"g", None),
        (1, [103], b"b"),
        (1, "\ud800", b"b"),
    ],
)
def test_parts_out_of_range_or_of_another_type_are_no_xid(format_id: Any, gtrid: Any, bqual: Any) -> None:
    with pytest.raises(XidError) as raised:
        make_xid(format_id, gtrid, bqual)
    assert raised.value.code == XaCode.INVAL
    with pytest.raises(XidError) as raised:
        as_xid((format_id, gtrid, bqual))
    assert raised.value.code == XaCode.INVAL


@pytest.mark.parametrize("given", [(1, b"g", b"b"), (1, "g", "b"), Xid(1, b"g", b"b"), make_xid(1, "g", "b")])
def test_a_plain_tuple_of_an_xids_parts_is_taken_as_an_xid(given: AnyXid) -> None:
    xid = as_xid(given)
    assert (type(xid), xid) == (Xid, Xid(1, b"g", b"b"))


@pytest.mark.parametrize("given", [None, 1, b"xid", "1:g", (), (1, b"g"), (1, b"g", b"b", b"more"), [1, b"g", b"b"]])
def test_what_is_no_tuple_of_three_is_no_xid(given: Any) -> None:
    with pytest.raises(XidError) as raised:
        as_xid(given)
    assert raised.value.code == XaCode.INVAL


@pytest.mark.parametrize("data", [b"", b"order 17", b"\xff\xff\xff", b'{"tx": 1}'])
def test_data_that_is_no_xid_is_none(data: bytes) -> None:
    assert decode_xid(data) is None


def test_an_xid_reads_as_pep_249_wants_it() -> None:
    format_id, gtrid, bqual = make_xid(1, "a", "b")
    assert (format_id, gtrid, bqual) == (1, b"a", b"b")


def test_the_text_of_an_xid_is_printable() -> None:
    assert text(make_xid(1, b"a\x00", "b")) == "1:a\\x00:b"
