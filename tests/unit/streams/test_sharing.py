"""How shards are divided among workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.reading.sharing import share_out

MEMBERS = st.sampled_from("abcdefg")
SHARDS = st.integers(0, 40)


def test_workers_that_start_together_share_in_the_order_of_their_names() -> None:
    assert share_out(range(5), {"b": (), "a": ()}) == {"a": [0, 2, 4], "b": [1, 3]}


def test_the_shards_of_a_worker_that_is_gone_go_to_the_others_which_keep_theirs() -> None:
    assert share_out(range(6), {"b": [2, 3], "c": [4, 5]}) == {"b": [0, 2, 3], "c": [1, 4, 5]}


def test_a_new_worker_gets_its_part_and_the_others_keep_the_rest() -> None:
    assert share_out(range(8), {"a": [0, 2, 4, 6], "b": [1, 3, 5, 7], "new": ()}) == {
        "a": [0, 2, 4],
        "b": [1, 3, 5],
        "new": [6, 7],
    }


def test_one_of_two_workers_that_have_had_a_shard_gets_it() -> None:
    assert share_out(range(4), {"a": [0, 1], "b": [0, 1, 2, 3]}) == {"a": [0, 1], "b": [2, 3]}


def test_who_has_more_shards_than_there_is_room_for_all_to_have_keeps_the_odd_one() -> None:
    assert share_out(range(3), {"a": [2], "b": [0, 1]}) == {"a": [2], "b": [0, 1]}


def test_more_workers_than_shards_leave_some_without() -> None:
    assert share_out(range(1), {"a": (), "b": [0], "c": ()}) == {"a": [], "b": [0], "c": []}


@given(shards=st.integers(0, 40), had=st.dictionaries(MEMBERS, st.sets(SHARDS), min_size=1))
def test_every_shard_is_one_members_all_have_as_many_and_none_moves_for_nothing(
    shards: int, had: dict[str, set[int]]
) -> None:
    shared = share_out(range(shards), had)
    assert shared.keys() == had.keys()
    assert sorted(number for numbers in shared.values() for number in numbers) == list(range(shards))
    sizes = [len(numbers) for numbers in shared.values()]
    assert max(sizes) - min(sizes) <= 1
    again = share_out(range(shards), shared)
    assert again == shared


@given(shards=st.integers(1, 40), members=st.sets(MEMBERS, min_size=2), changed=st.data())
def test_no_more_shards_move_than_must_when_a_worker_leaves_or_joins(
    shards: int, members: set[str], changed: st.DataObject
) -> None:
    before = share_out(range(shards), dict.fromkeys(members, ()))
    leaving = changed.draw(st.sampled_from(sorted(members)))
    rest = {member: numbers for member, numbers in before.items() if member != leaving}
    after = share_out(range(shards), rest)
    assert all(set(numbers) <= set(after[member]) for member, numbers in rest.items())
    back = share_out(range(shards), after | {leaving: []})
    moved = sum(len(set(after[member]) - set(back[member])) for member in rest)
    assert moved == len(back[leaving])
