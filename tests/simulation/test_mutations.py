"""Every faulty variant of the product is caught, and nothing is left of it afterwards."""

from __future__ import annotations

from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from tests.simulation.mutations import MUTATIONS, applied
from tests.simulation.runner import run_seed, run_some

SEEDS_MAX = 2000


def _caught(name: str) -> int | None:
    """The first seed that fails with the mutation."""
    last = run_some(range(SEEDS_MAX), name)[-1]
    return last.seed if last.violations else None


@pytest.fixture(scope="module")
def caught() -> dict[str, Future[int | None]]:
    with ProcessPoolExecutor(2) as pool:
        return {name: pool.submit(_caught, name) for name in MUTATIONS}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_the_simulation_catches(name: str, caught: dict[str, Future[int | None]]) -> None:
    assert caught[name].result() is not None, MUTATIONS[name].wrong


def test_there_are_enough_mutations_and_each_says_what_is_wrong() -> None:
    assert len(MUTATIONS) >= 20
    assert all(one.wrong.endswith(".") for one in MUTATIONS.values())


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
