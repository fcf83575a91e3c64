"""A user's app over a journal: a Faust app like any other, with the journal's worker, agents and view inside.

    app = make_app(load_settings(journal="orders"), view=QueueLoader)

    @app.on_operation(to="orders-seen")      @app.on_change(to="alerts")       @app.agent(app.topic("orders-seen"))
    def seen(told): ...                      async def alerts(changes): ...    async def count(stream): ...

    run_app(app)

All workers of the journal must belong to one app, because no `on_operation` agent is told the operations that a plain
worker applies.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import faust
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from faust.app.base import BootStrategy
from faust.transport.drivers import aiokafka as driver
from faust.types.auth import CredentialsT
from faust.types.web import Web
from faust.web import View
from faust.web.drivers import aiohttp
from mode.types import ServiceT

from journal.config import Settings
from journal.errors import ConfigError, KafkaUnavailableError, WebPortError
from journal.topics.names import OwnTopics, app_id
from streams.agents.agents import AGENT_TIMEOUT_S, Agent, check_agent
from streams.agents.faust_agents import WatchedAgent, troubles_of
from streams.apps.host import JournalHost
from streams.apps.view import GlobalView, StateLoader
from streams.apps.web import PageView, add_routes
from streams.reading.client_properties import aiokafka_properties
from streams.reading.garbage import collect_seldom
from streams.reading.signals import run_until_signalled

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[[Any], Any])

LOOPBACK = "127.0.0.1"


class JournalApp(faust.App):
    """A Faust app with a journal's worker inside; `make_app` makes one."""

    def __init__(self, settings: Settings, host: JournalHost, **options: Any) -> None:
        self.settings = settings
        self.host = host
        super().__init__(**options)
        self.boot_strategy = _Boot(self)
        self.transport = _Transport(self.conf.broker_consumer, self)
        host.on_failed = self._crash_with
        host.of_faust = lambda: troubles_of(self)
        add_routes(self.page, host.view, host)

    def page(self, path: str, *, base: type[View] = PageView, **options: Any) -> Callable[[Any], type[View]]:
        """Faust's decorator for pages. If the view cannot answer, the page is a 404 for a missing queue, and else a
        503."""
        return super().page(path, base=base, **options)

    @property
    def view(self) -> GlobalView:
        """The view of the whole journal's tables. Raises ConfigError if the app was made without one."""
        if self.host.view is None:
            raise ConfigError("this app has no view: make it with view=QueueLoader, of loaders.queues")
        return self.host.view

    def on_operation(
        self, *, to: str | None = None, name: str | None = None, timeout_s: float = AGENT_TIMEOUT_S
    ) -> Callable[[F], F]:
        """An agent that is called with every operation that took effect, a `Told`, in WAL order within its shard.

        It is called before the checkpoint that holds the operation is committed. Its outputs go to the topic `to` in
        the transaction of that checkpoint, so each of them is there exactly once. Its other effects may be repeated.
        Raises ConfigError.
        """
        return self._declare(self.host.operation_agents, to, name, 0.0, timeout_s)

    def on_change(
        self,
        *,
        to: str | None = None,
        name: str | None = None,
        every_s: float = 0.0,
        timeout_s: float = AGENT_TIMEOUT_S,
    ) -> Callable[[F], F]:
        """An agent that is called with the changes of each checkpoint, a `Changes`, and every `every_s` seconds, if
        given, even if nothing has changed.

        Its outputs, which go to the topic `to`, its state and its position are committed in one transaction. Its memory
        is the topic `<journal>.agent.<name>`, so an agent with another name begins anew. Raises ConfigError.
        """
        return self._declare(self.host.change_agents, to, name, every_s, timeout_s)

    def _declare(
        self, agents: list[Agent], to: str | None, name: str | None, every_s: float, timeout_s: float
    ) -> Callable[[F], F]:
        def declare(function: F) -> F:
            agent = Agent(name or function.__name__, function, to, every_s, timeout_s)
            journal = self.settings.journal
            others = (*self.host.operation_agents, *self.host.change_agents)
            check_agent(agent, others, OwnTopics(journal))
            agents.append(agent)
            return function

        return declare

    def _new_web(self) -> Web:
        return _Web(self)

    async def _crash_with(self, error: BaseException) -> None:
        await self.crash(error)

    async def on_first_start(self) -> None:
        """Do not make a data directory, as Faust would in the current directory. Tables of this app, if it has any, are
        in memory."""


