"""The size of a plain shard's checkpoints: smaller after failures, and larger again after success."""

from __future__ import annotations

from streams.worker.shard_checkpoint import CheckpointSize


def takes(size: CheckpointSize) -> int:
    """The bytes at which a checkpoint is full."""
    return next(bytes_ for bytes_ in range(1, 2000) if size.is_reached(bytes_, None))


def test_a_checkpoint_that_failed_makes_the_next_one_a_fourth_of_it_and_success_makes_it_larger() -> None:
    size = CheckpointSize(1000)
    found = [takes(size)]
    for _ in range(3):
        size.failed(takes(size), 5)
        found.append(takes(size))
    assert found == [1000, 250, 62, 15]
    size.succeeded(15)
    assert 15 < takes(size) < 20
    for _ in range(100):
        size.succeeded(takes(size))
    assert takes(size) == 1000


def test_a_checkpoint_that_was_refused_or_fenced_leaves_the_size_as_it_is() -> None:
    size = CheckpointSize(1000)
    size.failed_of_any_size()
    assert takes(size) == 1000
