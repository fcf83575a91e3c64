"""Reading the WAL back after an error: which frames of this epoch are there, and whether a newer epoch has begun."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from journal.append.writing import Claim
from journal.errors import GapError, StaleReadError
from journal.kafka.ports import Kafka
from journal.process.clocks import Timing
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import Passed, Trim
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence
from journal.wal.reading import WalReader
from journal.wal.transaction import FramePlace


class ReadBack(NamedTuple):
    """The result of reading some shards back from the offsets known before."""

    own: set[FramePlace]
    """Frames of this epoch."""
    newer: dict[int, int]
    """By shard that has a marker of a newer activation, the number of that marker's frame: frames from this number on
    are not of this epoch. The number is 0 if the marker is not of the very next epoch: the marker in between is lost,
    and its frames may have had the same numbers as ours."""
    ends: dict[int, int]
    """By shard without such a marker, the offset up to which it was read."""


class BackReader:
    """Reads one epoch's frames back."""

    def __init__(self, kafka: Kafka, config: WriterConfig, claim: Claim, fence: Fence, timing: Timing) -> None:
        self._kafka = kafka
        self._config = config
        self._claim = claim
        self._fence = fence
        self._timing = timing

    def read(self, shards: Collection[int], known: Sequence[int], there: ReadBack) -> None:
        """Add to `there` this epoch's frames in the committed WAL from the offsets `known` on: in each shard up to the
        first frame of a newer epoch, or the end of now.

        Raises StaleReadError for an end that lies before what is known, and what reading raises. Frames read before the
        error stay in `there`.
        """
        config, timing, topic = self._config, self._timing, wal_topic(self._config.journal)
        reader = WalReader(self._kafka, config.journal, config.uuid, config.shards, timing.clock)
        try:
            for shard, end in reader.high_watermarks(sorted(shards), timing.request_s).items():
                if end < known[shard]:
                    what = f"{topic}[{shard}] ends at offset {end}, and {known[shard] - 1} was acknowledged"
                    raise StaleReadError(what)
                self._read_shard(reader, shard, known[shard], end, there)
        finally:
            reader.close()

    def _read_shard(self, reader: WalReader, shard: int, known: int, end: int, there: ReadBack) -> None:
        claim, request_s = self._claim, self._timing.request_s
        start = max(known, reader.bounds(shard, request_s)[0])
        deleted = self._passed(shard) if start > known else []
        if deleted and deleted[0].epoch == claim.epoch + 1:
            there.newer[shard] = deleted[0].number
            return
        for _, frame in reader.frames(shard, start, end, request_s):
            nonce = frame.nonce
            if frame.epoch > claim.epoch or (nonce and frame.epoch == claim.epoch):
                is_next = nonce != b"" and frame.epoch == claim.epoch + 1
                if start > known and not is_next:
                    break  # the marker of the epoch between is gone, so nothing tells which frames lay before it
                there.newer[shard] = frame.number if is_next else 0
                return
            if frame.epoch == claim.epoch:
                there.own.add(FramePlace(shard, frame.number))
        if start > known:
            topic = wal_topic(self._config.journal)
            raise GapError("frames are gone, and no trim tells of them", topic=topic, partition=shard, offset=known)
        there.ends[shard] = end

    def _passed(self, shard: int) -> list[Passed]:
        """The markers of newer epochs that a trim of the shard has deleted."""
        trim = self._fence.rows().trims.get(shard, Trim())
        return [marker for marker in trim.passed if marker.epoch > self._claim.epoch]
