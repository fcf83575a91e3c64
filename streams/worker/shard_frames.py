"""How frames get into the fold, and what one shard has applied since its last checkpoint.

Hot path: one call for each frame, which holds hundreds of operations.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from journal.errors import FrameError
from journal.fold.engine import Fold
from journal.limits import SKIPPED_REASON_CHARACTERS_MAX
from journal.process.clocks import Clock
from journal.v1.journal_pb2 import Skipped, SkipRequest
from journal.wire.frames import Frame, decode_frame
from journal.words import shortened
from streams.agents.facts import FrameFacts
from streams.worker.shard_checkpoint import CheckpointSize
from streams.worker.shard_config import ShardConfig

log = logging.getLogger(__name__)


class Gathered:
    """Frames that were applied since the last checkpoint."""

    def __init__(self) -> None:
        self.bytes = 0
        """Size of these frames in the WAL."""
        self.since: float | None = None
        """When the first of these frames was applied; None if there is none."""
        self.is_cut_off = False
        """Whether an epoch marker is among them. The checkpoint is then due at once, because a node waits for it at its
        gate."""
        self.facts: dict[int, FrameFacts] = {}
        """The facts of each frame for agents and routes, by WAL offset."""
        self.group_ends: list[int] = []
        """WAL offsets of the frames that end their group in the shard; only filled if agents or routes are told."""


class ShardFrames:
    """Applies the frames of one shard to its fold. Each recovery makes a new fold."""

    def __init__(self, shard: int, config: ShardConfig, clock: Clock) -> None:
        self.fold: Fold | None = None
        """The fold; None until a recovery has made it."""
        self.gathered = Gathered()
        self.size = CheckpointSize(config.checkpoint_bytes_max)
        self.skips: Mapping[int, SkipRequest] = {}
        """The frames that operators have asked to skip, by WAL offset."""
        self.tells = config.tell is not None or config.routes is not None
        """Whether agents or routes are told of each operation, in order."""
        self._shard = shard
        self._config = config
        self._clock = clock

    def begin(self, fold: Fold) -> None:
        """Continue with the fold that a recovery has made."""
        self.fold, self.gathered = fold, Gathered()

    def checkpointed(self, fold: Fold) -> None:
        """Note that all gathered frames are in the tables and in the local copy."""
        fold.checkpointed()
        self.gathered = Gathered()

    def gathered_bytes(self, fold: Fold) -> int:
        """The size of the checkpoint that is being gathered, in bytes. Operations that outcomes settle count too,
        because a few bytes of frames may settle more than a checkpoint takes."""
        return self.gathered.bytes + fold.settled_bytes

    def is_full(self, fold: Fold) -> bool:
        """Whether the checkpoint that is being gathered takes no more frames."""
        ends = self.gathered.group_ends
        return self.size.is_reached(self.gathered_bytes(fold), ends[0] if ends else None)

    def apply(self, fold: Fold, offset: int, timestamp: int, value: bytes) -> None:
        """Apply the frame at this WAL offset, or skip it if an operator has asked for that.

        Raises CorruptionError for a value that is no frame or does not follow the frame before it, and
        LocalStorageError.
        """
        self._apply(fold, offset, timestamp, value)
        gathered = self.gathered
        gathered.bytes += len(value)
        if gathered.since is None:
            gathered.since = self._clock()

    def _apply(self, fold: Fold, offset: int, timestamp: int, value: bytes) -> None:
        if offset in self.skips:
            self._skip(fold, offset, timestamp, value)
            return
        frame = decode_frame(value, self._config.journal_uuid, self._shard, self._config.shards)
        fold.apply(offset, timestamp, frame)
        self.gathered.is_cut_off |= frame.nonce != b""
        if self.tells:
            self.gathered.facts[offset] = FrameFacts(frame.epoch, frame.node, frame.group, timestamp)
            if fold.at_group_boundary:
                self.gathered.group_ends.append(offset)

    def _skip(self, fold: Fold, offset: int, timestamp: int, value: bytes) -> None:
        request = self.skips[offset]
        try:
            frame: Frame | None = decode_frame(value, self._config.journal_uuid, self._shard, self._config.shards)
            reason = "it parses as a frame; skipped all the same"
        except FrameError as error:
            frame, reason = None, error.reason
        log.warning("shard %d: skipped offset %d for %s: %s", self._shard, offset, request.operator, reason)
        row = Skipped(
            shard=self._shard,
            offset=offset,
            raw=value,
            reason=shortened(reason, SKIPPED_REASON_CHARACTERS_MAX),
            operator=request.operator,
            timestamp=request.timestamp,
        )
        fold.skip(row, timestamp, frame)
