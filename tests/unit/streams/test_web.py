"""A service's pages: what is asked wrongly, what `/health` calls ill, and what `/metrics` does not know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from faust.web import View

from journal.config import Settings
from journal.errors import DeadlineError, QueueMissingError, StateError
from journal.observe.exposition import exposition
from journal.process.clocks import wall_ms
from journal.v1.journal_pb2 import Mark, NodeStatus, RoutesReport, SourcesReport
from loaders.queues import QueueLoader
from streams.apps.factory import make_app
from streams.apps.view import GlobalView
from streams.apps.web import add_routes, health_of, metric_families, standing_still
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline

QUEUE_PAGE = r"/queues/{name:[\s\S]+}"


class WebService:
    """`Watched`, in which something may be wrong."""

    def __init__(
        self,
        *,
        stopped: Mapping[int, str] | None = None,
        waiting: Mapping[int, str] | None = None,
        standstill: str = "",
        troubles: tuple[tuple[str, int, str], ...] = (),
        faust: Mapping[str, str] | None = None,
        standby: Mapping[int, str] | None = None,
        awaited: str = "",
    ) -> None:
        self._awaited = awaited
        self._stopped = stopped or {}
        self._waiting = waiting or {}
        self._standstill = standstill
        self._troubles = troubles
        self._faust = faust or {}
        self._standby = standby or {}

    def shard_states(self) -> Mapping[int, str]:
        return {} if self._awaited else {0: "running", 1: "recovering"}

    def stopped_shards(self) -> Mapping[int, str]:
        return self._stopped

    def waiting_shards(self) -> Mapping[int, str]:
        return self._waiting

    def standby_ended(self) -> Mapping[int, str]:
        return self._standby

    def standstill(self) -> str:
        return self._standstill

    def agent_troubles(self) -> list[tuple[str, int, str]]:
        return list(self._troubles)

    def faust_troubles(self) -> Mapping[str, str]:
        return self._faust

    def tellings(self) -> Mapping[str, int]:
        return {"fine": 1, "broken": 2}

    def routes(self) -> Mapping[int, RoutesReport]:
        return {}

    def sources(self) -> SourcesReport | None:
        return None

    def nodes(self) -> Sequence[NodeStatus]:
        now_ms = int(wall_ms())
        late = NodeStatus(name="late", role="active", timestamp=now_ms - 60_000, report_ms=1000)
        return [NodeStatus(name="one", role="active", timestamp=now_ms, report_ms=60_000), late]

    def awaited_node(self) -> str:
        return self._awaited


class Pages:
    """`app.page`."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {}

    def __call__(self, path: str) -> Callable[[Callable[..., Coroutine[Any, Any, Any]]], object]:
        return lambda handler: self.handlers.setdefault(path, handler)


class Web:
    """A page's answers, as status and body."""

    def json(self, body: Any, status: int = 200) -> tuple[int, Any]:
        return status, json.loads(json.dumps(body))


class WebRequest:
    def __init__(self, **query: str) -> None:
        self.query = query


def view_of_nothing() -> GlobalView:
    """One that is not started."""
    settings = Settings(journal="j", node="node")
    return GlobalView(settings, QueueLoader, kafka=SimulatedKafka(SimulatedBroker(Timeline())))


def ask(limit: str) -> int:
    """The status of a queue's page."""
    pages = Pages()
    add_routes(pages, view_of_nothing(), WebService())
    status: int = asyncio.run(pages.handlers[QUEUE_PAGE](Web(), WebRequest(limit=limit), "orders"))[0]
    return status


@pytest.mark.parametrize("limit", ["many", "", "-1", "1.5", "²", "٣", "9" * 5000])
def test_a_limit_that_is_no_number_of_messages_is_refused(limit: str) -> None:
    assert ask(limit) == 400


def test_a_name_may_be_any_text() -> None:
    """Addresses are read here as Faust's web server reads them."""

    async def found() -> list[str]:
        async def handler(_: web.Request) -> web.Response:
            raise AssertionError

        paths = web.UrlDispatcher()
        paths.add_route("GET", QUEUE_PAGE, handler)
        names = ["orders", "a/b", "a\nb", "\r\n", "a%2Fb", "\x00\x1b", "..", "\u2028 ?#"]
        asked = [make_mocked_request("GET", f"/queues/{quote(name, safe='')}") for name in names]
        resolved = [await paths.resolve(each) for each in asked]
        assert [each.get("name") for each in resolved] == names
        return names

    assert asyncio.run(found())


