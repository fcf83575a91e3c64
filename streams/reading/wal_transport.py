"""How the worker's Faust app reads the WAL: committed frames, in batches of one shard.

Faust's own consumer does not fit: it reads uncommitted records, makes an event of every record, commits the offsets of
acknowledged events, and seeks to the committed group offset after each rebalance. So this transport replaces the
consumer, the fetcher, the seek and the committed offsets, each at the place that Faust provides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import aiokafka  # type: ignore[import-untyped]
import faust
from aiokafka.errors import ConsumerStoppedError, KafkaError  # type: ignore[import-untyped]
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service

from journal.errors import KafkaUnavailableError
from streams.reading.batches import ShardBatches
from streams.reading.records import Record
from streams.reading.sharing import ShardAssignor
from streams.reading.wal_app import WalApp, wal_app

log = logging.getLogger(__name__)

COMMIT_WAIT_S = 5.0
"""How long a commit of group offsets may take. Nothing depends on it, so a stop waits no longer than this while Kafka
is away."""

CLOSE_WAIT_S = 5.0
"""How long leaving the group may take. Nothing depends on it either."""

METADATA_AGE_MS = 5000
"""How old the client's metadata may become. A broker that is cut off closes no connection, so only fresh metadata show
that another broker leads now."""

POLL_NEVER_LATE_MS = 10**12
"""How long a member may go without a poll: for ever. A worker that recovers, or has no shards, does not poll, and its
heartbeats alone show that it lives."""


class WalConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's thread for the Kafka client, with a client that reads committed records and never resets its offset."""

    mundane_level = "debug"
    _batches: ShardBatches

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        settings = wal_app(self.app).group
        client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap_servers,
            client_id=settings.client_id,
            group_id=settings.group_id,
            partition_assignment_strategy=[ShardAssignor(settings.topic)],
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            max_poll_interval_ms=POLL_NEVER_LATE_MS,
            max_partition_fetch_bytes=settings.fetch_bytes_max,
            fetch_max_wait_ms=settings.fetch_wait_ms,
            check_crcs=True,
            **{"metadata_max_age_ms": METADATA_AGE_MS, **settings.client_properties},
        )
        self._batches = ShardBatches(client, settings.topic, fetch_bytes_max=settings.fetch_bytes_max)
        return client

    async def on_start(self) -> None:
        """Tell the feed of an error, which then stops the app. An error raised here would crash the thread and the app
        at the same time."""
        try:
            await super().on_start()
        except KafkaError as error:
            servers = wal_app(self.app).group.bootstrap_servers
            self._tell(KafkaUnavailableError(f"no broker accepts this client at {servers}: {error!r}"))
            await self.wait_until_stopped()

    def _tell(self, error: Exception) -> None:
        self.parent_loop.call_soon_threadsafe(wal_app(self.app).feed.failed, error)

    def close(self) -> None:
        """Do nothing, because `on_thread_stop` closes the client. Faust would close it in the wrong event loop if a
        rebalance comes during a stop."""

    async def on_thread_stop(self) -> None:
        """Close the client within a time limit, and in a task of its own, because while Kafka is away its fetcher
        raises CancelledError."""
        await asyncio.wait([asyncio.ensure_future(super().on_thread_stop())], timeout=CLOSE_WAIT_S)

    async def fetch(self, shards: Iterable[int], wait_ms: int) -> dict[int, list[Record]]:
        """The records of these shards since the last fetch: at least one, or after `wait_ms` none.

        Raises CorruptionError for one shard that cannot be read on, and KafkaRefusedError.
        """
        records: dict[int, list[Record]] = await self.call_thread(self._fetch, list(shards), wait_ms)
        return records

    async def _fetch(self, shards: Sequence[int], wait_ms: int) -> dict[int, list[Record]]:
        topic = wal_app(self.app).group.topic
        self._ensure_consumer()
        try:
            return await self._batches.fetch(shards, wait_ms)
        except ConsumerStoppedError:
            return {}
        except KafkaError as error:
            if not error.retriable:
                raise wal_app(self.app).group.refused(f"reading {topic}", error) from error
            log.warning("reading %s: %r", topic, error)
            await asyncio.sleep(wait_ms / 1000)
            return {}

    async def seek_shards(self, offsets: Mapping[int, int]) -> bool:
        """Read on from these offsets. False if a shard was lost: then a rebalance has begun, and a new seek will
        follow."""
        moved: bool = await self.call_thread(self._seek_shards, offsets)
        return moved

    async def _seek_shards(self, offsets: Mapping[int, int]) -> bool:
        consumer = self._ensure_consumer()
        topic = wal_app(self.app).group.topic
        places = {aiokafka.TopicPartition(topic, shard): offset for shard, offset in offsets.items()}
        if not consumer.assignment().issuperset(places):
            return False
        self._batches.seek(offsets)
        return True

    async def commit_shards(self, offsets: Mapping[int, int]) -> bool:
        """Commit group offsets. They decide nothing, so a failure is only a warning; the next commit replaces them."""
        committed: bool = await self.call_thread(self._commit_shards, offsets)
        return committed

    async def _commit_shards(self, offsets: Mapping[int, int]) -> bool:
        consumer = self._ensure_consumer()
        topic = wal_app(self.app).group.topic
        places = {aiokafka.TopicPartition(topic, shard): offset for shard, offset in offsets.items()}
        mine = consumer.assignment()
        places = {place: offset for place, offset in places.items() if place in mine}
        if not places:
            return False
        try:
            await asyncio.wait_for(consumer.commit(places), COMMIT_WAIT_S)
        except (KafkaError, TimeoutError) as error:
            log.warning("group offsets were not committed: %r", error)
            return False
        return True

    @Service.task
    async def _watch_membership(self) -> None:
        """Watch for errors of the group, such as a missing permission. The client only raises them at the next fetch,
        and a worker without shards makes none."""
        while not self.should_stop:
            await self.sleep(1.0)
            try:
                self._ensure_consumer()._coordinator.check_errors()
            except KafkaError as error:
                group = wal_app(self.app).group
                self._tell(group.refused(f"group {group.group_id}", error))
                return


