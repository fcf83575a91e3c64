"""The WAL as the worker's Faust app reads it: committed frames, a fetched batch of a shard at a time.

Faust keeps the group membership, the rebalances, the lifecycle, the commit timer and the sensors. Its own way of
handing records on does not fit here: it reads uncommitted, makes an event of every record, commits what was acked,
and seeks to the committed group offset after each rebalance. So this transport replaces the consumer's making, the
fetcher, the seek and what is committed, each at the place that Faust has for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiokafka  # type: ignore[import-untyped]
import faust
from aiokafka.errors import ConsumerStoppedError, KafkaError  # type: ignore[import-untyped]
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service

from journal.errors import KafkaRefusedError, KafkaUnavailableError
from journal.kafka.access import access_of, on_group, on_topic
from journal.topics.names import wal_topic, worker_group
from streams.reading.batches import ShardBatches
from streams.reading.client_properties import aiokafka_properties
from streams.reading.records import Record
from streams.reading.sharing import ShardAssignor

log = logging.getLogger(__name__)

COMMIT_WAIT_S = 5.0
CLOSE_WAIT_S = 5.0
"""Group offsets and leaving the group are courtesies: with Kafka away a stop waits no longer than this for each."""

METADATA_AGE_MS = 5000
"""A broker that is cut off without a word closes no connection: only metadata tell that another leads now."""

REBALANCE_MS_MIN = 5000
"""Longer than a worker takes for its last checkpoints, and than brokers let the first member of a group wait (3 s)."""

REQUEST_MARGIN_MS = 2000

POLL_NEVER_LATE_MS = 10**12
"""A worker that recovers, or has no shards, does not poll. Heartbeats alone say whether it lives."""


FETCH_BYTES_MAX = 4 * 1024 * 1024

FETCHED_BYTES_MAX = 256 * 1024 * 1024
"""What a worker holds in fetches of all shards: each has its part."""


@dataclass(frozen=True)
class SourceSettings:
    """How the group is joined and the WAL is read. `client_properties` are keyword arguments of AIOKafkaConsumer."""

    bootstrap_servers: str
    topic: str
    group_id: str
    client_id: str = "kafka-journal-worker"
    """Workers that start together share the shards in the order of these."""
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 300
    """A member hears of a rebalance with its next heartbeat, and until all have heard no shard moves: that of a dead
    worker neither, for which a node waits at its gate. Three small requests a second are a low price."""
    commit_interval_ms: int = 3_000
    retry_backoff_ms: int = 250
    """The client logs each attempt, so with Kafka away this is how fast the log grows."""
    fetch_bytes_max: int = FETCH_BYTES_MAX
    """Of one shard in one fetch. A worker holds up to two fetches of each of its shards."""
    fetch_wait_ms: int = 100
    """A shard whose last batch was taken late joins the next fetch only: so a fetch must not wait long for others."""
    client_properties: Mapping[str, Any] = field(default_factory=dict)

    def refused(self, doing: str, error: KafkaError) -> KafkaRefusedError:
        """What Kafka has refused, and what allows it if a rule does not."""
        user = self.client_properties.get("sasl_plain_username", "")
        protocol = self.client_properties.get("security_protocol", "PLAINTEXT")
        access = access_of(self.bootstrap_servers, {"sasl.username": user, "security.protocol": protocol})
        asks = access.asks(on_group(self.group_id, "Read"), on_topic(self.topic, "Read"))
        code = getattr(error, "errno", 0)  # only what a broker has answered has one
        return KafkaRefusedError(": ".join(filter(None, (doing, repr(error), asks.lacking(code)))))

    @property
    def rebalance_timeout_ms(self) -> int:
        """Whoever has not joined again by then is left out, so that the others wait for it no longer than for one that
        is dead. It joins as a new one, and goes on where it was with those shards that it gets again."""
        return max(REBALANCE_MS_MIN, self.session_timeout_ms)

    @property
    def request_timeout_ms(self) -> int:
        """A join is not answered before all have joined. A coordinator that is cut off without a word is asked in vain
        for as long, and nobody else is; a broker that takes longer to answer could keep no member anyway."""
        return self.rebalance_timeout_ms + REQUEST_MARGIN_MS


class MemberSettings(Protocol):
    """Those of `journal.config.Settings` that a member of the worker's group has need of."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def journal(self) -> str: ...

    @property
    def node(self) -> str: ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def client_properties(self) -> Mapping[str, str]: ...


