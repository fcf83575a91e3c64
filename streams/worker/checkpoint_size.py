"""How much one checkpoint of a shard takes, and what its failures say about that."""

from __future__ import annotations

from journal.wal.portion import Portion


class CheckpointSize:
    """How much one checkpoint takes: less after a failure that its size may explain, one group where agents failed."""

    def __init__(self, bytes_max: int) -> None:
        self._portion = Portion(bytes_max)
        self._one_group_to = -1
        """Up to this WAL offset a checkpoint takes one group: agents that were told of several failed."""
        self._failures = 0
        """Number of checkpoints that failed in a row."""
        self.failures_alone = 0
        """How many of the last failed checkpoints held one group only, and nothing else explains their failure."""

    def is_reached(self, size: int, group_end: int | None) -> bool:
        """Whether a checkpoint of `size` bytes takes no more. `group_end` is the WAL offset at which its first group
        ends, if one does and agents or routes are told."""
        if group_end is not None and group_end <= self._one_group_to:
            return True
        return size >= self._portion.bytes

    def succeeded(self, size: int) -> None:
        """A checkpoint of `size` bytes is committed."""
        self._failures = self.failures_alone = 0
        self._portion.succeeded(size)

    def failed(self, size: int, groups: int) -> None:
        """A checkpoint of `size` bytes and so many groups failed, and nothing but its size explains that."""
        self._failures += 1
        self._portion.failed(size)
        self.failures_alone = self.failures_alone + 1 if groups == 1 else 0

    def failed_of_any_size(self) -> None:
        """A checkpoint failed as a smaller one would have: it was fenced or refused."""
        self._failures, self.failures_alone = 1, 0

    def take_one_group_to(self, offset: int) -> None:
        """An agent failed: tell agents of one group a checkpoint, up to this WAL offset."""
        self._one_group_to = offset

    @property
    def wants_reports(self) -> bool:
        """Whether the next checkpoint asks the broker for the fate of each record. Every other one behind a failure
        does, to learn what is refused."""
        return self._failures % 2 == 1
