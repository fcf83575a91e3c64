"""A schedule says which fault comes next, and a mix has each fault under a name of its own."""

from __future__ import annotations

import random
from itertools import islice

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Fault
from tests.chaos.mix import local_faults
from tests.chaos.run import Plan, schedule

SEED = 7


class Nothing(Fault):
    """Does nothing."""

    def inject(self, cluster: Cluster) -> None: ...

    def heal(self, cluster: Cluster) -> None: ...


FAULTS = [Nothing(f"fault {number}", SEED) for number in range(20)]


def names(seed: int, count: int, *, at_random: bool = True) -> list[str]:
    plan = Plan("mix", FAULTS, at_random=at_random)
    return [fault.name for fault in islice(schedule(plan, random.Random(seed)), count)]


def test_a_mix_has_every_fault_once_before_any_comes_again() -> None:
    for seed in range(20):
        assert sorted(names(seed, 20)) == sorted(fault.name for fault in FAULTS)


def test_the_seed_decides_a_mix() -> None:
    assert names(1, 100) == names(1, 100)
    assert names(1, 20) != names(2, 20)
    assert names(1, 40)[:20] != names(1, 40)[20:]


def test_without_chance_faults_come_in_turn() -> None:
    assert names(1, 45, at_random=False) == [f"fault {number % 20}" for number in range(45)]


def test_a_name_stands_for_one_fault_of_the_mix() -> None:
    names = [fault.name for fault in local_faults(SEED)]
    assert sorted(set(names)) == sorted(names)
