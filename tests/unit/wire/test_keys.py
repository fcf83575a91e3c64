"""Keys of rows are fixed bytes; their tag and length tell their type."""

from __future__ import annotations

import pytest

from journal.errors import RowError
from journal.wire import keys
from journal.wire.keys import RowType, row_type

KEYS = {
    RowType.RECORD: [keys.record_key(0x0102030405060708)],
    RowType.UPDATES: [keys.updates_key(0x0102030405060708)],
    RowType.SPILLED: [keys.spilled_key(1, 2, 3, 4), keys.spilled_replaceable_key(1, 255, 2**63 - 1)],
    RowType.TRANSACTION: [keys.transaction_key(7, 1023)],
    RowType.STAGED: [keys.staged_key(7, 1023, 2, 3)],
    RowType.MARK: [keys.mark_key(5)],
    RowType.SKIPPED: [keys.skipped_key(5, 6)],
}


def test_keys_are_the_bytes_that_the_format_draws() -> None:
    assert [key.hex(" ") for made in KEYS.values() for key in made] == [
        "72 01 02 03 04 05 06 07 08",
        "72 01 02 03 04 05 06 07 08 01",
        "72 00 00 00 00 00 00 00 01 02 00 00 00 00 00 00 00 02 00 00 00 03 00 00 00 04",
        "72 00 00 00 00 00 00 00 01 03 ff 7f ff ff ff ff ff ff ff",
        "74 00 00 00 00 00 00 00 07 03 ff",
        "78 00 00 00 00 00 00 00 07 03 ff 00 00 00 00 00 00 00 02 00 00 00 03",
        "6d 00 05",
        "73 00 05 00 00 00 00 00 00 00 06",
    ]


@pytest.mark.parametrize("type", RowType)
def test_a_key_says_what_its_row_is(type: RowType) -> None:
    assert {row_type(key) for key in KEYS[type]} == {type}
    assert {keys.is_xa(key) for key in KEYS[type]} == {type in (RowType.TRANSACTION, RowType.STAGED)}


def test_a_key_tells_the_shard_of_its_row() -> None:
    shards = {type: {keys.shard_of_row(key, 6) for key in KEYS[type]} for type in RowType}
    of_records = {RowType.RECORD: {0x308 % 6}, RowType.UPDATES: {0x308 % 6}, RowType.SPILLED: {1}}
    assert shards == of_records | {
        RowType.TRANSACTION: {1023},
        RowType.STAGED: {1023},
        RowType.MARK: {5},
        RowType.SKIPPED: {5},
    }


@pytest.mark.parametrize("key", [b"r", b"q" + bytes(8), b"r" + bytes(7), b"m" + bytes(3), b"journal"])
def test_bytes_that_the_format_does_not_draw_are_no_key(key: bytes) -> None:
    with pytest.raises(RowError, match=key.hex()):
        row_type(key)
