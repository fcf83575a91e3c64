"""What sources are refused with, at start, and what becomes of what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from journal.errors import ConfigError
from journal.routing.outcomes import OnError, Reason, RouteRefusal
from journal.routing.parts import SourceConfig
from journal.routing.record_in import Sources, policy_of
from tests.unit.routing.building import OWN, config, record, source

ASKING: dict[str, Any] = {"replies": True, "requests": "ask"}


def taking(bytes_max: dict[str, int] | None = None, *, dead_letter_topic: str = "", **fields: Any) -> Sources:
    routing = config(sources=[source(**fields)], dead_letter_topic=dead_letter_topic)
    return Sources(routing, journal="flights", own_topics=OWN, bytes_max=bytes_max)


@pytest.mark.parametrize("topic", ["flights.wal", "flights.control", "__consumer_offsets"])
def test_the_journals_and_kafkas_own_topics_take_no_dead_letters(topic: str) -> None:
    with pytest.raises(ConfigError, match=f"source s: {topic} is a topic of the journal's"):
        taking(on_error="dead-letter", dead_letter_topic=topic)
    routing = config(sources=[source(on_error="dead-letter") | {"dead_letter_topic": topic}])
    with pytest.raises(ConfigError, match="own"):
        Sources(routing, journal="flights", own_topics=OWN)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_requests_need_a_dead_letter_topic(policy: str) -> None:
    with pytest.raises(ConfigError, match=r"source s has requests.*set dead_letter_topic"):
        taking(on_error=policy, **ASKING)
    taking(on_error=policy, dead_letter_topic="dead", **ASKING)


@pytest.mark.parametrize(
    ("reason", "policy", "becomes"),
    [
        (Reason.NO_REPLY, "fail", OnError.DEAD_LETTER),
        (Reason.NO_REPLY, "skip", OnError.DEAD_LETTER),
        (Reason.NO_REQUEST, "fail", OnError.DEAD_LETTER),
        (Reason.NO_REQUEST, "skip", OnError.SKIP),
        (Reason.BAD_ADDRESS, "fail", OnError.DEAD_LETTER),
        (Reason.BAD_ADDRESS, "skip", OnError.SKIP),
        (Reason.NOT_TEXT, "fail", OnError.FAIL),
    ],
)
def test_what_misses_its_request_or_reply_is_a_dead_letter(reason: Reason, policy: str, becomes: OnError) -> None:
    asking = SourceConfig.model_validate(source(on_error=policy, **ASKING))
    assert policy_of(asking, reason) is becomes
    assert policy_of(SourceConfig.model_validate(source(on_error=policy)), reason) is OnError(policy)


def test_the_size_of_a_dead_letter_is_what_its_topic_takes_when_it_is_made() -> None:
    sizes: dict[str, int] = {}
    sources = taking(sizes, value="text", on_error="dead-letter", dead_letter_topic="dead")

    def sent() -> bytes | None:
        refused = sources.convert(record(b"\xff" * 2000))
        assert isinstance(refused, RouteRefusal)
        assert refused.dead_letter is not None
        return refused.dead_letter.value

    assert sent() == b"\xff" * 2000
    sizes["dead"] = 2000
    assert sent() is None
