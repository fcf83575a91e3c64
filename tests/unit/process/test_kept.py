"""The table of kept results is bounded in bytes, whatever senders choose as names and keys."""

from __future__ import annotations

from journal.process.kept import Kept


def test_kept_values_are_found_until_the_table_is_full() -> None:
    kept: Kept[str, int] = Kept(10_000)
    for number in range(1000):
        assert kept.keep(f"name-{number}", number, 300) == number
        assert kept[f"name-{number}"] == number
        assert len(kept) * 300 <= 10_000
    assert 0 < len(kept) < 20


def test_long_values_are_not_kept() -> None:
    kept: Kept[str, int] = Kept()
    assert kept.keep("n" * 20_000, 1, 20_000) == 1
    assert not kept