@pytest.mark.parametrize(
    ("error", "status"),
    [(QueueMissingError("there is no queue 'q'"), 404), (DeadlineError("busy"), 503), (StateError("not started"), 503)],
)
def test_what_the_view_cannot_answer_is_an_answer_of_every_page(error: Exception, status: int) -> None:
    app = make_app(Settings(journal="j", node="node"), worker=False)

    @app.page("/mine/{name}")
    async def mine(_web: View, _request: Any, name: str) -> Any:
        raise error

    page = mine(app, app.web)
    answer = asyncio.run(page.dispatch(make_mocked_request("GET", "/mine/q", match_info={"name": "q"})))
    assert (answer.status, json.loads(answer.body)) == (status, {"error": str(error)})


@pytest.mark.parametrize(
    ("service", "where"),
    [
        (WebService(stopped={1: "garbage"}), "stopped"),
        (WebService(waiting={1: "no topic"}), "waiting"),
        (WebService(standby={1: "garbage"}), "standby"),
        (WebService(standstill="not started"), "standstill"),
        (WebService(troubles=(("broken", 1, "ValueError"),)), "agents"),
        (WebService(faust={"app.count": "PartitionsMismatch()"}), "faust"),
    ],
)
def test_whatever_stands_still_is_not_healthy_and_named(service: WebService, where: str) -> None:
    status, body = health_of(None, service)
    assert (status, body["healthy"]) == (503, False)
    assert [each for each in ("stopped", "waiting", "standby", "standstill", "agents", "faust") if body[each]] == [
        where
    ]


def test_a_service_is_not_healthy_before_its_worker_is_started() -> None:
    settings = Settings(journal="j", node="node")
    assert health_of(None, make_app(settings).host)[0] == 503
    assert health_of(None, make_app(settings, worker=False).host)[0] == 200


def test_a_shard_that_recovers_is_healthy() -> None:
    assert health_of(None, WebService())[0] == 200


def lines_of(view: GlobalView | None, service: WebService) -> list[str]:
    """What a scrape gets."""
    return exposition(metric_families(view, service)).splitlines()


def test_an_agent_that_is_fine_again_is_a_0_and_one_that_fails_in_two_ways_fails_once() -> None:
    troubles = (("broken", 1, "raised"), ("broken", 1, "has not returned"), ("broken", 2, "raised"))
    lines = lines_of(None, WebService(troubles=troubles))
    assert {
        'kafka_journal_agent_shards_failing{agent="fine"} 0.0',
        'kafka_journal_agent_shards_failing{agent="broken"} 2.0',
    } <= {*lines}


@pytest.mark.parametrize(
    ("awaited", "age_ms", "told"), [("one", 60_000, True), ("one", 1000, False), ("", 60_000, False)]
)
def test_a_view_says_that_no_node_or_no_worker_does_anything(awaited: str, age_ms: int, told: bool) -> None:
    view, service = view_of_nothing(), WebService(awaited=awaited)
    view.seen({0: Mark(shard=0, offset=7, timestamp=int(wall_ms()) - age_ms)})
    said = standing_still(view, service)
    assert said.endswith("node one writes nothing, or no worker applies it") == bool(said) == told
    body = health_of(view, service)[1]
    assert (body["journal"]["standstill"] is not None) == told
    (age,) = [line for line in lines_of(view, service) if line.startswith("kafka_journal_view_applied_age")]
    assert float(age.split()[1]) >= age_ms / 1000


def test_the_active_node_is_the_one_whose_report_is_not_late() -> None:
    lines = lines_of(None, WebService())
    assert {'kafka_journal_node_active{node="one"} 1.0', 'kafka_journal_node_active{node="late"} 0.0'} <= {*lines}


def test_nothing_is_told_of_a_shard_whose_copy_is_being_built() -> None:
    view = view_of_nothing()
    view.seen({0: Mark(shard=0, offset=-1), 1: Mark(shard=1, offset=7, applied=5)})
    found = [line for line in lines_of(view, WebService()) if line.startswith("kafka_journal_shard_")]
    assert 'kafka_journal_shard_applied_operations_total{shard="1"} 5.0' in found
    assert not [line for line in found if 'shard="0"' in line]
