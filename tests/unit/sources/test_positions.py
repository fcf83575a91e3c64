"""Where partitions of sources go on, and what stops a source."""

from __future__ import annotations

from collections.abc import Collection

from journal.routing.config import RoutingConfig
from journal.routing.parts import SourceConfig
from journal.sources.positions import Positions, positions_of

ROUTING = RoutingConfig.model_validate(
    {
        "sources": [
            {"name": "fixed", "topics": ["a", "b"], "start": "latest"},
            {"name": "found", "pattern": "p-.*", "on_error": "dead-letter"},
        ],
        "dead_letter_topic": "letters",
    }
)
TOPICS = {"a": 1, "b": 2, "p-1": 1, "letters": 1, "other": 9}


def positions(
    topics: dict[str, int],
    committed: dict[tuple[str, int], int],
    *stopped: str,
    unfit: str = "",
    begun: Collection[str] = (),
) -> Positions:
    sources: dict[str, SourceConfig] = {
        topic: source for topic in topics for source in ROUTING.sources if source.takes(topic)
    }
    faults = {unfit: f"{unfit} takes nothing"} if unfit else {}
    return positions_of(ROUTING, topics, sources, committed, stopped, group="g", unfit=faults, begun=begun)


def test_a_partition_goes_on_where_it_was_committed_and_begins_where_its_source_says() -> None:
    found = positions(TOPICS, {("p-1", 0): 7})
    assert found.known == {("p-1", 0): 7}
    assert found.beginning == {("a", 0): "latest", ("b", 0): "latest", ("b", 1): "latest"}
    assert found.stopped == {}


def test_what_appears_once_a_source_has_begun_begins_at_its_beginning_and_not_at_its_end() -> None:
    found = positions(TOPICS, {("a", 0): 7, ("b", 1): 0})
    assert found.known == {("a", 0): 7, ("b", 1): 0}
    assert found.beginning == {("b", 0): "earliest", ("p-1", 0): "earliest"}
    assert positions(TOPICS, {}, begun=["fixed"]).beginning["a", 0] == "earliest"
    assert positions(TOPICS, {("p-1", 0): 7}).beginning["a", 0] == "latest"


def test_a_moment_stays_the_beginning_of_what_appears_later() -> None:
    start = "2026-01-31T12:00:00Z"
    routing = RoutingConfig.model_validate({"sources": [{"name": "in", "topics": ["a"], "start": start}]})
    sources = {"a": routing.sources[0]}
    found = positions_of(routing, {"a": 2}, sources, {("a", 0): 7}, (), group="g", unfit={}, begun=["in"])
    assert found.beginning == {("a", 1): start}


def test_a_topic_that_is_not_there_stops_its_source_alone() -> None:
    found = positions({topic: count for topic, count in TOPICS.items() if topic != "b"}, {("p-1", 0): 3})
    assert found.known == {("p-1", 0): 3}
    assert "topic b is not there" in found.stopped["fixed"]
    assert list(found.stopped) == ["fixed"]


def test_a_partition_that_was_consumed_and_is_gone_stops_its_source() -> None:
    found = positions(TOPICS, {("p-2", 0): 3, ("p-1", 0): 1})
    assert "p-2[0] is gone" in found.stopped["found"]
    assert ("p-1", 0) not in found.known


def test_a_partition_that_is_gone_stops_no_source_that_would_yield_its_topic_to_another() -> None:
    both = [{"name": "first", "pattern": "p-.*"}, {"name": "second", "pattern": "p.*"}]
    routing = RoutingConfig.model_validate({"sources": both})
    committed = {("p-2", 0): 3, ("p2", 0): 0}
    found = positions_of(routing, {"p2": 1}, {"p2": routing.sources[1]}, committed, (), group="g", unfit={}, begun=())
    assert list(found.stopped) == ["first"]
    assert found.known == {("p2", 0): 0}


def test_a_dead_letter_topic_that_takes_nothing_stops_those_that_need_it() -> None:
    found = positions(TOPICS, {}, unfit="letters")
    assert found.stopped == {"found": "letters takes nothing"}


def test_requests_need_their_dead_letter_topic_whatever_else_the_policy_is() -> None:
    source = {"name": "in", "topics": ["a"], "replies": True, "requests": "ask", "dead_letter_topic": "dead"}
    routing = RoutingConfig.model_validate({"sources": [source]})
    found = positions_of(
        routing, {"a": 1}, {"a": routing.sources[0]}, {}, (), group="g", unfit={"dead": "no"}, begun=()
    )
    assert found.stopped == {"in": "no"}


def test_what_is_to_stay_stopped_is_not_looked_at() -> None:
    found = positions(TOPICS, {("a", 0): 7}, "fixed")
    assert found.known == {}
    assert set(found.beginning) == {("p-1", 0)}
