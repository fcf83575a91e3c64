"""Ids of records, and the shard that each belongs to. No other module takes an id apart.

id        0 sequence (53 bits) | virtual shard (10 bits)
shard     virtual shard modulo P, P = number of WAL partitions

sequence  0 | 0 number (51 bits)                        issued for records, in order; a mark keeps the highest one
          0 | 1 epoch's low 21 bits | number (30 bits)  issued for things that are not durable and are in no frame; no
                                                        mark knows them, and the epoch keeps their ids unique
          1 | …                                         issued by the stores of a chain behind the first one
"""

from __future__ import annotations

from collections.abc import Sequence

from journal.errors import IdsExhaustedError
from journal.limits import SEQUENCE_MAX, VIRTUAL_SHARDS

_SHARD_BITS = VIRTUAL_SHARDS.bit_length() - 1
SHARD_MASK = VIRTUAL_SHARDS - 1
"""Mask of an id's virtual shard, for hot paths; others call `virtual_shard_of`."""
_NUMBER_BITS = 30
_EPOCH_MASK = (1 << 21) - 1
_VOLATILE = SEQUENCE_MAX + 1


def shard_of(record_id: int, shards: int) -> int:
    """The shard (0 to shards - 1) of a record, from its id alone."""
    return (record_id & SHARD_MASK) % shards


def home_shard_of(tx: int, shards: int) -> int:
    """The shard that holds the data of a prepared transaction, even if none of the transaction's operations is
    there."""
    return (tx & SHARD_MASK) % shards


def make_id(sequence: int, virtual_shard: int) -> int:
    """The id with this sequence (1 to 2^51 - 1) in a virtual shard (0 to 1023). Raises IdsExhaustedError for a larger
    sequence."""
    if not 0 < sequence <= SEQUENCE_MAX:
        raise IdsExhaustedError(f"id sequence {sequence} is beyond {SEQUENCE_MAX}")
    return sequence << _SHARD_BITS | virtual_shard & SHARD_MASK


def make_volatile_id(epoch: int, number: int, virtual_shard: int) -> int:
    """The id of the thing with this number (1 to 2^30 - 1) in an epoch, for things that are never in the journal.
    Raises IdsExhaustedError for a larger number."""
    if not 0 < number < 1 << _NUMBER_BITS:
        raise IdsExhaustedError(f"id number {number} of what is not durable is beyond {(1 << _NUMBER_BITS) - 1}")
    sequence = _VOLATILE | (epoch & _EPOCH_MASK) << _NUMBER_BITS | number
    return sequence << _SHARD_BITS | virtual_shard & SHARD_MASK


def is_volatile(record_id: int) -> bool:
    """Whether an id was issued for a thing that is never in the journal."""
    return bool(sequence_of(record_id) & _VOLATILE)


def make_ids(sequence: int, virtual_shards: Sequence[int]) -> list[int]:
    """One id in each of these virtual shards. Their sequences are consecutive and begin with `sequence`. Raises
    IdsExhaustedError as `make_id` does."""
    if not virtual_shards:
        return []
    make_id(sequence, 0)
    make_id(sequence + len(virtual_shards) - 1, 0)
    return [number << _SHARD_BITS | shard & SHARD_MASK for number, shard in enumerate(virtual_shards, sequence)]


def virtual_shard_of(record_id: int) -> int:
    return record_id & SHARD_MASK


def sequence_of(record_id: int) -> int:
    return record_id >> _SHARD_BITS
