"""A service's routes in Faust's own web server: queues, transactions, health, metrics. Read-only.

    /queues              every queue with its counts
    /queues/NAME         one, with its first messages (?limit=100)
    /transactions        what is prepared
    /health              200 while everything runs, else 503; both say what does not
    /metrics             for Prometheus

The first three routes need a view. If the view cannot answer, they give a 503 with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from faust.web import Request, Response, View

from journal.errors import OperatingError, QueueMissingError, StateError
from journal.observe.exposition import CONTENT_TYPE, Family, exposition
from journal.process.clocks import wall_ms
from journal.v1.journal_pb2 import Mark, NodeStatus, RoutesReport, SourcesReport
from streams.apps.sources import reported_families, source_families
from streams.apps.view import GlobalView, MessageView, QueueView, TransactionView

log = logging.getLogger(__name__)

T = TypeVar("T")

STILL_S = 30.0
"""How old the newest applied frame may be while a node should be active."""

LIMIT_DIGITS_MAX = 9
"""The most digits in the number of messages that a request may ask for."""

Answer = tuple[int, Any]
"""The HTTP status, and the body as JSON values."""

Page = Callable[[str], Callable[[Callable[..., Awaitable[Response]]], object]]
"""The type of `app.page`."""


class Watched(Protocol):
    """The state of a running service, for health and metrics."""

    def shard_states(self) -> Mapping[int, str]:
        """What the worker does in each shard of this service, by shard."""

    def stopped_shards(self) -> Mapping[int, str]:
        """The error by shard, for each shard that an error has stopped."""

    def waiting_shards(self) -> Mapping[int, str]:
        """The reason by shard, for each shard that cannot be recovered now."""

    def standby_ended(self) -> Mapping[int, str]:
        """The reason by shard, for each shard of another worker whose standby copy has ended."""

    def standstill(self) -> str:
        """The reason for which the worker does nothing: it is starting, or it is stuck. Empty if it runs, or if there
        is none."""

    def agent_troubles(self) -> list[tuple[str, int, str]]:
        """Agents that cannot go on: agent, shard, and the reason."""

    def faust_troubles(self) -> Mapping[str, str]:
        """Errors of Faust's own agents and of services that have ended, by name."""

    def tellings(self) -> Mapping[str, int]:
        """How much each agent was told, by agent: operations, or checkpoints."""

    def routes(self) -> Mapping[int, RoutesReport]:
        """What the routes did in each shard of this service, by shard; empty without routes."""

    def sources(self) -> SourcesReport | None:
        """The last report of the active node about its sources. None if there are no sources, or if it is not known
        now. It may wait for Kafka."""

    def nodes(self) -> Sequence[NodeStatus]:
        """The last report of each node; empty if none is known now. It may wait for Kafka."""

    def awaited_node(self) -> str:
        """The node that should be writing; empty if there is none, or if it is not known now. It may wait for Kafka."""


class PageView(View):
    """A page that asks the view. If the view cannot answer, the page gives the reason."""

    async def dispatch(self, request: Any) -> Any:
        try:
            return await super().dispatch(request)
        except QueueMissingError as error:
            return self.json({"error": str(error)}, status=404)
        except (OperatingError, StateError) as error:
            return self.json({"error": str(error)}, status=503)


def add_routes(page: Page, view: GlobalView | None, watched: Watched) -> None:
    """Add the web routes to an app."""

    @page("/health")
    async def health(web: View, request: Request) -> Response:
        status, body = await _in_thread(lambda: health_of(view, watched))
        return web.json(body, status=status)

    @page("/metrics")
    async def metrics(web: View, request: Request) -> Response:
        text = await _in_thread(lambda: exposition(metric_families(view, watched)))
        return web.text(text, content_type=CONTENT_TYPE)

    if view is None:
        return

    @page("/queues")
    async def queues(web: View, request: Request) -> Response:
        return web.json(await _in_thread(lambda: {"queues": [queue_json(view, found) for found in view.queues()]}))

    @page(r"/queues/{name:[\s\S]+}")
    async def one_queue(web: View, request: Request, name: str) -> Response:
        limit = request.query.get("limit", "100")
        if not (limit.isascii() and limit.isdigit() and len(limit) <= LIMIT_DIGITS_MAX):
            return web.json({"error": f"limit={limit} is not a number of messages"}, status=400)
        return web.json(await _in_thread(lambda: _queue_with_messages(view, name, int(limit))))

    @page("/transactions")
    async def transactions(web: View, request: Request) -> Response:
        found = await _in_thread(view.transactions)
        return web.json({"transactions": [transaction_json(each) for each in found]})


async def _in_thread(ask: Callable[[], T]) -> T:
    """Ask the view in another thread, because the question waits for the view's own thread, and would block the event
    loop."""
    return await asyncio.get_running_loop().run_in_executor(None, ask)


