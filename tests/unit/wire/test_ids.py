"""Ids carry their virtual shard; a record's shard follows from its id alone."""

from __future__ import annotations

import pytest

from journal.errors import IdsExhaustedError
from journal.limits import ID_MAX, SEQUENCE_MAX, VIRTUAL_SHARDS
from journal.store.chain.lockstep import chained_id
from journal.wire.ids import (
    home_shard_of,
    is_volatile,
    make_id,
    make_ids,
    make_volatile_id,
    sequence_of,
    shard_of,
)


@pytest.mark.parametrize("sequence", [1, 2, SEQUENCE_MAX])
@pytest.mark.parametrize("virtual_shard", [0, 1, 1023])
def test_an_id_has_the_sequence_and_virtual_shard_it_was_made_of(sequence: int, virtual_shard: int) -> None:
    made = make_id(sequence, virtual_shard)
    assert sequence_of(made) == sequence
    assert made % VIRTUAL_SHARDS == virtual_shard
    assert 0 < made <= ID_MAX


@pytest.mark.parametrize("sequence", [0, -1, SEQUENCE_MAX + 1])
def test_a_sequence_beyond_its_bounds_makes_no_id(sequence: int) -> None:
    with pytest.raises(IdsExhaustedError):
        make_id(sequence, 0)


def test_ids_made_together_have_consecutive_sequences() -> None:
    assert make_ids(5, [0, 1023, 1]) == [make_id(5, 0), make_id(6, 1023), make_id(7, 1)]
    assert make_ids(SEQUENCE_MAX, []) == []
    assert make_ids(SEQUENCE_MAX, [3]) == [make_id(SEQUENCE_MAX, 3)]
    for first in (0, SEQUENCE_MAX):
        with pytest.raises(IdsExhaustedError):
            make_ids(first, [3, 3])


def test_volatile_ids_of_different_epochs_differ_from_each_other_and_from_all_others() -> None:
    last = (1 << 30) - 1
    made = [make_volatile_id(epoch, number, 1023) for epoch in (1, 2, (1 << 21) - 1) for number in (1, 2, last)]
    assert len(set(made)) == len(made)
    assert all(is_volatile(each) and sequence_of(each) > SEQUENCE_MAX and each <= ID_MAX for each in made)
    assert {each % VIRTUAL_SHARDS for each in made} == {1023}
    assert not is_volatile(make_id(SEQUENCE_MAX, 1023))
    assert all(chained_id(each) not in (*made, each) for each in made)
    for number in (0, last + 1):
        with pytest.raises(IdsExhaustedError):
            make_volatile_id(1, number, 0)


@pytest.mark.parametrize("shards", [1, 2, 3, 8, 1024])
def test_virtual_shards_fold_onto_all_shards(shards: int) -> None:
    assert {shard_of(make_id(9, virtual), shards) for virtual in range(VIRTUAL_SHARDS)} == set(range(shards))
    assert all(shard_of(make_id(9, virtual), shards) == virtual % shards for virtual in range(VIRTUAL_SHARDS))


def test_a_transactions_home_shard_follows_from_its_number() -> None:
    assert [home_shard_of(tx, 3) for tx in (1, 2, 3, 1023, 1024, 1025)] == [1, 2, 0, 0, 0, 1]
