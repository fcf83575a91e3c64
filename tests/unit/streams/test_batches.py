"""The shard with a damaged batch is found, though the client does not name it and drops what it has read of all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException, NoOffsetForPartitionError, OffsetOutOfRangeError

from journal.errors import CorruptionError, GapError
from streams.reading.batches import TRIES, ShardBatches

TOPIC = "j.wal"
FETCHED = 10
"""Records of a shard that the client has at once."""
VALUE = b"x" * 10


@dataclass(frozen=True)
class Got:
    offset: int
    timestamp: int = 1
    value: bytes = VALUE


class FetchingClient:
    """A client that, like AIOKafkaConsumer, loses what it has read of any shard when it raises for a damaged batch."""

    def __init__(self, ends: Mapping[int, int], damaged: Mapping[int, int]) -> None:
        self.ends = dict(ends)
        self.damaged = dict(damaged)
        self.is_slow: Callable[[int], bool] = lambda shard: False
        self.positions: dict[int, int] = {}
        self.asked = 0

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.positions[place.partition] = offset

    async def getmany(
        self, *places: TopicPartition, timeout_ms: int, max_records: int | None = None
    ) -> dict[TopicPartition, list[Got]]:
        self.asked += 1
        drained: dict[TopicPartition, list[Got]] = {}
        for place in places:
            if place.partition not in self.positions:
                if drained:
                    break
                raise NoOffsetForPartitionError(place)
            first = self.positions[place.partition]
            if self.is_slow(place.partition):
                continue
            count = min(FETCHED, max_records or FETCHED, self.ends[place.partition] - first)
            damaged_at = self.damaged.get(place.partition)
            if damaged_at is not None and first <= damaged_at < first + count:
                self.positions[place.partition] = damaged_at
                raise CorruptRecordException(f"Invalid CRC - {place}")
            if count > 0:
                drained[place] = [Got(offset) for offset in range(first, first + count)]
                self.positions[place.partition] = first + count
            if drained and max_records is not None:
                break
        return drained


class LateClient(FetchingClient):
    """A client whose broker takes long to answer what is asked for once more."""

    def __init__(self, ends: Mapping[int, int], damaged: Mapping[int, int]) -> None:
        super().__init__(ends, damaged)
        self._late_until = 0
        self.is_slow = lambda shard: self.asked < self._late_until

    async def getmany(
        self, *places: TopicPartition, timeout_ms: int, max_records: int | None = None
    ) -> dict[TopicPartition, list[Got]]:
        try:
            return await super().getmany(*places, timeout_ms=timeout_ms, max_records=max_records)
        except CorruptRecordException:
            self._late_until = self.asked + TRIES // 2
            raise


def read(client: FetchingClient, shards: Sequence[int], fetches: int) -> tuple[dict[int, list[int]], CorruptionError]:
    """Offsets by shard, until one cannot be read on, and why."""
    batches = ShardBatches(client, TOPIC, fetch_bytes_max=FETCHED * len(VALUE))
    batches.seek(dict.fromkeys(shards, 0))
    offsets: dict[int, list[int]] = {shard: [] for shard in shards}
    for _ in range(fetches):
        try:
            found = asyncio.run(batches.fetch(shards, 0))
        except CorruptionError as error:
            return offsets, error
        for shard, records in found.items():
            offsets[shard] += [offset for offset, _, _ in records]
    raise AssertionError(f"nothing is damaged: {offsets}")


def read_on(batches: ShardBatches, shards: Sequence[int], fetches: int) -> dict[int, int]:
    """How many records of each shard come with so many fetches."""
    counts = dict.fromkeys(shards, 0)
    for _ in range(fetches):
        for shard, records in asyncio.run(batches.fetch(shards, 0)).items():
            counts[shard] += len(records)
    return counts


def suspicious(client: FetchingClient, fetches: int) -> ShardBatches:
    """Has read its client's shards from their beginning, up to where damage was met; then all of them are whole."""
    batches = ShardBatches(client, TOPIC, fetch_bytes_max=FETCHED * len(VALUE))
    batches.seek(dict.fromkeys(client.ends, 0))
    for _ in range(fetches):
        assert asyncio.run(batches.fetch(tuple(client.ends), 0)) == {}
    client.damaged.clear()
    return batches


@pytest.mark.parametrize("at", [0, 1, 7, 15])
@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_damaged_batch_is_told_with_its_place_behind_all_that_stands_before_it(shard: int, at: int) -> None:
    client = FetchingClient({0: 30, 1: 30, 2: 30}, {shard: at})
    offsets, error = read(client, (0, 1, 2), 60)
    assert (error.topic, error.partition, error.offset) == (TOPIC, shard, at)
    assert offsets[shard] == list(range(at))
    for read_of in offsets.values():
        assert read_of == list(range(len(read_of)))


def test_two_damaged_shards_are_found_one_after_the_other() -> None:
    client = FetchingClient({0: 30, 1: 30}, {0: 3, 1: 4})
    offsets, error = read(client, (0, 1), 60)
    assert error.partition == 0
    client.damaged.pop(0)
    offsets, error = read(client, (0, 1), 60)
    assert (error.partition, error.offset, offsets[1]) == (1, 4, [0, 1, 2, 3])


def test_shards_that_have_nothing_new_or_are_slow_do_not_keep_damage_from_being_found() -> None:
    client = FetchingClient({0: 0, 1: 30, 2: 30}, {2: 5})
    client.is_slow = lambda shard: shard == 2 and client.asked % 3 == 0
    offsets, error = read(client, (0, 1, 2), 60)
    assert (error.partition, error.offset, offsets[2]) == (2, 5, list(range(5)))