# ---- as JSON -------------------------------------------------------------------------------------------------------


def queue_json(view: GlobalView, found: QueueView) -> dict[str, Any]:
    config = found.config
    return {
        "name": config.name,
        "address": config.address,
        "id": found.id,
        "durable": config.durable,
        "ready": found.ready,
        "scheduled": found.scheduled,
        "held": found.held,
        "bytes": found.bytes,
        "oldest_ms": found.oldest_ms or None,
        "oldest_age_seconds": round(view.age_s(found.oldest_ms), 3) if found.oldest_ms else None,
    }


def _queue_with_messages(view: GlobalView, name: str, limit: int) -> dict[str, Any]:
    return queue_json(view, view.queue(name)) | {
        "messages": [message_json(found) for found in view.messages(name, limit)]
    }


def message_json(found: MessageView) -> dict[str, Any]:
    reference, entry = found.reference, found.entry
    return {
        "id": reference.message,
        "state": reference.state.value,
        "priority": reference.priority,
        "deliveries": reference.deliveries,
        "holder": reference.holder or None,
        "due_ms": reference.due or None,
        "size_bytes": entry.size,
        "timestamp_ms": entry.timestamp,
        "expires_ms": entry.expires or None,
    }


def transaction_json(found: TransactionView) -> dict[str, Any]:
    return {
        "tx": found.tx,
        "data": found.data.hex(),
        "shards": found.shards,
        "shards_seen": found.shards_seen,
        "operations": found.operations,
    }


def health_of(view: GlobalView | None, watched: Watched) -> Answer:
    """The result of `/health`. It is 200 if the worker runs, no shard is stopped or waiting, no agent is held up, no
    Faust agent has failed, no service and no standby copy has ended, and the view follows; else 503.

    A service with shards of its own is healthy also while the tables stand still: whoever restarted it then would take
    away the worker for which a new active node waits."""
    standstill, stopped, waiting = watched.standstill(), watched.stopped_shards(), watched.waiting_shards()
    troubles, of_faust, standby = watched.agent_troubles(), watched.faust_troubles(), watched.standby_ended()
    body: dict[str, Any] = {
        "shards": {str(shard): state for shard, state in sorted(watched.shard_states().items())},
        "stopped": {str(shard): why for shard, why in sorted(stopped.items())},
        "waiting": {str(shard): why for shard, why in sorted(waiting.items())},
        "standby": {str(shard): why for shard, why in sorted(standby.items())},
        "standstill": standstill or None,
        "agents": [{"agent": agent, "shard": shard, "error": why} for agent, shard, why in troubles],
        "faust": dict(of_faust),
    }
    fit = True
    if view is not None:
        fitness = view.fitness()
        still = standing_still(view, watched)
        fit = fitness.fit and not (still and not watched.shard_states())
        body["journal"] = {"applied_age_seconds": _applied_age_s(view), "standstill": still or None}
        body["view"] = {"fit": fit, "why_not": fitness.why_not or None, "lag_seconds": fitness.lag_ms / 1000}
    healthy = fit and not (standstill or stopped or waiting or standby or troubles or of_faust)
    return (200 if healthy else 503), {"healthy": healthy, **body}


def standing_still(view: GlobalView, watched: Watched) -> str:
    """Why the tables should not be as old as they are; empty if they are not old, or no node should be writing. An
    active node writes several times in `STILL_S`, and the marks of the tables show it."""
    age_s = _applied_age_s(view)
    if age_s is None or age_s < STILL_S or not (node := watched.awaited_node()):
        return ""
    return f"nothing has come into the tables for {age_s:.0f} s: node {node} writes nothing, or no worker applies it"


def _applied_age_s(view: GlobalView) -> float | None:
    """The age of the newest frame that the view's tables have; None if they have none."""
    newest = max((mark.timestamp for mark in view.marks().values()), default=0)
    return round(view.age_s(newest), 3) if newest else None


# ---- for Prometheus ------------------------------------------------------------------------------------------------

_SHARD_METRICS: tuple[tuple[str, str, str, Callable[[Mark], float]], ...] = (
    ("shard_records", "gauge", "Live records at the shard's mark.", lambda mark: mark.records),
    ("shard_epoch", "gauge", "Epoch of the shard's mark.", lambda mark: mark.epoch),
    ("shard_wal_offset", "gauge", "WAL offset of the shard's mark.", lambda mark: mark.offset),
    ("shard_applied_operations_total", "counter", "Operations that took effect.", lambda mark: mark.applied),
    ("shard_rejected_operations_total", "counter", "Operations that changed nothing.", lambda mark: mark.rejected),
    ("shard_stale_frames_total", "counter", "Frames of an older epoch behind a marker.", lambda mark: mark.stale),
    ("shard_skipped_frames_total", "counter", "WAL records skipped by an operator.", lambda mark: mark.skipped),
    ("shard_prepared_transactions", "gauge", "Prepared transactions with a part here.", lambda mark: mark.prepared),
)


