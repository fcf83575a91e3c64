"""`python -m bench store`: the message store against the bare journal; time and memory of a load of its queues.

Messages of 200 bytes go through 1,000 queues; each is sent, and acknowledged once it is durable, all pipelined. The
bare journal does the same four operations a message (add, route, acknowledge, delete) with the same data. In the first
comparison each call takes many messages, and each side uses its fastest calls for that; in the second one each call is
one operation.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.rounds import Comparison, Figures, Outcome, alternate, say
from bench.scene import TIMEOUT_S, Memory, Scene, rss_mb, worker
from bench.workload import bodies
from journal.append.completion import Completion
from journal.append.operations import DeletedRecords, NewRecords
from journal.config import Settings
from journal.journal import BlockingJournal
from journal.load.loading import LoadCounts, LoadedUpdate, NullLoader
from journal.store.message_records import encode_message
from journal.store.model import Held, Message, QueueConfig
from journal.store.pending import Pending, PendingAll
from journal.store.queues.rocks_index import RocksReferenceIndex
from journal.store.records import encode_address, encode_queue
from journal.store.store import MessageStore
from journal.v1.store_pb2 import ACKNOWLEDGE, ADDRESS, MESSAGE, QUEUE, ROUTE
from loaders.queues import QueueLoader

SHARDS = 8
QUEUES = 1000
MESSAGES = 200_000
BATCHED_MESSAGES = 1_000_000
"""Number of messages in a round whose calls take many messages each. Such a round is fast, and needs more messages to
take seconds too."""
LAG = 20_000
"""Number of messages between a send and its acknowledgement."""
BATCH = 50
"""The number of messages that one call sends to a queue, and that one call acknowledges."""

LOADED_QUEUES = 10_000
LOADED_MESSAGES = 1_000_000
LOADED_BODY_BYTES = 1024
CAPPED_MESSAGES = 10_000_000
CAPPED_REFERENCES = 1_000_000
"""How many references to the CAPPED_MESSAGES messages are kept in memory."""
CAPPED_MB = 768
"""MB of memory that the process may take in addition to what it has before the load. Allocations of more fail."""

_UNBOUNDED = 1 << 40
_SAY_EVERY = 1_000_000


def run(scene: Scene) -> Outcome:
    outcome = Outcome()
    memory = Memory()
    with memory.watch(node_and_bench=os.getpid(), broker=scene.broker_pid):
        comparisons, figures = _enqueue_and_acknowledge(scene, memory)
        outcome.comparisons += comparisons
        outcome.figures |= figures
        outcome.figures |= _load(scene, memory)
        messages, kept = scene.operations(CAPPED_MESSAGES), scene.operations(CAPPED_REFERENCES)
        outcome.figures |= _in_new_process(_capped, scene.directory / "references", messages, kept)
    outcome.figures |= memory.figures()
    return outcome


# ---- enqueue and acknowledge -----------------------------------------------------------------------------------------


def _enqueue_and_acknowledge(scene: Scene, memory: Memory) -> tuple[list[Comparison], Figures]:
    messages, batched = scene.operations(MESSAGES), scene.operations(BATCHED_MESSAGES)
    with (
        scene.journal(SHARDS) as ours_settings,
        scene.journal(SHARDS) as bare_settings,
        BlockingJournal(ours_settings) as ours_journal,
        BlockingJournal(bare_settings) as bare,
    ):
        loader = _loader()
        with worker(ours_settings) as pid, memory.watch(worker=pid):
            ours_journal.activate(loader)
        with worker(bare_settings):
            bare.activate()
        with MessageStore(ours_journal) as store:
            store.start(loader.loaded)
            queues = _declare(store, QUEUES)
            batches, batches_limit = alternate(
                scene.rounds(),
                lambda: _batches_through_store(store, queues, batched),
                lambda: _batches_through_journal(bare, batched),
                what=f"enqueue and acknowledge, {BATCH} messages a call",
            )
            ids = count(1)
            single, single_limit = alternate(
                scene.rounds(),
                lambda: _through_store(store, queues, messages),
                lambda: _through_journal(bare, ids, messages),
                what="enqueue and acknowledge, one by one",
            )
    figures: Figures = {
        "store_batch_messages": BATCH,
        "store_batches_to_bare_single_calls": round(median(batches) / median(single_limit), 3),
    }
    return [
        Comparison("store_enqueue_acknowledge", "operations_per_s", batches, batches_limit, 0.5),
        Comparison("store_enqueue_acknowledge_one_by_one", "operations_per_s", single, single_limit, 0.5),
    ], figures


def _declare(store: MessageStore, number: int) -> list[QueueConfig]:
    """Declares queues, each with an address of its own."""
    queues = [QueueConfig(f"queue-{each}", f"address-{each}") for each in range(number)]
    for queue in queues:
        store.create_address(queue.address)
    store.flush().wait(TIMEOUT_S)
    for queue in queues:
        store.create_queue(queue)
    store.flush().wait(TIMEOUT_S)
    return queues


def _batches_through_store(store: MessageStore, queues: list[QueueConfig], messages: int) -> float:
    """Send and acknowledge messages, many in each call. Returns how many operations the journal took per second."""
    data = bodies()
    waiting: deque[tuple[PendingAll, str]] = deque()
    began = time.perf_counter()
    for first in range(0, messages, BATCH):
        queue = queues[first // BATCH % QUEUES]
        batch = [Message(queue.address, data[number % len(data)]) for number in range(first, first + BATCH)]
        waiting.append((store.send_all(batch, [queue.name]), queue.name))
        if len(waiting) * BATCH > LAG:
            _acknowledge_batch(store, waiting)
    while waiting:
        _acknowledge_batch(store, waiting)
    store.flush().wait(TIMEOUT_S)
    return 4 * messages / (time.perf_counter() - began)


def _acknowledge_batch(store: MessageStore, waiting: deque[tuple[PendingAll, str]]) -> None:
    pending, queue = waiting.popleft()
    store.acknowledge_all([Held(queue, pending.wait(TIMEOUT_S))])


def _batches_through_journal(journal: BlockingJournal, messages: int) -> float:
    data = [encode_message(Message("address-1", body)) for body in bodies()]
    waiting: deque[tuple[Completion, list[int], int]] = deque()
    began = time.perf_counter()
    for first in range(0, messages, BATCH):
        queue = first // BATCH % QUEUES + 1
        ids = journal.new_ids([queue] * BATCH)
        batch = [data[number % len(data)] for number in range(first, first + BATCH)]
        waiting.append((journal.append_all([NewRecords(MESSAGE, ids, batch, ROUTE, queue)]), ids, queue))
        if len(waiting) * BATCH > LAG:
            _settle_batch(journal, waiting)
    while waiting:
        _settle_batch(journal, waiting)
    journal.flush().wait(TIMEOUT_S)
    return 4 * messages / (time.perf_counter() - began)


def _settle_batch(journal: BlockingJournal, waiting: deque[tuple[Completion, list[int], int]]) -> None:
    completion, ids, queue = waiting.popleft()
    completion.wait(TIMEOUT_S)
    journal.append_all([DeletedRecords(ids, ACKNOWLEDGE, b"", queue)])


def _through_store(store: MessageStore, queues: list[QueueConfig], messages: int) -> float:
    """Send and acknowledge messages one by one. Returns how many operations the journal took per second."""
    data = bodies()
    waiting: deque[tuple[Pending, str]] = deque()
    began = time.perf_counter()
    for number in range(messages):
        queue = queues[number % QUEUES]
        message = Message(queue.address, data[number % len(data)])
        waiting.append((store.send(message, [queue.name]), queue.name))
        if len(waiting) > LAG:
            _acknowledge(store, waiting)
    while waiting:
        _acknowledge(store, waiting)
    store.flush().wait(TIMEOUT_S)
    return 4 * messages / (time.perf_counter() - began)


def _acknowledge(store: MessageStore, waiting: deque[tuple[Pending, str]]) -> None:
    pending, queue = waiting.popleft()
    pending.wait(TIMEOUT_S)
    store.acknowledge(pending.id, queue)


def _through_journal(journal: BlockingJournal, ids: Iterator[int], messages: int) -> float:
    data = [encode_message(Message("address-1", body)) for body in bodies()]
    waiting: deque[tuple[Completion, int]] = deque()
    began = time.perf_counter()
    for number in range(messages):
        record_id = next(ids)
        journal.add(record_id, MESSAGE, data[number % len(data)])
        waiting.append((journal.update(record_id, ROUTE, b"", subject=number % QUEUES + 1), record_id))
        if len(waiting) > LAG:
            _settle(journal, waiting)
    while waiting:
        _settle(journal, waiting)
    journal.flush().wait(TIMEOUT_S)
    return 4 * messages / (time.perf_counter() - began)


def _settle(journal: BlockingJournal, waiting: deque[tuple[Completion, int]]) -> None:
    completion, record_id = waiting.popleft()
    completion.wait(TIMEOUT_S)
    journal.update(record_id, ACKNOWLEDGE, b"", subject=record_id % QUEUES + 1)
    journal.delete(record_id)


# ---- load ------------------------------------------------------------------------------------------------------------


def _loader() -> QueueLoader:
    return QueueLoader(references_in_memory_max=_UNBOUNDED, queue_references_in_memory_max=_UNBOUNDED)


def _load(scene: Scene, memory: Memory) -> Figures:
    """Measures the seconds of a load of many queues from a warm copy, and the memory that a message takes."""
    messages = scene.operations(LOADED_MESSAGES)
    queues = scene.operations(LOADED_QUEUES)
    with scene.journal(SHARDS) as settings, worker(settings) as pid, memory.watch(worker=pid):
        with BlockingJournal(settings) as journal, MessageStore(journal) as store:
            loader = _loader()
            journal.activate(loader)
            store.start(loader.loaded)
            declared = _declare(store, queues)
            say(f"{messages:,} messages by {queues:,} producers at once, into a queue each")
            began = time.perf_counter()
            asyncio.run(_fill(store, declared, messages))
            filled_s = time.perf_counter() - began
        figures = {"store_producers": queues, "store_producers_messages_per_s": round(messages / filled_s)}
        return figures | _in_new_process(_measured_load, settings.model_dump(), messages)


def _in_new_process(measure: Callable[..., Figures], *arguments: object) -> Figures:
    """Runs a function in a new process, so that nothing has used memory before it measures."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


