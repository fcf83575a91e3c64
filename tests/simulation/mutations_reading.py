"""Mutations of how far the WAL is read: to its last stable offset only, which anybody's open transaction holds back."""

from __future__ import annotations

from collections.abc import Iterable

import journal.activate.claiming
import journal.wal.read_back
import journal.wal.reading
import journal.wal.writer
import loaders.snapshot
from journal.wal.reading import WalReader
from tests.simulation.mutations import Patch, mutation


class _StableWalReader(WalReader):
    """One that looks for nothing behind an open transaction."""

    def high_watermarks(self, shards: Iterable[int], timeout_s: float) -> dict[int, int]:
        return self._reader.ends(tuple(shards), timeout_s)


def _anywhere(*_: object) -> None:
    """Proves nothing."""


@mutation
def tails_end_at_the_last_stable_offset() -> list[Patch]:
    """An activation goes on from the last frame that is visible already, wherever its markers then lie."""
    return [
        (journal.wal.reading, "WalReader", _StableWalReader),
        (journal.activate.claiming, "require_nothing_between", _anywhere),
    ]


@mutation
def read_back_ends_at_the_last_stable_offset() -> list[Patch]:
    """A group that is not visible yet is taken for missing, and sent again, wherever it then lies."""
    return [
        (journal.wal.read_back, "WalReader", _StableWalReader),
        (journal.wal.writer, "require_nothing_between", _anywhere),
    ]


@mutation
def read_only_load_ends_at_the_last_stable_offset() -> list[Patch]:
    """A read-only load reads shards only so far as the group's frames are visible already."""
    return [(loaders.snapshot, "WalReader", _StableWalReader)]
