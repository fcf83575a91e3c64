"""Bounds, and the relations between them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from journal.config import load_settings
from journal.limits import (
    FRAME_OVERHEAD_BYTES,
    ID_MAX,
    OPERATION_OVERHEAD_BYTES,
    SEQUENCE_MAX,
    VIRTUAL_SHARDS,
    Limits,
)
from streams.reading.group_settings import FETCH_BYTES_MAX, FETCHED_BYTES_MAX, group_settings


def test_the_defaults_hold_together() -> None:
    limits = Limits()
    assert limits.message_bytes_max > limits.frame_bytes_max
    assert limits.data_bytes_max + OPERATION_OVERHEAD_BYTES + FRAME_OVERHEAD_BYTES < limits.message_bytes_max


def test_sequences_and_virtual_shards_fill_an_id() -> None:
    assert (4 * SEQUENCE_MAX + 3) * VIRTUAL_SHARDS + VIRTUAL_SHARDS - 1 == ID_MAX


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"frame_bytes_max": 4096}, "does not fit a frame"),
        ({"queue_bytes_max": 4096}, "queue_bytes_max is smaller"),
        ({"queue_operations_max": 100}, "transaction_buffer_operations_max does not fit"),
        ({"transaction_buffer_bytes_max": 64 * 1024 * 1024}, "transaction_buffer_bytes_max does not fit"),
        ({"transaction_buffers_total_bytes_max": 4096}, "transaction_buffer_bytes_max > transaction_buffers_total"),
        ({"staged_operations_max": 2_000_000}, "staged_operations_max > staged_total"),
        ({"staged_bytes_max": 1024 * 1024 * 1024}, "staged_bytes_max > staged_total"),
        ({"checkpoint_bytes_max": 256 * 1024 * 1024}, "no copy could read the largest checkpoint"),
        ({"staged_bytes_max": 256 * 1024 * 1024}, "no copy could read the largest checkpoint"),
        ({"held_bytes_max": 256 * 1024 * 1024}, "make it 369098752 or more"),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(settings: dict[str, int], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Limits(**settings)


def test_an_operation_of_the_largest_data_may_just_fit_a_frame() -> None:
    data = 10_000
    just = data + OPERATION_OVERHEAD_BYTES + FRAME_OVERHEAD_BYTES
    assert Limits(data_bytes_max=data, frame_bytes_max=just).frame_bytes_max == just
    with pytest.raises(ValidationError):
        Limits(data_bytes_max=data, frame_bytes_max=just - 1)


@pytest.mark.parametrize("name", list(Limits.model_fields))
def test_no_bound_is_negative(name: str) -> None:
    with pytest.raises(ValidationError):
        Limits(**{name: -1})


def test_an_unknown_bound_is_refused_and_a_known_one_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Limits(frames_max=1)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Limits().frame_bytes_max = 1


@pytest.mark.parametrize("shards", [1, 8, 9, 64, 256, 1024])
def test_what_is_gathered_and_fetched_is_bounded_for_all_shards_together(shards: int) -> None:
    limits = Limits()
    assert limits.checkpoint_bytes_of(shards) * shards <= limits.gathered_bytes_max
    assert limits.checkpoint_bytes_of(shards) <= limits.checkpoint_bytes_max
    group = group_settings(load_settings(), "worker-0", shards)
    assert 2 * group.fetch_bytes_max * shards <= FETCHED_BYTES_MAX
    assert group.fetch_bytes_max <= FETCH_BYTES_MAX
