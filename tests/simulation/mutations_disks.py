"""Mutations of how a disk is taken that does not give what it has."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from journal.errors import LocalStorageError
from journal.fold.engine import Fold
from streams.worker.shard_frames import ShardFrames
from tests.simulation.mutations import Patch, mutation


@mutation
def unreadable_rows_are_absent() -> list[Patch]:
    """What a worker cannot read in its copy is not there."""

    def folding(self: Any, mark: Any, base: Any, **more: Any) -> None:
        fold(self, mark, Blind(base), **more)

    class Blind:
        def __init__(self, base: Any) -> None:
            self._base = base

        def get(self, key: bytes) -> bytes | None:
            with suppress(LocalStorageError):
                return self._base.get(key)
            return None

        def scan(self, prefix: bytes) -> Any:
            with suppress(LocalStorageError):
                yield from self._base.scan(prefix)

    fold = Fold.__init__
    return [(Fold, "__init__", folding)]


@mutation
def frame_that_met_the_disk_is_passed_over() -> list[Patch]:
    """A worker goes on behind a frame for which it could not read its copy."""
    apply = ShardFrames._apply

    def applying(self: Any, fold: Any, *record: Any) -> None:
        with suppress(LocalStorageError):
            apply(self, fold, *record)

    return [(ShardFrames, "_apply", applying)]
