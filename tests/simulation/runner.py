"""Runs seeds: one after the other, or in several processes; stops at the first that fails."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from tests.simulation import (
    mutations_columns,
    mutations_disks,
    mutations_kafka,
    mutations_nodes,
    mutations_proofs,
    mutations_reading,
    mutations_tables,
    mutations_writing,
)
from tests.simulation.mutations import MUTATIONS, applied
from tests.simulation.world import World

assert MUTATIONS, (
    mutations_disks,
    mutations_kafka,
    mutations_nodes,
    mutations_proofs,
    mutations_reading,
    mutations_columns,
    mutations_tables,
    mutations_writing,
)


class Result(NamedTuple):
    """What one seed came to."""

    seed: int
    violations: list[str]
    digest: tuple[float, int, int, int, int, int]
    """Simulated time, operations, activations, shard moves, compactions and zombies: the same every time."""
    cut_short: bool
    """Whether somebody noticed that Kafka had lost records, which ends a seed before its plan."""
    own_decisions: int
    """How often a node became active because it decided to, as standbys do."""


def run_seed(seed: int, mutation: str | None = None) -> Result:
    """One seed, with a mutation of the product or as it is."""
    with applied(mutation), _silent(), _collected_at_the_end():
        return _life(seed)


def _life(seed: int) -> Result:
    world = World(seed)
    violations = world.run()
    history = world.history
    counts = history.operations, history.activations, history.moves, history.compactions, history.zombies
    return Result(seed, violations, (world.scheduler.now(), *counts), world.cut_short, history.own_decisions)


def run_some(seeds: Iterable[int], mutation: str | None = None) -> list[Result]:
    """Seeds in turn, up to the first that fails."""
    results = []
    for seed in seeds:
        results.append(run_seed(seed, mutation))
        if results[-1].violations:
            break
    return results


def run_seeds(
    first: int, count: int, mutation: str | None, processes: int, progress: Callable[[int], None]
) -> Iterator[Result]:
    """Results as they come, in chunks spread over processes; ends after the first failure."""
    chunk = max(1, min(50, count // (2 * processes) or 1))
    chunks = [range(seed, min(seed + chunk, first + count)) for seed in range(first, first + count, chunk)]
    done = 0
    with ProcessPoolExecutor(processes) as pool:
        for results in pool.map(run_some, chunks, [mutation] * len(chunks)):
            yield from results
            done += len(results)
            progress(done)
            if results[-1].violations:
                pool.shutdown(wait=False, cancel_futures=True)
                return


@contextmanager
def _collected_at_the_end() -> Iterator[None]:
    """Garbage is collected once, after a life, and not during it, which is faster."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


@contextmanager
def _silent() -> Iterator[None]:
    """The product warns of every fault that it meets: here, that is thousands a second."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