def test_a_batch_that_was_damaged_on_its_way_only_is_read_as_all_others() -> None:
    client = FetchingClient({0: 1000}, {0: 5})
    batches = ShardBatches(client, TOPIC, fetch_bytes_max=FETCHED * len(VALUE))
    batches.seek({0: 0})
    for _ in range(2):
        assert asyncio.run(batches.fetch((0,), 0)) == {}
    client.damaged.clear()
    sizes = [len(asyncio.run(batches.fetch((0,), 0))[0]) for _ in range(30)]
    assert sizes == [1] * (2 * FETCHED) + [FETCHED] * 10


def test_shards_with_nothing_new_do_not_keep_the_others_from_being_read_once_the_damage_is_gone() -> None:
    client = FetchingClient({0: 2000, 1: 0, 2: 0, 3: 2000}, {0: 5})
    batches = suspicious(client, 1)
    read_of = read_on(batches, (0, 1, 2, 3), 20)
    assert min(read_of[0], read_of[3]) >= 50
    read_on(batches, (0, 1, 2, 3), 2 * TRIES)
    client.ends |= {1: 10, 2: 10}
    assert read_on(batches, (0, 1, 2, 3), 1) == {0: 10, 1: 10, 2: 10, 3: 10}


def test_a_shard_that_has_nothing_behind_its_damage_does_not_keep_the_others_from_being_read_once_that_is_gone() -> (
    None
):
    client = FetchingClient({0: 8, 1: 2000, 2: 0}, {0: 5})
    batches = suspicious(client, 2)
    read_of = read_on(batches, (0, 1, 2), 20)
    assert read_of[0] == 8
    assert read_of[1] >= 50
    read_on(batches, (0, 1, 2), 2 * TRIES)
    client.ends |= {0: 18, 2: 10}
    assert read_on(batches, (0, 1, 2), 1) == {0: 10, 1: 10, 2: 10}


@pytest.mark.parametrize("count", [1, 2, 2 * TRIES])
def test_damage_is_found_though_answers_are_always_late_and_all_other_shards_have_nothing(count: int) -> None:
    last = count - 1
    client = LateClient(dict.fromkeys(range(count), 0) | {last: 30}, {last: 5})
    offsets, error = read(client, range(count), 10 * TRIES)
    assert (error.partition, error.offset, offsets[last]) == (last, 5, list(range(5)))


def test_shards_are_read_in_turn_with_one_that_is_read_record_by_record() -> None:
    client = FetchingClient({0: 30, 1: 1000}, {0: 9})
    offsets, error = read(client, (0, 1), 30)
    assert (error.partition, error.offset, offsets[0]) == (0, 9, list(range(9)))
    assert len(offsets[1]) >= 9 * FETCHED


def test_two_shards_that_are_damaged_at_once_are_both_found_and_a_third_goes_on() -> None:
    client = FetchingClient({0: 30, 1: 30, 2: 1000}, {0: 9, 1: 4})
    batches = ShardBatches(client, TOPIC, fetch_bytes_max=FETCHED * len(VALUE))
    batches.seek(dict.fromkeys(client.ends, 0))
    shards, offsets = [0, 1, 2], dict[int, list[int]]({0: [], 1: [], 2: []})
    found: dict[int | None, int | None] = {}
    for _ in range(150):
        try:
            for shard, records in asyncio.run(batches.fetch(shards, 0)).items():
                offsets[shard] += [offset for offset, _, _ in records]
        except CorruptionError as error:
            found[error.partition] = error.offset
            shards = [shard for shard in shards if shard != error.partition]
    assert found == {0: 9, 1: 4}
    assert offsets == {0: list(range(9)), 1: list(range(4)), 2: list(range(1000))}


def test_a_shard_that_was_given_back_is_suspected_no_more() -> None:
    client = FetchingClient({0: 30, 1: 30}, {1: 5})
    batches = ShardBatches(client, TOPIC, fetch_bytes_max=FETCHED * len(VALUE))
    batches.seek({0: 0, 1: 0})
    for _ in range(3):
        asyncio.run(batches.fetch((0, 1), 0))
    assert asyncio.run(batches.fetch((0,), 0)).keys() == {0}


def test_an_offset_that_is_gone_is_told_with_its_place() -> None:
    class TrimmedWal(FetchingClient):
        async def getmany(self, *places: TopicPartition, **_: object) -> dict[TopicPartition, list[Got]]:
            raise OffsetOutOfRangeError({places[1]: 7})

    batches = ShardBatches(TrimmedWal({}, {}), TOPIC, fetch_bytes_max=100)
    batches.seek({0: 0, 1: 7})
    with pytest.raises(GapError) as raised:
        asyncio.run(batches.fetch((0, 1), 0))
    assert (raised.value.partition, raised.value.offset) == (1, 7)


def test_a_shard_that_was_given_before_it_is_sought_to_is_waited_for_and_no_error() -> None:
    """Workers never go by a group's offsets, so the client has none to begin at for this shard."""
    batches = ShardBatches(FetchingClient({0: 3, 1: 3}, {}), TOPIC, fetch_bytes_max=FETCHED * len(VALUE))
    batches.seek({0: 0})
    assert read_on(batches, [0, 1], 3) == {0: 3, 1: 0}
    batches.seek({1: 1})
    assert read_on(batches, [0, 1], 1) == {0: 0, 1: 2}
