"""Xids: what is one, and that they survive their encoding."""

from __future__ import annotations

import pytest

from journal.errors import XidError
from journal.xa.codes import XaCode
from journal.xa.xid import Xid, decode_xid, encode_xid, make_xid, text


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
    ],
)
def test_parts_out_of_range_are_no_xid(format_id: int, gtrid: bytes | str, bqual: bytes) -> None:
    with pytest.raises(XidError) as raised:
        make_xid(format_id, gtrid, bqual)
    assert raised.value.code == XaCode.INVAL


@pytest.mark.parametrize("data", [b"", b"order 17", b"\xff\xff\xff", b'{"tx": 1}'])
def test_data_that_is_no_xid_is_none(data: bytes) -> None:
    assert decode_xid(data) is None


def test_an_xid_reads_as_pep_249_wants_it() -> None:
    format_id, gtrid, bqual = make_xid(1, "a", "b")
    assert (format_id, gtrid, bqual) == (1, b"a", b"b")


def test_the_text_of_an_xid_is_printable() -> None:
    assert text(make_xid(1, b"a\x00", "b")) == "1:a\\x00:b"
