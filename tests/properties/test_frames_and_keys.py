"""The engine applies or refuses a damaged frame as a whole; keys sort as their numbers do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.errors import FrameError, GapError
from journal.fold.engine import Fold
from journal.v1.journal_pb2 import Mark
from journal.wire import keys
from journal.wire.frames import decode_frame
from tests.support.build import JOURNAL, DictBase
from tests.support.golden import WalEntry
from tests.support.histories import histories

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
SMALL = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1))


@given(histories(frames_max=4), st.data())
def test_the_engine_applies_or_refuses_mutated_frames_and_stays_whole(
    entries: list[WalEntry], data: st.DataObject
) -> None:
    fold = Fold(Mark(offset=-1), DictBase(), updates_row_bytes_max=0)
    for entry in entries:
        raw = bytearray(entry.value)
        if raw and data.draw(st.booleans()):
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
        before = fold.mark.SerializeToString()
        try:
            fold.apply(entry.offset, entry.timestamp_ms, decode_frame(bytes(raw), JOURNAL, 0, 1))
        except (FrameError, GapError):
            assert fold.mark.SerializeToString() == before
        assert fold.changes()[-1] == (keys.mark_key(0), fold.mark.SerializeToString())


@given(st.lists(NUMBERS, min_size=2, max_size=2), st.lists(st.tuples(NUMBERS, SMALL, SMALL), min_size=2, max_size=2))
def test_spilled_keys_sort_as_id_and_position(ids: list[int], places: list[tuple[int, int, int]]) -> None:
    pairs = list(zip(ids, places, strict=True))
    made = [keys.spilled_key(id, *place) for id, place in pairs]
    assert (made[0] < made[1]) == (pairs[0] < pairs[1])


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 1023), NUMBERS, SMALL), min_size=2, max_size=2))
def test_staged_keys_sort_as_their_numbers_and_begin_with_their_prefix(parts: list[tuple[int, int, int, int]]) -> None:
    made = [keys.staged_key(*part) for part in parts]
    assert (made[0] < made[1]) == (parts[0] < parts[1])
    assert all(
        key.startswith(keys.staged_prefix(tx, shard)) for key, (tx, shard, _, _) in zip(made, parts, strict=True)
    )


@given(NUMBERS, NUMBERS, SMALL, SMALL, st.integers(0, 255), NUMBERS)
def test_rows_of_a_record_follow_it_and_precede_the_next(
    id: int, offset: int, index: int, ordinal: int, kind: int, subject: int
) -> None:
    of_record = [
        keys.record_key(id),
        keys.updates_key(id),
        keys.spilled_key(id, offset, index, ordinal),
        keys.spilled_replaceable_key(id, kind, subject),
    ]
    assert of_record == sorted(of_record)
    assert of_record[-1] < keys.record_key(id + 1)
    assert {keys.record_id_of(key) for key in of_record} == {id}
    assert [keys.row_type(key).value for key in of_record] == ["record", "updates", "spilled", "spilled"]
