"""What is kept of the senders' names and keys is bounded in bytes, whatever they send."""

from __future__ import annotations

from journal.process.kept import Kept


def test_what_was_kept_is_found_until_there_is_no_room() -> None:
    kept: Kept[str, int] = Kept(10_000)
    for number in range(1000):
        assert kept.keep(f"name-{number}", number, 300) == number
        assert kept[f"name-{number}"] == number
        assert len(kept) * 300 <= 10_000
    assert 0 < len(kept) < 20


def test_what_is_long_is_not_kept() -> None:
    kept: Kept[str, int] = Kept()
    assert kept.keep("n" * 20_000, 1, 20_000) == 1
    assert not kept
