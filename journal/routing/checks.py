"""Checks of all routes and sources together: overlaps, loops, and routes that no message reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from journal.patterns import covers, overlaps, parse_pattern
from journal.routing.outcomes import OnError, UnfitError
from journal.routing.parts import RouteConfig, SourceConfig
from journal.routing.templates import Template


class RoutesAndSources(Protocol):
    """Routes and sources of one journal."""

    @property
    def routes(self) -> Sequence[RouteConfig]: ...

    @property
    def sources(self) -> Sequence[SourceConfig]: ...

    @property
    def dead_letter_topic(self) -> str: ...


def faults_of(config: RoutesAndSources) -> list[str]:
    """The faults of routes and sources that show only when all are read together."""
    return [*_names(config), *_dead_letters(config), *_overlapping(config), *_looping(config), *_sources(config)]


def _all(config: RoutesAndSources) -> list[RouteConfig | SourceConfig]:
    return [*config.routes, *config.sources]


def _names(config: RoutesAndSources) -> list[str]:
    names = [each.name for each in _all(config)]
    return [f"{name} is the name of two routes or sources" for name in sorted(set(names)) if names.count(name) > 1]


def _dead_letters(config: RoutesAndSources) -> list[str]:
    return [
        f"{each.name} has on_error dead-letter and no dead_letter_topic, nor has routing"
        for each in _all(config)
        if each.on_error is OnError.DEAD_LETTER and not (each.dead_letter_topic or config.dead_letter_topic)
    ]


def _overlapping(config: RoutesAndSources) -> list[str]:
    """Routes that no message reaches, and pairs of routes that certainly send some message to the same topic twice."""
    faults = []
    for route in config.routes:
        topics = [_topic_for(target.topic, route.address) for target in route.targets]
        faults += [
            f"route {route.name} has {topic} as target twice" for topic in set(topics) if topics.count(topic) > 1
        ]
    for at, later in enumerate(config.routes):
        for earlier in config.routes[:at]:
            first, second = parse_pattern(earlier.address), parse_pattern(later.address)
            same = earlier.filter == later.filter
            if earlier.stop:
                if covers(first, second) and (not earlier.filter or same):
                    faults.append(f"no message comes to route {later.name}: {earlier.name} stops all that it matches")
                continue
            certain = same or not earlier.filter or not later.filter
            if certain and overlaps(first, second) and (topic := _topic_of_both(earlier, later)):
                faults.append(f"routes {earlier.name} and {later.name} overlap: both would send a message to {topic}")
    return faults


def _topic_of_both(earlier: RouteConfig, later: RouteConfig) -> str:
    """A topic to which both routes would send the same message; empty if there is none."""
    both = {target.topic for target in earlier.targets} & {target.topic for target in later.targets}
    for address in (earlier.address, later.address):
        if all(covers(parse_pattern(route.address), parse_pattern(address)) for route in (earlier, later)):
            topics = [{_topic_for(target.topic, address) for target in route.targets} for route in (earlier, later)]
            both |= topics[0] & topics[1]
    return min(both, default="")


def _topic_for(topic: str, address: str) -> str:
    """The topic that a template gives for an address. For an address pattern the wildcards stay in the text. A template
    that needs more than the address stays unchanged."""
    try:
        return Template(topic).fill({"address": address}.get)
    except UnfitError:
        return topic


def _looping(config: RoutesAndSources) -> list[str]:
    faults = []
    for route in config.routes:
        pattern = parse_pattern(route.address)
        for target in route.targets:
            for source in config.sources:
                if not source.two_way and (topic := _into(source, Template(target.topic), pattern)):
                    what = (
                        f"are a loop: {topic} is target and source"
                        if topic == target.topic
                        else f"can be a loop: target {target.topic} can be {topic}, which is a source"
                    )
                    faults.append(
                        f"route {route.name} and source {source.name} {what}. "
                        f"If others write there too, set two_way = true: what this journal wrote is passed over"
                    )
    return faults


def _into(source: SourceConfig, target: Template, pattern: Sequence[str]) -> str:
    """A topic of the source that the target's template can become; empty if there is none. If the source has a pattern
    of topics, only one sample of the template is tried against it."""
    if found := next((topic for topic in source.topics if target.can_be(topic, pattern)), ""):
        return found
    sample = target.sample(pattern)
    return sample if source.takes(sample) else ""


def _sources(config: RoutesAndSources) -> list[str]:
    faults = []
    for at, later in enumerate(config.sources):
        for earlier in config.sources[:at]:
            if later.requests and later.requests == earlier.requests:
                faults.append(
                    f"sources {earlier.name} and {later.name} both have {later.requests} as their queue of requests: "
                    "one source may take several topics"
                )
            faults += [
                f"sources {earlier.name} and {later.name} overlap: both take {topic}"
                for topic in sorted({*earlier.topics, *later.topics})
                if earlier.takes(topic) and later.takes(topic)
            ]
    dead = {config.dead_letter_topic} | {each.dead_letter_topic for each in _all(config)} - {""}
    for source in config.sources:
        faults += [
            f"source {source.name} takes dead letters back from {topic}"
            for topic in sorted(dead - {""})
            if source.takes(topic)
        ]
    return faults