def source_settings(settings: MemberSettings, name: str, shards: int) -> SourceSettings:
    """How the worker's Faust app joins its group and reads the WAL, which has so many shards."""
    return SourceSettings(
        settings.bootstrap_servers,
        wal_topic(settings.journal),
        worker_group(settings.journal),
        client_id=f"{worker_group(settings.journal)}.{settings.node}.{name}",
        session_timeout_ms=settings.session_timeout_ms,
        fetch_bytes_max=min(FETCH_BYTES_MAX, FETCHED_BYTES_MAX // (2 * shards)),
        client_properties=aiokafka_properties(settings.client_properties),
    )


class Feed(Protocol):
    """What the fetcher drives. Called in the app's event loop."""

    async def run(self, fetcher: Service) -> None:
        """Read and hand on until the fetcher stops. Errors are the feed's own business: it raises none."""

    def failed(self, error: Exception) -> None:
        """The Kafka client could not start, or may not be in the group: the app is to be stopped."""

    def committable(self) -> Mapping[int, int]:
        """Per shard the group offset that may be committed."""


class NoTables(TableManager):
    """Faust's table manager also lets records flow again after a rebalance. There are no tables for it to wait for."""

    async def on_start(self) -> None:
        """As Faust does it, but without the second that it gives agents to declare tables."""
        await self._update_channels()
        await self.recovery.start()


class WalApp(faust.App):
    """A Faust app with one topic and one feed: no agents, no tables, no topics or directories of its own."""

    mundane_level = "debug"

    def __init__(self, settings: SourceSettings, feed: Feed) -> None:
        self.source = settings
        self.feed = feed
        super().__init__(
            settings.group_id,
            broker=[f"kafka://{server.strip()}" for server in settings.bootstrap_servers.split(",")],
            store="memory://",
            TableManager=NoTables,
            web_enabled=False,
            autodiscover=False,
            topic_disable_leader=True,
            topic_allow_declare=False,
            reply_create_topic=False,
            table_standby_replicas=0,
            stream_wait_empty=False,
            broker_session_timeout=settings.session_timeout_ms / 1000,
            broker_request_timeout=settings.request_timeout_ms / 1000,
            broker_commit_interval=settings.commit_interval_ms / 1000,
        )
        self.boot_strategy = faust.app.BootStrategy(self, enable_web=False, enable_kafka_producer=False)

    async def on_first_start(self) -> None:
        """Faust would make its data directory here; this app keeps nothing of its own."""

    def wal_consumer(self) -> WalConsumer:
        assert isinstance(self.consumer, WalConsumer)
        return self.consumer


class WalConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's thread for the Kafka client, around a client that reads committed and never resets its offset."""

    mundane_level = "debug"
    _batches: ShardBatches

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        settings = wal_app(self.app).source
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
        """An error here would crash thread, service and app in a race: the feed is told, and stops them."""
        try:
            await super().on_start()
        except KafkaError as error:
            servers = wal_app(self.app).source.bootstrap_servers
            self._tell(KafkaUnavailableError(f"no broker lets us in at {servers}: {error!r}"))
            await self.wait_until_stopped()

    def _tell(self, error: Exception) -> None:
        self.parent_loop.call_soon_threadsafe(wal_app(self.app).feed.failed, error)

    def close(self) -> None:
        """Faust would close the client in the wrong loop when a rebalance meets a stop; `on_thread_stop` closes it."""

    async def on_thread_stop(self) -> None:
        """Bounded, and in a task of its own: with Kafka away the client's fetcher raises CancelledError on closing."""
        await asyncio.wait([asyncio.ensure_future(super().on_thread_stop())], timeout=CLOSE_WAIT_S)

    async def fetch(self, shards: Iterable[int], wait_ms: int) -> dict[int, list[Record]]:
        """What has come of these shards since the last fetch, at least one record or after `wait_ms` none.

        Raises CorruptionError for one shard that cannot be read on, KafkaRefusedError.
        """
        records: dict[int, list[Record]] = await self.call_thread(self._fetch, list(shards), wait_ms)
        return records

    async def _fetch(self, shards: Sequence[int], wait_ms: int) -> dict[int, list[Record]]:
        topic = wal_app(self.app).source.topic
        self._ensure_consumer()
        try:
            return await self._batches.fetch(shards, wait_ms)
        except ConsumerStoppedError:
            return {}
        except KafkaError as error:
            if not error.retriable:
                raise wal_app(self.app).source.refused(f"reading {topic}", error) from error
            log.warning("reading %s: %r", topic, error)
            await asyncio.sleep(wait_ms / 1000)
            return {}

    async def seek_shards(self, offsets: Mapping[int, int]) -> bool:
        """Read on from here. False when a shard is no longer ours: a rebalance has begun, another seek will follow."""
        moved: bool = await self.call_thread(self._seek_shards, offsets)
        return moved

    async def _seek_shards(self, offsets: Mapping[int, int]) -> bool:
        consumer = self._ensure_consumer()
        topic = wal_app(self.app).source.topic
        places = {aiokafka.TopicPartition(topic, shard): offset for shard, offset in offsets.items()}
        if not consumer.assignment().issuperset(places):
            return False
        self._batches.seek(offsets)
        return True

    async def commit_shards(self, offsets: Mapping[int, int]) -> bool:
        """Commit group offsets. They decide nothing, so a failure is a warning; the next commit makes up for it."""
        committed: bool = await self.call_thread(self._commit_shards, offsets)
        return committed

    async def _commit_shards(self, offsets: Mapping[int, int]) -> bool:
        consumer = self._ensure_consumer()
        topic = wal_app(self.app).source.topic
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
        """The client keeps an error of the group (not authorised, say) for the next fetch: without shards, for ever."""
        while not self.should_stop:
            await self.sleep(1.0)
            try:
                self._ensure_consumer()._coordinator.check_errors()
            except KafkaError as error:
                source = wal_app(self.app).source
                self._tell(source.refused(f"group {source.group_id}", error))
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
        """A batch of each shard that has one. What a rebalance has made stale is for the feed to drop."""
        batches = await self._thread.fetch(shards, wait_ms)
        monitor = self.app.monitor
        for shard, records in batches.items():
            monitor.count("frames", len(records))
            monitor.track_tp_end_offset(TP(wal_app(self.app).source.topic, shard), records[-1][0] + 1)
        return batches

    async def seek_shards(self, offsets: Mapping[int, int]) -> bool:
        return await self._thread.seek_shards(offsets)

    async def perform_seek(self) -> None:
        """Faust would seek to the committed group offsets here. The shards stand where their marks say already."""

    async def commit_and_end_transactions(self) -> None:
        """Faust would commit once more as it stops; the worker has done it, after its last checkpoint."""

    async def verify_all_partitions_active(self) -> None:
        """Faust would look for events that its streams did not take; none go through its streams."""

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Faust calls this at every commit interval; the worker when it has let shards go, and when it stops."""
        feed = wal_app(self.app).feed
        offsets = {
            shard: offset for shard, offset in feed.committable().items() if self._last_committed.get(shard) != offset
        }
        if not offsets or not await self._thread.commit_shards(offsets):
            return False
        self._last_committed.update(offsets)
        topic = wal_app(self.app).source.topic
        self.app.monitor.on_tp_commit({TP(topic, shard): offset for shard, offset in offsets.items()})
        return True


class WalFetcher(Service):
    """The service that Faust starts once a rebalance is over, and stops first."""

    mundane_level = "debug"

    def __init__(self, app: faust.types.AppT, **kwargs: Any) -> None:
        self.app = app
        super().__init__(**kwargs)

    @Service.task
    async def _feed(self) -> None:
        await wal_app(self.app).feed.run(self)


class WalTransport(driver.Transport):
    """Faust's Kafka transport with the parts above."""

    Consumer = WalConsumer
    Fetcher = WalFetcher


def wal_app(app: faust.types.AppT) -> WalApp:
    """The app of a Faust service, as what it is here."""
    assert isinstance(app, WalApp)
    return app
