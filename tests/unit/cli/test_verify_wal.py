"""What `verify` leaves of a WAL, and what of it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from journal.cli.verify.wal import WatchedWal
from journal.errors import CorruptionError
from journal.verify.wal_fold import WalRecord


def records(*offsets: int, damaged: bool = False) -> Iterator[WalRecord]:
    for offset in offsets:
        yield offset, 0, None, b""
    if damaged:
        raise CorruptionError("damaged", topic="wal", partition=0, offset=offsets[-1] + 1)


def read_until(wal: WatchedWal, until: int) -> None:
    """Read as `verify_shard` does: the record after `until` is looked at and not used."""
    for offset, *_ in wal:
        if offset > until:
            return


def test_what_was_not_compared_is_counted_up_to_where_the_wal_ended_then() -> None:
    wal = WatchedWal(records(0, 1, 3, 4, 6, 7), lambda: 1)
    read_until(wal, 1)
    assert wal.left(1, end=7) == "3 WAL records behind offset 1, to offset 6: they were compared with nothing"


def test_nothing_is_said_of_a_wal_that_was_compared_to_its_end() -> None:
    wal = WatchedWal(records(0, 1), lambda: 1)
    read_until(wal, 1)
    assert wal.left(1, end=2) == ""


@pytest.mark.parametrize("last", [1, 2, 3])
def test_damage_behind_what_is_needed_ends_it_and_is_told(last: int) -> None:
    wal = WatchedWal(records(*range(last + 1), damaged=True), lambda: 1)
    read_until(wal, 1)
    assert wal.left(1, end=9) == "what lies behind offset 1: it cannot be read to its end"
    assert wal.damage is not None
    assert wal.damage.offset == last + 1


def test_damage_before_what_is_needed_is_an_error() -> None:
    with pytest.raises(CorruptionError):
        read_until(WatchedWal(records(0, damaged=True), lambda: 1), 1)
