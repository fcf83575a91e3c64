"""Batches of shards from the Kafka client, and how the place of a damaged batch is found.

At a damaged batch the client raises an error without naming the shard, and drops all records that it had read before.
So the shards are then read one by one, and the shard with the damage record by record, until the damage is reached; the
records before it are passed on as usual. Meanwhile the shards that were found whole are read together, in turn with it.

The damaged batch may be whole at the next read. So the search also ends by itself after some reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aiokafka import TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import (  # type: ignore[import-untyped]
    CorruptRecordException,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from journal.errors import CorruptionError, GapError
from streams.reading.records import Record

TRIES = 100
"""How many reads of a single shard may give nothing before the shard counts as whole. With `fetch_wait_ms` for each,
this takes longer than the client waits for a broker. If there is still damage, the client raises again and the search
starts over."""


class Client(Protocol):
    """The methods of AIOKafkaConsumer that are used here."""

    async def getmany(
        self, *places: Any, timeout_ms: int, max_records: int | None = None
    ) -> Mapping[Any, Sequence[Any]]: ...

    def seek(self, place: Any, offset: int) -> None: ...


class ShardBatches:
    """Reads the shards of one topic, each from the offset that was sought."""

    def __init__(self, client: Client, topic: str, *, fetch_bytes_max: int) -> None:
        """`fetch_bytes_max` is the most that the client fetches of a shard at once."""
        self._client = client
        self._topic = topic
        self._fetch_bytes_max = fetch_bytes_max
        self._next: dict[int, int] = {}
        self._suspects: list[int] = []
        """Shards of which one has the damaged batch. They are read one by one, in this order."""
        self._damaged: int | None = None
        self._left = 0
        """Bytes that are still to be read alone from the damaged shard. If they show no damage, the shard is taken as
        undamaged."""
        self._tries = 0
        """Number of further reads that may return no record, before the shard that is read alone is taken as
        undamaged."""
        self._is_turn_of_others = False

    def seek(self, offsets: Mapping[int, int]) -> None:
        for shard, offset in offsets.items():
            self._client.seek(TopicPartition(self._topic, shard), offset)
            self._next[shard] = offset

    async def fetch(self, shards: Sequence[int], wait_ms: int) -> dict[int, list[Record]]:
        """The records of these shards that have come: at least one record, or after `wait_ms` none. A shard without a
        position gives nothing, because a rebalance gives shards before the worker says where to read them.

        Raises CorruptionError for a damaged batch, and GapError for an offset that the WAL does not hold. Both concern
        one shard, which must be sought before it is read again. Also raises the client's errors.
        """
        alone = self._alone(shards)
        if alone is None:
            return await self._read(shards, None, wait_ms)
        self._is_turn_of_others = not self._is_turn_of_others
        if self._is_turn_of_others:
            others = [shard for shard in shards if shard != alone and shard not in self._suspects]
            batches = await self._read(others, None, 0) if others else {}
            if batches:
                return batches
        return await self._read([alone], alone, wait_ms)

    async def _read(self, asked: Sequence[int], alone: int | None, wait_ms: int) -> dict[int, list[Record]]:
        places = [TopicPartition(self._topic, shard) for shard in asked]
        one_by_one = alone is not None and alone == self._damaged
        try:
            found = await self._client.getmany(*places, timeout_ms=wait_ms, max_records=1 if one_by_one else None)
        except OffsetOutOfRangeError as error:
            for place, offset in error.args[0].items():
                what = "the WAL does not hold this offset"
                raise GapError(what, topic=self._topic, partition=place.partition, offset=offset) from error
            raise
        except NoOffsetForPartitionError:
            await asyncio.sleep(wait_ms / 1000)  # a shard that was just assigned gets its position a moment later
            return {}
        except CorruptRecordException as error:
            self.seek({shard: self._next[shard] for shard in asked})
            if one_by_one:
                raise self._found(asked[0]) from error
            self._narrow(asked, alone)
            return {}
        batches = {
            place.partition: [(record.offset, record.timestamp, record.value or b"") for record in records]
            for place, records in found.items()
        }
        for shard, records in batches.items():
            self._next[shard] = records[-1][0] + 1
        if alone is not None:
            self._is_whole(alone, batches.get(alone, []))
        return batches

    def _alone(self, shards: Sequence[int]) -> int | None:
        """The shard that must be read alone, if there is one and it is still assigned."""
        if self._damaged is not None:
            if self._damaged in shards:
                return self._damaged
            self._damaged = None
        self._suspects = [shard for shard in self._suspects if shard in shards]
        return self._suspects[0] if self._suspects else None

    def _narrow(self, asked: Sequence[int], alone: int | None) -> None:
        if alone is None:
            self._suspects += asked
        else:
            self._suspects, self._damaged, self._left = [], alone, 2 * self._fetch_bytes_max
        self._tries = TRIES + len(self._suspects)

    def _found(self, shard: int) -> CorruptionError:
        self._damaged = None
        what = "the record batch here is damaged on the broker that was asked"
        return CorruptionError(what, topic=self._topic, partition=shard, offset=self._next[shard])

    def _is_whole(self, alone: int, records: Sequence[Record]) -> None:
        """Note that a read of this shard alone found no damage. Once enough was read, the shard is taken as undamaged:
        the batch may only have been damaged in transfer."""
        if not records:
            self._tries -= 1
        if alone == self._damaged:
            self._left -= sum(len(value) for _, _, value in records)
            if self._left <= 0 or self._tries <= 0:
                self._damaged = None
            return
        self._suspects.remove(alone)
        if not records:
            self._suspects.append(alone)
        if self._tries <= 0:
            self._suspects = []
