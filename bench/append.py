"""`python -m bench append`: appends through the journal, against confluent-kafka's producers on the same broker.

The worker is needed for the activation and is stopped for the rounds, because the limits are measured without one too.
One figure shows the rate with a running worker.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from bench import limits
from bench.rounds import Comparison, Outcome, Series, alternate, quantile, say
from bench.scene import TIMEOUT_S, Memory, Scene, worker
from bench.workload import RECORD_KIND, append_patiently, bodies
from journal.append.completion import Completion
from journal.config import Settings
from journal.errors import FullError
from journal.journal import BlockingJournal

PIPELINED = 1_000_000
TASKS = 2000
APPENDS_EACH = 40
LATENCY_RATE = 1000
LATENCY_S = 8.0
LATENCY_WARM_UP = 3
"""Rounds until the broker's JVM has compiled the code of short transactions; until then p99 is three times as high."""


def run(scene: Scene) -> Outcome:
    outcome = Outcome()
    memory = Memory()
    with memory.watch(node_and_bench=os.getpid(), broker=scene.broker_pid):
        for shards in (1, 8):
            with _active(scene, shards) as (journal, _):
                outcome.comparisons.append(_pipelined(scene, journal, shards))
                if shards == 1:
                    outcome.comparisons.append(_awaited(scene, journal))
                    comparisons, figures = _latency(scene, journal)
                    outcome.comparisons += comparisons
                    outcome.figures |= figures
        with _active(scene, 8, keep_worker=True) as (journal, worker_pid), memory.watch(worker=worker_pid):
            ids = count(1)
            rates = [_pipeline(journal, ids, scene.operations(PIPELINED)) for _ in range(scene.rounds())]
            beside = Series("append_8_shards_beside_worker", "operations_per_s", rates)
            outcome.figures |= beside.figures()
    outcome.figures |= memory.figures()
    return outcome


@contextmanager
def _active(scene: Scene, shards: int, *, keep_worker: bool = False) -> Iterator[tuple[BlockingJournal, int]]:
    with scene.journal(shards) as settings:
        if keep_worker:
            with worker(settings) as pid, _activated(settings) as journal:
                yield journal, pid
            return
        with BlockingJournal(settings) as journal:
            with worker(settings) as pid:
                journal.activate()
            yield journal, pid


@contextmanager
def _activated(settings: Settings) -> Iterator[BlockingJournal]:
    with BlockingJournal(settings) as journal:
        journal.activate()
        yield journal


# ---- pipelined -------------------------------------------------------------------------------------------------------


def _pipelined(scene: Scene, journal: BlockingJournal, shards: int) -> Comparison:
    name = f"append_{shards}_shard{'s' if shards > 1 else ''}"
    operations = scene.operations(PIPELINED)
    data = bodies()
    singles = limits.SingleRecords(scene.bootstrap, shards)
    ids = count(1)
    ours, limit = alternate(
        scene.rounds(),
        lambda: _pipeline(journal, ids, operations),
        lambda: singles.run(data, operations),
        what=name,
    )
    return Comparison(name, "operations_per_s", ours, limit, 1.0)


def _pipeline(journal: BlockingJournal, ids: Iterator[int], operations: int) -> float:
    """Append as a typical caller does: it chooses the ids, keeps all completions, and waits for them at the end.

    Returns the number of operations per second.
    """
    data = bodies()
    size = len(data)
    add = journal.add
    completions: list[Completion] = []
    keep = completions.append
    began = time.perf_counter()
    for number in range(operations):
        record_id = next(ids)
        try:
            keep(add(record_id, RECORD_KIND, data[number % size]))
        except FullError:
            keep(append_patiently(journal, partial(add, record_id, RECORD_KIND, data[number % size])))
    for completion in completions:
        completion.wait(TIMEOUT_S)
    return operations / (time.perf_counter() - began)


# ---- each awaited ----------------------------------------------------------------------------------------------------


def _awaited(scene: Scene, journal: BlockingJournal) -> Comparison:
    topic = limits.new_topic(scene.bootstrap, 1)
    each = max(2, scene.operations(TASKS * APPENDS_EACH) // TASKS)
    data = bodies()
    ids = count(1 << 40)
    ours, limit = alternate(
        scene.rounds(),
        lambda: asyncio.run(_await_each(journal, ids, each)),
        lambda: asyncio.run(limits.aio_rate(scene.bootstrap, topic, data, TASKS, each)),
        what=f"append awaited by {TASKS} tasks",
    )
    return Comparison("append_awaited_by_2000_tasks", "operations_per_s", ours, limit, 2.0)


async def _await_each(journal: BlockingJournal, ids: Iterator[int], each: int) -> float:
    data = bodies()
    size = len(data)

    async def task(first: int) -> None:
        for number in range(first, first + each):
            await journal.add(next(ids), RECORD_KIND, data[number % size])

    began = time.perf_counter()
    await asyncio.gather(*(task(number * each) for number in range(TASKS)))
    return TASKS * each / (time.perf_counter() - began)


# ---- latency ---------------------------------------------------------------------------------------------------------


def _latency(scene: Scene, journal: BlockingJournal) -> tuple[list[Comparison], dict[str, float | int | str]]:
    """Compares an append, from call to completion, with a transaction, from begin to commit, at 1,000 a second each."""
    topic = limits.new_topic(scene.bootstrap, 1)
    data = bodies()
    seconds = LATENCY_S / 4 if scene.quick else LATENCY_S
    producer = limits.new_transactional(scene.bootstrap)
    ids = count(1 << 41)
    ours: list[list[float]] = []
    limit: list[list[float]] = []

    def append_round() -> float:
        ours.append(asyncio.run(_open_loop(journal, ids, LATENCY_RATE, seconds)))
        return quantile(ours[-1], 0.5) * 1000

    def transaction_round() -> float:
        limit.append(limits.transaction_seconds(producer, topic, data, LATENCY_RATE, seconds))
        return quantile(limit[-1], 0.5) * 1000

    warm_up = 1 if scene.quick else LATENCY_WARM_UP
    alternate(scene.rounds(), append_round, transaction_round, what="append latency, p50 in ms", warm_up=warm_up)
    ours, limit = ours[warm_up:], limit[warm_up:]
    comparisons = [
        Comparison(
            f"append_latency_{label}",
            "ms",
            [quantile(values, share) * 1000 for values in ours],
            [quantile(values, share) * 1000 for values in limit],
            target,
            less_is_better=True,
        )
        for label, share, target in (("p50", 0.5, 0.45), ("p99", 0.99, 0.3))
    ]
    transactions = Series("append_latency_limit", "transactions_per_s", [len(one) / seconds for one in limit])
    appends = Series("append_latency", "appends_per_s", [len(one) / seconds for one in ours])
    say(f"the limit did {transactions.median:.0f} of {LATENCY_RATE} transactions a second")
    return comparisons, appends.figures() | transactions.figures()


async def _open_loop(journal: BlockingJournal, ids: Iterator[int], rate: int, seconds: float) -> list[float]:
    """Returns for each append the seconds from its call to its completion; no append waits for another.

    The time begins with the call and not when the append was due: an event loop's timers are a millisecond late, and
    the delay of the limit's transactions is not counted either.
    """
    data = bodies()
    latencies: list[float] = []

    async def append(number: int) -> None:
        called = time.perf_counter()
        await journal.add(next(ids), RECORD_KIND, data[number % len(data)])
        latencies.append(time.perf_counter() - called)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            wait_s = began + number / rate - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            tasks.create_task(append(number))
    return latencies
