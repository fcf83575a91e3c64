"""The Faust app that reads the WAL: one topic, one feed, and none of Faust's agents, tables and streams.

Faust keeps the group membership, the rebalances, the lifecycle, the commit timer and the sensors. How records are read
and handed on is `wal_transport`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import faust
from faust.tables.manager import TableManager
from mode import Service

from streams.reading.group_settings import GroupSettings


class Feed(Protocol):
    """Reads the WAL through the app's consumer, and passes the records on. It runs in the app's event loop."""

    async def run(self, fetcher: Service) -> None:
        """Read and pass on records until the fetcher stops. Raises nothing, because the feed deals with errors
        itself."""

    def failed(self, error: Exception) -> None:
        """The Kafka client could not start, or may not join the group, so the app must stop."""

    def committable(self) -> Mapping[int, int]:
        """The group offset that may be committed, by shard."""


class NoTables(TableManager):
    """Faust's table manager, without tables to wait for: it only lets records flow again after a rebalance."""

    async def on_start(self) -> None:
        """Start as Faust's own does, but without the second in which agents could declare tables."""
        await self._update_channels()
        await self.recovery.start()


class WalApp(faust.App):
    """A Faust app with one topic and one feed: no agents, no tables, no topics or directories of its own."""

    mundane_level = "debug"

    def __init__(self, settings: GroupSettings, feed: Feed) -> None:
        self.group = settings
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
        """Do not make a data directory, as Faust would, because this app stores nothing."""


def wal_app(app: faust.types.AppT) -> WalApp:
    """The app of a Faust service, cast to its real class."""
    assert isinstance(app, WalApp)
    return app
