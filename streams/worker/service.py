"""The worker as a process: it makes a Faust app from the settings, and runs it."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext

from journal.config import Settings
from journal.disk.ports import LocalStore
from journal.disk.rocks import open_copy
from journal.disk.rocks_options import SHARD_FILES
from journal.disk.slots import Slot, take_slot
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.process.background import InBackground
from journal.process.clocks import wall_ms
from journal.process.descriptors import require_descriptors
from journal.table.opening import identity_of_copy, patiently
from journal.table.replica import Replica
from journal.topics.made_and_checked import open_journal
from journal.v1.journal_pb2 import Identity
from journal.words import counted
from streams.agents.agents import OperationAgents, in_daemon_thread
from streams.reading.garbage import collect_seldom
from streams.reading.shell import WorkerShell
from streams.routes.targets import Sizes
from streams.routes.worker_routes import WorkerRoutes
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_table import shard_replica
from streams.worker.standby import StandbyCopies
from streams.worker.trimming import with_trims
from streams.worker.worker import Worker

log = logging.getLogger(__name__)

RECOVERIES_AT_ONCE = 8
"""The most recoveries at the same time. A recovery mostly waits, for seconds if the broker must end a dead worker's
transaction first, but it reads a table with a consumer of its own, which needs memory. Recoveries have threads of their
own, because building a copy anew takes minutes, in which other shards need checkpoints."""


WORKER_DESCRIPTORS = 100
"""Files and connections of a worker, besides those of its shards."""

SHARD_DESCRIPTORS = SHARD_FILES + 16
"""Files and connections of one shard: the files of its copy, and those of RocksDB and a producer besides. Each shard's
partition has one leader, so its producer is connected to few brokers, even in a large cluster."""


def run_service(
    settings: Settings,
    name: str | None,
    *,
    standby: bool = False,
    beside: AbstractContextManager[Callable[[], None]] | None = None,
) -> None:
    """Run a worker of a journal until SIGTERM or SIGINT. Raises the error that ends it before, or keeps it from
    starting.

    `beside` is entered when the worker can start; the function that it gives is called when the worker shall end.
    With `standby` it keeps warm copies of the shards that other workers own. With `trim_every_ms` it trims the WAL.
    """
    gc.freeze()
    collect_seldom()
    kafka = kafka_of(settings)
    timeout_s = settings.request_timeout_ms / 1000
    slot: Slot | None = None
    worker: Worker | None = None
    shell: WorkerShell | None = None
    try:
        rows = patiently(lambda: open_journal(kafka, settings, clock=time.monotonic, timeout_s=timeout_s))
        slot = take_slot(settings.journal_directory, f"worker-{name}" if name else "worker")
        identity = rows.require_identity(settings.journal)
        log.info(
            "worker %s of journal %s (%s) at %s, local copies in %s",
            *(
                settings.node,
                settings.journal,
                counted(identity.shards, "shard"),
                settings.bootstrap_servers,
                slot.path,
            ),
        )
        worker = patiently(lambda: make_worker(kafka, settings, identity, slot, standby=standby))
        shell = with_trims(worker, kafka, settings, rows)
        with beside or nullcontext(_nothing_else) as end_others:
            # the import loads Faust, which takes time: what keeps the worker from starting is told before
            from streams.reading.app import run_worker
            from streams.reading.group_settings import group_settings

            run_worker(shell, group_settings(settings, slot.path.name, identity.shards), end_others)
        if left := worker.held_up():
            log.warning("worker %s stopped; shards %s are left, with what it had read of them", settings.node, left)
        else:
            log.info("worker %s stopped; everything it had read is checkpointed", settings.node)
    finally:
        if shell is not None:
            shell.abandon()
        if slot is not None and not (worker and worker.held_up()):
            slot.release()


def _nothing_else() -> None: ...


def make_worker(
    kafka: Kafka,
    settings: Settings,
    identity: Identity,
    slot: Slot,
    *,
    standby: bool = False,
    tell: OperationAgents | None = None,
) -> Worker:
    """Make the worker's shell, with its local copies under `slot`. `tell` calls a service's agents.

    Raises DescriptorsError, TopicError for a route's topic that cannot be a target, ConfigError.
    """
    timeout_s = settings.request_timeout_ms / 1000
    shards = identity.shards
    require_descriptors(WORKER_DESCRIPTORS + shards * SHARD_DESCRIPTORS, f"a worker, which may have {shards} shards,")
    with closing(kafka.cluster()) as cluster:
        copied = identity_of_copy(cluster, settings, identity, timeout_s)
    limits = settings.limits
    routes = None
    if settings.routing.routes:
        routes = make_worker_routes(kafka, settings, identity)
        routes.check()
    config = ShardConfig(
        journal=settings.journal,
        journal_uuid=identity.journal,
        shards=identity.shards,
        copy_identity=copied,
        checkpoint_interval_s=settings.checkpoint_interval_ms / 1000,
        checkpoint_bytes_max=limits.checkpoint_bytes_of(identity.shards),
        updates_row_bytes_max=limits.updates_row_bytes_max,
        request_timeout_s=timeout_s,
        delete_retention_ms=settings.delete_retention_ms,
        min_compaction_lag_ms=settings.min_compaction_lag_ms,
        held_bytes_max=limits.held_bytes_max,
        tell=tell,
        routes=routes,
    )

    def store(shard: int) -> LocalStore:
        return open_copy(slot.path / f"shard-{shard}", files_max=SHARD_FILES)

    checkpointing: InBackground = in_daemon_thread
    if tell is None:
        # each shard gets a thread, so that shards whose broker does not answer do not block the others
        checkpointing = ThreadPoolExecutor(identity.shards, thread_name_prefix="worker-checkpoint").submit

    def replica(shard: int, copy: LocalStore) -> Replica:
        return shard_replica(shard, config, kafka, copy, clock=time.monotonic, wall_ms=wall_ms)

    return Worker(
        config,
        kafka,
        store,
        clock=time.monotonic,
        wall_ms=wall_ms,
        fenced_pause_s=settings.session_timeout_ms / 1000,
        checkpointing=checkpointing,
        recovering=ThreadPoolExecutor(RECOVERIES_AT_ONCE, thread_name_prefix="worker-recovery").submit,
        opening=ThreadPoolExecutor(RECOVERIES_AT_ONCE, thread_name_prefix="worker-opening").submit,
        reading=in_daemon_thread,
        standby=StandbyCopies(store, replica, timeout_s) if standby else None,
        require_place=slot.require,
    )


def make_worker_routes(kafka: Kafka, settings: Settings, identity: Identity) -> WorkerRoutes:
    """Make the routes, without checking them against the cluster. Raises ConfigError."""
    clients = kafka_of(settings)

    def sized(sizes: Sizes) -> Kafka:
        return clients.sized(record_bytes_max=sizes.record_bytes_max, batch_bytes_max=sizes.batch_bytes_max)

    return WorkerRoutes(
        settings,
        identity.journal,
        kafka,
        sized=sized,
        clock=time.monotonic,
        wall_ms=wall_ms,
        in_background=ThreadPoolExecutor(1, thread_name_prefix="worker-routes").submit,
    )
