"""The gate of an activation."""

from __future__ import annotations

import pytest

from journal.activate.gate import Gate
from journal.append.writing import Claim
from journal.errors import FencedError
from journal.v1.journal_pb2 import Mark


def claim(epoch: int) -> Claim:
    return Claim(epoch, "node", b"%d" % epoch)


def marks(*epochs: int) -> dict[int, Mark]:
    return {shard: Mark(shard=shard, epoch=epoch, nonce=b"%d" % epoch) for shard, epoch in enumerate(epochs)}


def test_the_gate_opens_when_every_shard_stands_at_the_epoch():
    gate = Gate(claim(3), 2)
    assert not gate.offer(marks(2, 2))
    assert gate.waiting() == [0, 1]
    assert not gate.offer(marks(3, 2))
    assert gate.waiting() == [1]
    assert gate.offer(marks(3, 3))
    assert gate.waiting() == []


def test_one_shard_at_a_newer_epoch_is_a_fence_and_never_at_least_ours():
    gate = Gate(claim(3), 2)
    with pytest.raises(FencedError) as caught:
        gate.offer(marks(3, 4))
    assert caught.value.epoch == 4


def test_a_shard_that_passed_and_went_on_to_a_newer_epoch_closes_the_gate_again():
    gate = Gate(claim(3), 2)
    gate.offer(marks(3, 2))
    with pytest.raises(FencedError):
        gate.offer(marks(4, 3))


def test_a_shard_without_a_mark_has_not_passed():
    assert not Gate(claim(1), 2).offer({0: Mark(shard=0, epoch=1, nonce=b"1")})


def test_a_shard_at_the_epoch_of_another_activation_is_no_less_a_fence():
    gate = Gate(claim(3), 2)
    with pytest.raises(FencedError) as caught:
        gate.offer(
            {0: Mark(shard=0, epoch=3, nonce=b"3"), 1: Mark(shard=1, epoch=3, nonce=b"of a counter that went back")}
        )
    assert caught.value.epoch == 3
    assert gate.waiting() == [0, 1]