def make_app(
    settings: Settings,
    *,
    view: Callable[[], StateLoader] | None = None,
    worker: bool = True,
    standby: bool = False,
    name: str = "service",
    web_host: str = LOOPBACK,
    web_port: int | None = None,
    **options: Any,
) -> JournalApp:
    """A Faust app with a journal's worker as its service.

    `view` is `loaders.queues.QueueLoader`, or a function that makes one. With it the app has `app.view`, and web pages
    for it. Without a `worker` the app only reads, and has no agents of the journal. `standby` keeps warm copies of
    other workers' shards. `name` goes into the app's consumer group and its directory. Without a `web_port`, Faust's
    default is used: WEB_PORT of the environment, or 6066. `options` go to Faust. Raises ConfigError.
    """
    host = JournalHost(settings, name=name, worker=worker, standby=standby, view=view)
    faust_options: dict[str, Any] = {
        "id": app_id(settings.journal, name),
        "broker": [f"kafka://{server.strip()}" for server in settings.bootstrap_servers.split(",")],
        "broker_credentials": _credentials(settings),
        "broker_session_timeout": settings.session_timeout_ms / 1000,
        "broker_request_timeout": max(settings.request_timeout_ms, settings.session_timeout_ms) / 1000,
        "store": "memory://",
        "autodiscover": False,
        "topic_disable_leader": True,
        "web_bind": web_host,
        "worker_redirect_stdouts": False,
        "Agent": WatchedAgent,
    }
    if web_port is not None:
        faust_options["web_port"] = web_port
    return JournalApp(settings, host, **{**faust_options, **options})


def _credentials(settings: Settings) -> CredentialsT | None:
    """The journal's client properties as Faust's settings."""
    found = aiokafka_properties(settings.client_properties)
    context = found.get("ssl_context")
    if "sasl_plain_username" in found:
        return faust.SASLCredentials(
            username=found["sasl_plain_username"],
            password=found.get("sasl_plain_password"),
            mechanism=found.get("sasl_mechanism"),
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)


def run_app(app: JournalApp) -> None:
    """Run an app in this process until SIGTERM or SIGINT; raises the error that ended it before. A second signal that
    comes more than a second after the first ends the process at once. That is safe at any moment."""
    gc.freeze()
    collect_seldom()
    run_until_signalled(lambda stop: serve_app(app, stop))


async def serve_app(app: JournalApp, stop: asyncio.Event, started: Callable[[], Any] = lambda: None) -> None:
    """Run an app until `stop` is set; raises the error that ended it before. `started` is called when the app runs."""
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(app.start())
    starting.add_done_callback(lambda done: None if done.cancelled() or done.exception() else started())
    down = asyncio.create_task(app.wait_until_stopped())
    try:
        await asyncio.wait([stopping, starting, down], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            await asyncio.wait([stopping, down], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await app.stop()
        for task in (stopping, starting, down):
            task.cancel()
        ended = await asyncio.gather(starting, return_exceptions=True)
    error = app.host.failure or app.crash_reason or ended[0]
    if isinstance(error, KafkaError):
        raise KafkaUnavailableError(
            f"no broker accepts this client at {app.settings.bootstrap_servers}: {error!r}"
        ) from error
    if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
        raise error


# ---- parts of Faust that are replaced -------------------------------------------------------------------------------


class _Boot(BootStrategy):
    """Faust's order of services, in which the journal's part starts last and stops first. If the app has no Faust
    agents, Faust's consumer is left out."""

    def server(self) -> Iterable[ServiceT]:
        assert isinstance(self.app, JournalApp)
        return self._chain(super().server(), [self.app.host])

    def _should_enable_kafka_consumer(self) -> bool:
        return bool(self.app.agents) or bool(self.app.topics) or bool(self.app.tables)


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, which reads committed records only, so that an app's agents see nothing of aborted
    transactions."""

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"
        return consumer


class _CommittedConsumer(driver.Consumer):
    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(driver.Transport):
    Consumer = _CommittedConsumer


class _Web(aiohttp.Web):
    async def start_server(self) -> None:
        conf = self.app.conf
        try:
            await super().start_server()
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                raise
            what = f"the web server cannot listen at {conf.web_bind}:{conf.web_port}: {error.strerror}; give web_port="
            raise WebPortError(what) from error