async def _fill(store: MessageStore, queues: list[QueueConfig], messages: int) -> None:
    """Sends messages with one task for each queue, all tasks at once. A task awaits each message before it sends the
    next."""
    body = bytes(LOADED_BODY_BYTES)

    async def produce(queue: QueueConfig, number: int) -> None:
        for _ in range(number, messages, len(queues)):
            await store.send(Message(queue.address, body), [queue.name])

    async with asyncio.TaskGroup() as producers:
        for number, queue in enumerate(queues):
            producers.create_task(produce(queue, number))


def _measured_load(values: dict[str, Any], messages: int) -> Figures:
    settings = Settings(**values)
    process = psutil.Process()
    loader = _loader()
    gc.collect()
    with BlockingJournal(settings) as journal:
        journal.activate(NullLoader())  # from here on, clients and RocksDB's caches have taken their memory
    with BlockingJournal(settings) as journal:
        before = rss_mb(process)
        report = journal.activate(loader)
        gc.collect()
        grown = rss_mb(process) - before
    ready = sum(queue.ready for queue in loader.loaded.state.queues())
    if ready != messages:
        raise AssertionError(f"{ready} messages were loaded, not {messages}")
    return {
        "store_load_messages": messages,
        "store_load_s": round(report.load_s, 3),
        "store_load_messages_per_s": round(messages / report.load_s),
        "store_load_bytes_per_message": round(grown * 2**20 / messages),
        "store_load_bytes_per_message_max": 250,
    }