class WalConsumer(driver.Consumer):
    """Faust's consumer, with positions and commits that follow the worker's marks."""

    mundane_level = "debug"
    _thread: WalConsumerThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._last_committed: dict[int, int] = {}

    def _new_consumer_thread(self) -> WalConsumerThread:
        return WalConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def fetch(self, shards: Collection[int], wait_ms: int) -> dict[int, list[Record]]:
        """A batch of each shard that has one. The feed drops batches that a rebalance has made stale."""
        batches = await self._thread.fetch(shards, wait_ms)
        monitor = self.app.monitor
        for shard, records in batches.items():
            monitor.count("frames", len(records))
            monitor.track_tp_end_offset(TP(wal_app(self.app).group.topic, shard), records[-1][0] + 1)
        return batches

    async def seek_shards(self, offsets: Mapping[int, int]) -> bool:
        return await self._thread.seek_shards(offsets)

    async def perform_seek(self) -> None:
        """Do nothing. Faust would seek to the committed group offsets, but the shards stand at their marks already."""

    async def commit_and_end_transactions(self) -> None:
        """Do nothing. Faust would commit once more at its stop, but the worker has committed after its last
        checkpoint."""

    async def verify_all_partitions_active(self) -> None:
        """Do nothing. Faust would look for events that its streams did not take, but no events go through its
        streams."""

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit the offsets of marks. Faust calls this at every commit interval, and the worker when it has released
        shards or stops."""
        feed = wal_app(self.app).feed
        offsets = {
            shard: offset for shard, offset in feed.committable().items() if self._last_committed.get(shard) != offset
        }
        if not offsets or not await self._thread.commit_shards(offsets):
            return False
        self._last_committed.update(offsets)
        topic = wal_app(self.app).group.topic
        self.app.monitor.on_tp_commit({TP(topic, shard): offset for shard, offset in offsets.items()})
        return True


class WalFetcher(Service):
    """The service that Faust starts after a rebalance, and stops first."""

    mundane_level = "debug"

    def __init__(self, app: faust.types.AppT, **kwargs: Any) -> None:
        self.app = app
        super().__init__(**kwargs)

    @Service.task
    async def _feed(self) -> None:
        await wal_app(self.app).feed.run(self)


class WalTransport(driver.Transport):
    """Faust's Kafka transport, with this consumer and this fetcher."""

    Consumer = WalConsumer
    Fetcher = WalFetcher


def wal_consumer(app: WalApp) -> WalConsumer:
    """The app's consumer, cast to its real class."""
    assert isinstance(app.consumer, WalConsumer)
    return app.consumer
