"""The smoke test knows which kinds of transactions its workload came to."""

from __future__ import annotations

import pytest

from tests.chaos.history import Activation
from tests.chaos.smoke import missing_kinds
from tests.chaos.synthetic import SHARDS, made_up

OVER_SEVERAL = "committed over several shards"
PREPARED = "prepared over several shards"
SETTLED = "settled when prepared"


def without(*ops: str) -> list[Activation]:
    """The made-up history, in which no such operation was acknowledged."""
    activations = list(made_up().activations.values())
    for activation in activations:
        activation.done -= {one.n for one in activation.submitted if one.op in ops}
    return activations


def test_a_history_with_transactions_of_all_kinds_misses_none() -> None:
    assert missing_kinds(without(), SHARDS) == []


@pytest.mark.parametrize(
    ("op", "missing"),
    [("commit", [OVER_SEVERAL, SETTLED]), ("prepare", [PREPARED, SETTLED]), ("add", [OVER_SEVERAL, PREPARED])],
)
def test_what_was_not_acknowledged_is_of_no_kind(op: str, missing: list[str]) -> None:
    assert missing_kinds(without(op), SHARDS) == missing


def test_on_one_shard_no_transaction_is_over_several() -> None:
    assert missing_kinds(without(), 1) == [OVER_SEVERAL, PREPARED]