# ---- more than fits --------------------------------------------------------------------------------------------------


def _capped(directory: Path, messages: int, kept: int) -> Figures:
    """Load messages under a memory limit: an index keeps the references beyond `kept`. Then empty one queue."""
    queues = 100
    process = psutil.Process()
    gc.collect()
    before = rss_mb(process)
    cap = _data_bytes() + CAPPED_MB * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    index = RocksReferenceIndex(directory)
    try:
        loader = QueueLoader(references_in_memory_max=kept, queue_references_in_memory_max=kept, index=index)
        memory = Memory()
        with memory.watch(capped=os.getpid()):
            load_s, take_s = _fill_and_take(loader, queues, messages)
        peak = max(memory.peaks.get("capped", before), rss_mb(process))
    finally:
        index.close()
    return {
        "store_capped_messages": messages,
        "store_capped_references_in_memory_max": kept,
        "store_capped_load_s": round(load_s, 1),
        "store_capped_take_per_s": round(messages // queues / take_s),
        "store_capped_rss_growth_mb": round(peak - before),
        "store_capped_mb_max": CAPPED_MB,
    }


def _data_bytes() -> int:
    """Returns the bytes of this process that RLIMIT_DATA counts."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData:")))


def _fill_and_take(loader: QueueLoader, queues: int, messages: int) -> tuple[float, float]:
    state = loader.loaded.state
    data = encode_message(Message("address", bytes(16)))
    began = time.perf_counter()
    loader.begin({})
    loader.record(1, ADDRESS, encode_address("address", 0), (), (0, 0, 0))
    for queue in range(queues):
        loader.record(2 + queue, QUEUE, encode_queue(QueueConfig(f"queue-{queue}", "address")), (), (0, 0, 0))
    for number in range(messages):
        position = (number + 1, 0, 0)
        loader.record(
            1000 + number, MESSAGE, data, (LoadedUpdate(ROUTE, b"", False, 2 + number % queues, position),), position
        )
        if number % _SAY_EVERY == 0:
            say(f"{number:,} of {messages:,} messages told")
    loader.complete(LoadCounts(messages, messages, 0, 0))
    load_s = time.perf_counter() - began
    began = time.perf_counter()
    for expected in range(messages // queues):
        delivery = state.take(2, "bench", 0)
        if delivery is None or delivery.message != 1000 + expected * queues:
            raise AssertionError(f"{delivery} instead of message {1000 + expected * queues}")
        state.acknowledge(delivery.message, 2, "bench")
        state.settled(delivery.message, 2)
    return load_s, time.perf_counter() - began