def metric_families(view: GlobalView | None, watched: Watched) -> Iterator[Family]:
    """The metrics of a service. If the view cannot answer, its queues are left out, and `view_up` shows
    it."""
    states, stopped = watched.shard_states(), watched.stopped_shards()
    yield Family(
        "worker_shard_running",
        "gauge",
        "1 while the shard's worker applies the WAL.",
        [({"shard": shard}, float(state == "running" and shard not in stopped)) for shard, state in states.items()],
    )
    yield Family(
        "agent_tellings_total",
        "counter",
        "Operations, or checkpoints, that an agent was told since the service started.",
        [({"agent": agent}, count) for agent, count in watched.tellings().items()],
    )
    yield Family(
        "agent_shards_failing",
        "gauge",
        "Shards in which an agent has something in its way.",
        [({"agent": agent}, count) for agent, count in _failing(watched).items()],
    )
    if routes := watched.routes():
        yield from _route_metrics(routes)
    yield from reported_families(watched.nodes(), wall_ms())
    if (sources := watched.sources()) is not None:
        yield from source_families(sources, wall_ms())
    if view is not None:
        yield from _view_metrics(view)


def _route_metrics(routes: Mapping[int, RoutesReport]) -> Iterator[Family]:
    rows = [(shard, row) for shard, status in sorted(routes.items()) for row in status.routes]
    yield Family(
        "route_sent_records_total",
        "counter",
        "Records that a route sent, committed.",
        [({"route": row.route, "shard": shard}, row.sent) for shard, row in rows],
    )
    yield Family(
        "route_refused_messages_total",
        "counter",
        "Messages that a route did not send, by reason.",
        [
            ({"route": row.route, "shard": shard, "reason": reason}, count)
            for shard, row in rows
            for reason, count in sorted(row.refused.items())
        ],
    )
    yield Family(
        "route_dead_letters_total",
        "counter",
        "Refused messages that went to a dead-letter topic.",
        [({"route": row.route, "shard": shard}, row.dead_letters) for shard, row in rows],
    )
    yield Family(
        "routes_latency_seconds",
        "gauge",
        "From the oldest message of the last checkpoint in the WAL to its records committed.",
        [({"shard": shard}, status.latency_ms / 1000) for shard, status in sorted(routes.items())],
    )
    yield Family(
        "routes_stopped",
        "gauge",
        "1 while a route has stopped the shard.",
        [({"shard": shard}, float(bool(status.stopped))) for shard, status in sorted(routes.items())],
    )


def _failing(watched: Watched) -> dict[str, int]:
    """The number of failing shards by agent."""
    counts = dict.fromkeys(watched.tellings(), 0)
    for agent, _ in {(agent, shard) for agent, shard, _ in watched.agent_troubles()}:
        counts[agent] = counts.get(agent, 0) + 1
    return counts


def _view_metrics(view: GlobalView) -> Iterator[Family]:
    """Metrics of the view. A shard is left out while its copy is built, because its counts would fall to 0 and jump
    back."""
    fitness, marks = view.fitness(), {shard: mark for shard, mark in view.marks().items() if mark.offset >= 0}
    yield Family("view_up", "gauge", "1 while the view follows the tables.", [({}, float(fitness.fit))])
    yield Family("view_lag_seconds", "gauge", "How far the view is behind.", [({}, fitness.lag_ms / 1000)])
    if (age_s := _applied_age_s(view)) is not None:
        about = "Age of the newest applied frame. It grows while no node is active, or no worker runs."
        yield Family("view_applied_age_seconds", "gauge", about, [({}, age_s)])
    for name, kind, about, value in _SHARD_METRICS:
        yield Family(name, kind, about, [({"shard": shard}, value(mark)) for shard, mark in marks.items()])
    if not fitness.fit:
        return
    try:
        queues = view.queues()
    except OperatingError as error:
        log.warning("metrics without queues: %s", error)
        return
    states = ("ready", "scheduled", "held")
    yield Family(
        "queue_messages",
        "gauge",
        "Messages of a queue.",
        [({"queue": q.config.name, "state": state}, getattr(q, state)) for q in queues for state in states],
    )
    yield Family(
        "queue_bytes", "gauge", "Size of a queue's messages.", [({"queue": q.config.name}, q.bytes) for q in queues]
    )
    yield Family(
        "queue_oldest_message_age_seconds",
        "gauge",
        "Age of the oldest of the messages that are next by priority; 0 if none is ready.",
        [({"queue": q.config.name}, view.age_s(q.oldest_ms)) for q in queues],
    )
