"""Every faulty variant of the product is caught, and nothing is left of it afterwards."""

from __future__ import annotations

import pytest

from tests.simulation.caught_by import CAUGHT_BY, SEEDS_MAX, caught
from tests.simulation.mutations import MUTATIONS, applied
from tests.simulation.runner import run_seed, run_some

UNFIT = ("TypeError", "AttributeError", "NameError", "UnboundLocalError")
"""What a mutation meets whose functions are not those of the product any more: that catches nothing."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_the_simulation_catches(name: str) -> None:
    result = caught(name)
    assert result is not None, MUTATIONS[name].wrong
    first = result.violations[0]
    assert not first.startswith(UNFIT), f"the mutation does not fit the product: {first}"


def test_there_are_enough_mutations_and_each_says_what_is_wrong() -> None:
    assert len(MUTATIONS) >= 20
    assert all(one.wrong.endswith(".") for one in MUTATIONS.values())


def test_the_seeds_that_are_tried_first_are_of_mutations_and_among_those_that_count() -> None:
    assert CAUGHT_BY.keys() <= MUTATIONS.keys()
    assert all(0 <= seed < SEEDS_MAX for seeds in CAUGHT_BY.values() for seed in seeds)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_the_product_is_as_it_was_afterwards(name: str) -> None:
    patches = MUTATIONS[name].patches()
    before = [vars(target)[attribute] for target, attribute, _ in patches]
    with applied(name):
        assert all(
            vars(target)[attribute] is not was for (target, attribute, _), was in zip(patches, before, strict=True)
        )
    assert all(vars(target)[attribute] is was for (target, attribute, _), was in zip(patches, before, strict=True))


def test_a_seed_after_a_mutation_holds_again() -> None:
    failed = run_some(range(100), "no_read_back")[-1]
    assert failed.violations
    assert run_seed(failed.seed).violations == []
