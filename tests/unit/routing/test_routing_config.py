"""What a configuration of routes must be: each fault is an error that says what and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journal.config import load_settings
from journal.errors import ConfigError
from journal.routing.parts import start_ms
from journal.routing.record_in import Sources
from journal.routing.router import Router
from tests.unit.routing.building import OWN, config, route, source


def fault(**routing: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(routing=routing)
    return str(caught.value)


@pytest.mark.parametrize(
    ("routing", "says"),
    [
        ({"routes": [route(filter="delay >")]}, "routing.routes.0.filter: .*its end"),
        ({"routes": [route(address="a.b*")]}, "whole words"),
        ({"routes": [route(address="")]}, "address pattern is empty"),
        ({"routes": [{"name": "r", "targets": []}]}, "at least 1"),
        ({"routes": [route("a b")]}, "a name is"),
        ({"routes": [route("r", {"topic": "t", "colour": 1})]}, "targets.0.colour: there is no such setting"),
        ({"routing": []}, "routing.routing: there is no such setting; did you mean routes"),
        ({"routes": [route("r", {"topic": "a/b"})]}, "not a topic's name"),
        ({"routes": [route("r", {"topic": ".."})]}, "not a topic's name"),
        ({"routes": [route("r", {"topic": "a.{b"})]}, "a lone { at character 3"),
        ({"routes": [route("r", {"topic": "a.{}"})]}, "nothing is named at character 3"),
        ({"routes": [route("r", {"topic": "t", "key": "header:"})]}, "none of header:NAME"),
        ({"routes": [route("r", {"topic": "t", "key": []})]}, "at least 1"),
        ({"routes": [route("r", {"topic": "t", "partitioner": "partition:x"})]}, "none of murmur2"),
        ({"routes": [route("r", {"topic": "t", "value": "avro"})]}, "Input should be 'body'"),
        ({"routes": [route("r", {"topic": "t", "headers": ["!"]})]}, "header pattern is empty"),
        ({"routes": [route(on_error="ignore")]}, "on_error"),
        ({"routes": [route(on_error="dead-letter")]}, "no dead_letter_topic"),
        ({"routes": [route("x")], "sources": [source("x")]}, "x is the name of two"),
        ({"sources": [{"name": "s"}]}, "neither topics nor a pattern"),
        ({"sources": [source(pattern="(")]}, "no regular expression"),
        ({"sources": [source(start="yesterday")]}, "none of earliest"),
        ({"sources": [source(start="2026-01-01T00:00:00")]}, "no time zone"),
        ({"hops_max": 0}, "hops_max"),
    ],
)
def test_a_fault_is_said(routing: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_settings(routing=routing)


def test_two_routes_that_surely_send_a_message_to_one_topic_twice_overlap() -> None:
    wide, narrow = route("wide", address="a.#"), route("narrow", address="*.b")
    assert "routes wide and narrow overlap: both would send a message to t" in fault(routes=[wide, narrow])
    assert "overlap" in fault(routes=[wide, narrow | {"filter": "x = 1"}])
    config(routes=[wide, route("narrow", {"topic": "u"}, address="*.b")])
    config(routes=[wide, route("apart", address="b.#")])
    config(routes=[wide | {"filter": "x = 2"}, narrow | {"filter": "x = 1"}])
    config(routes=[narrow | {"stop": True}, wide])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "o-{address}"), ("a", "o-a")),
        (("a", "o-a"), ("#", "o-{address}")),
        (("a.*", "o-{address[0]}"), ("a.#", "o-a")),
        (("*", "{address}"), ("#", "{address[-1]}")),
        (("a.#", "o-{address[0]}"), ("a.#", "o-a")),
    ],
)
def test_templates_that_surely_become_one_topic_overlap(first: tuple[str, str], second: tuple[str, str]) -> None:
    routes = [route(name, {"topic": topic}, address=at) for name, at, topic in (("f", *first), ("s", *second))]
    assert "routes f and s overlap: both would send a message to " in fault(routes=routes)
    if first[0] == second[0]:
        both = [{"topic": topic} for _, topic in (first, second)]
        assert "route f has o-a as target twice" in fault(routes=[route("f", *both, address=first[0])])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "o-{address}"), ("b", "o-a")),
        (("a", "o-{address}"), ("a", "o-b")),
        (("a.*", "o-{address[1]}"), ("a.*", "o-a")),
        (("a", "o-{region}"), ("a", "o-a")),
        (("a", "{address[1]}"), ("a", "a")),
    ],
)
def test_templates_that_become_different_topics_do_not_overlap(first: tuple[str, str], second: tuple[str, str]) -> None:
    config(routes=[route(name, {"topic": topic}, address=at) for name, at, topic in (("f", *first), ("s", *second))])


def test_a_target_twice_in_a_route_is_refused() -> None:
    assert "t as target twice" in fault(routes=[route("r", {"topic": "t"}, {"topic": "t", "value": "json"})])


def test_a_route_that_no_message_comes_to_is_refused() -> None:
    first, second = route("first", address="a.#", stop=True), route("second", {"topic": "u"}, address="a.*.c")
    assert "no message comes to route second: first stops" in fault(routes=[first, second])
    config(routes=[first | {"filter": "x = 1"}, second])
    config(routes=[second, first])


@pytest.mark.parametrize("taking", [{"topics": ["t"]}, {"topics": [], "pattern": "t|u"}])
def test_a_route_and_a_source_of_one_topic_are_a_loop_unless_it_is_meant(taking: dict[str, Any]) -> None:
    assert "route r and source s are a loop: t" in fault(routes=[route()], sources=[source(**taking)])
    config(routes=[route()], sources=[source(**taking, two_way=True)])


@pytest.mark.parametrize(
    ("address", "target", "taking"),
    [
        ("#", "prices-{region}", {"topics": ["prices-in"]}),
        ("#", "{address}", {"topics": ["in"]}),
        ("prices.#", "{address}", {"topics": ["prices"]}),
        ("*.prices.#", "{address}", {"topics": ["eu.prices"]}),
        ("#.in", "to.{address}", {"topics": ["to.in"]}),
        ("#.in", "to.{address}", {"topics": ["to.some.where.in"]}),
        ("prices.*", "{address[1]}", {"topics": ["in"]}),
        ("prices.#", "{address[-1]}-in", {"topics": ["eu-in"]}),
        ("#", "prices-{region}", {"topics": [], "pattern": "prices-[a-z]+"}),
        ("q.*", "of-{address}", {"topics": [], "pattern": "of-q\\..*"}),
        ("eu.prices.#", "{address[1]}-{region}", {"topics": [], "pattern": "prices-.*"}),
    ],
)
def test_a_template_that_can_be_a_sources_topic_is_a_loop_unless_it_is_meant(
    address: str, target: str, taking: dict[str, Any]
) -> None:
    routes = [route("r", {"topic": target}, address=address)]
    assert f"can be a loop: target {target} can be" in fault(routes=routes, sources=[source(**taking)])
    config(routes=routes, sources=[source(**taking, two_way=True)])


@pytest.mark.parametrize(
    ("address", "target", "topic"),
    [
        ("#", "prices-{region}", "orders-in"),
        ("prices.#", "{address}", "orders.in"),
        ("#.prices", "{address}", "in"),
        ("*.prices", "{address}", "prices"),
        ("prices.*", "{address[0]}", "in"),
        ("#.prices.eu", "{address[-2]}-in", "eu-in"),
        ("#", "{address[0]}", "in.eu"),
    ],
)
def test_a_template_that_cannot_be_a_sources_topic_is_no_loop(address: str, target: str, topic: str) -> None:
    config(routes=[route("r", {"topic": target}, address=address)], sources=[source(topics=[topic])])


def test_two_sources_of_one_topic_overlap() -> None:
    assert "sources s and z overlap: both take in" in fault(sources=[source(), source("z", topics=[], pattern="i.*")])


def test_two_sources_with_one_queue_of_requests_are_refused() -> None:
    replies = {"replies": True, "dead_letter_topic": "dead"}
    first, second = source(requests="asked", **replies), source("z", topics=["other"], requests="asked", **replies)
    said = fault(sources=[first, second])
    assert "sources s and z both have asked as their queue of requests: one source may take several topics" in said
    config(sources=[first, second | {"requests": "others"}])
    config(sources=[source(**replies), source("z", topics=["other"], **replies)])


def test_dead_letters_are_not_taken_back() -> None:
    faulty = fault(dead_letter_topic="in", sources=[source()])
    assert "takes dead letters back from in" in faulty


def test_the_journals_and_kafkas_own_topics_are_no_targets_and_no_sources() -> None:
    for topic in ("flights.wal", "flights.agent.alerts", "__consumer_offsets"):
        with pytest.raises(ConfigError, match="own"):
            Router(config(routes=[route("r", {"topic": topic})]), journal="flights", own_topics=OWN)
        with pytest.raises(ConfigError, match="own"):
            Sources(config(sources=[source(topics=[topic])]), journal="flights", own_topics=OWN)


def test_routes_are_read_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "journal.toml"
    file.write_text(
        '[routing]\nhops_max = 3\n[[routing.routes]]\nname = "landed"\naddress = "flights.#"\n'
        '[[routing.routes.targets]]\ntopic = "landed"\nkey = ["header:tail", "none"]\n'
        '[[routing.sources]]\nname = "corrections"\ntopics = ["corrections"]\n'
    )
    routing = load_settings(file).routing
    assert (routing.hops_max, routing.routes[0].targets[0].key) == (3, ("header:tail", "none"))
    assert routing.sources[0].address == "kafka.{topic}"


def test_a_start_position_may_be_a_moment() -> None:
    assert start_ms("1970-01-01T00:00:01Z") == 1000
    assert start_ms("latest") is None
