"""Records with a duplicate-detection id: one message for each, as far back as their address remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journal.routing.outcomes import Header
from journal.store.model import Message, QueueConfig
from tests.unit.routing.building import record, taking
from tests.unit.sources.scene import DEADLINE_S, SourcesScene

IN = {"name": "in", "topics": ["t"], "address": "a"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SourcesScene]:
    """An address that remembers two ids."""
    made = SourcesScene(tmp_path)
    made.broker.topic("t")
    made.store.create_address("a", duplicate_window=2)
    made.declare(QueueConfig("a", "a"))
    yield made
    made.close()


def known_as(duplicate_id: bytes) -> list[tuple[str, bytes]]:
    return [("_AMQ_DUPL_ID", duplicate_id)]


@pytest.mark.parametrize("batch_records", [1, 100])
def test_records_of_one_duplicate_id_are_one_message_and_their_offsets_go_on(
    scene: SourcesScene, batch_records: int
) -> None:
    scene.broker.produce("t", b"first", b"again", headers=known_as(b"d-1"))
    scene.broker.produce("t", b"other", headers=known_as(b"d-2"))
    scene.broker.produce("t", b"plain", b"plain")
    with scene.taking(IN, batch_records=batch_records):
        scene.wait_committed("t", 5)
        scene.wait_until(lambda: scene.source("in")["records"] == 5)
    assert scene.bodies("a") == [b"first", b"other", b"plain", b"plain"]
    assert scene.status.as_json()["duplicates"] == 1
    assert scene.source("in")["error"] == ""


def test_what_a_producer_has_sent_is_a_duplicate_too_and_what_is_forgotten_is_not(scene: SourcesScene) -> None:
    sent = scene.store.send(Message("a", b"sent", duplicate_id=b"d-1"), ["a"])
    sent.wait(DEADLINE_S)
    scene.broker.produce("t", b"again", headers=known_as(b"d-1"))
    for number in (b"2", b"3"):
        scene.broker.produce("t", number, headers=known_as(number))
    scene.broker.produce("t", b"forgotten", headers=known_as(b"d-1"))
    with scene.taking(IN, batch_records=1):
        scene.wait_committed("t", 4)
        scene.wait_until(lambda: scene.source("in")["records"] == 4)
    assert scene.bodies("a") == [b"sent", b"2", b"3", b"forgotten"]
    assert scene.status.as_json()["duplicates"] == 1


def test_a_batch_of_more_ids_than_its_address_remembers_is_taken_in(scene: SourcesScene) -> None:
    numbers = [b"%d" % number for number in range(5)]
    for number in numbers:
        scene.broker.produce("t", number, headers=known_as(number))
    with scene.taking(IN):
        scene.wait_committed("t", 5)
    assert scene.bodies("a") == numbers


def test_a_batch_that_was_not_taken_in_leaves_no_duplicates(scene: SourcesScene) -> None:
    refusals = ["refused"]
    scene.broker.refuses = lambda offsets, beside: refusals.pop() if refusals and offsets.get(("t", 0)) else ""
    scene.broker.produce("t", b"1", headers=known_as(b"d-1"))
    with scene.taking(IN):
        scene.wait_committed("t", 1)
        scene.wait_until(lambda: scene.source("in")["records"] == 1)
    assert scene.bodies("a") == [b"1"]
    assert scene.status.as_json()["duplicates"] == 0


@pytest.mark.parametrize(
    ("header", "duplicate_id"),
    [
        (("_AMQ_DUPL_ID", b"d-1"), b"d-1"),
        (("_AMQ_DUPL_ID", b"\xff\xfe"), b"\xff\xfe"),
        (("jms.string._AMQ_DUPL_ID", b"d-1"), b"d-1"),
        (("jms.bytes._AMQ_DUPL_ID", b"d-1"), b"d-1"),
        (("_AMQ_DUPL_ID", None), b""),
        (("jms.string.other", b"d-1"), b""),
    ],
)
def test_the_id_is_in_the_property_that_artemis_has_it_in(header: Header, duplicate_id: bytes) -> None:
    sources = taking()
    for _ in range(2):  # what headers are is remembered
        message = sources.convert(record(headers=[("jms.string.plain", b"p"), header]))
        assert isinstance(message, Message)
        assert message.duplicate_id == duplicate_id


def test_a_source_that_does_not_take_the_header_has_no_duplicates() -> None:
    fields: dict[str, Any] = {"headers": ["*", "!_AMQ_*"]}
    message = taking(**fields).convert(record(headers=known_as(b"d-1")))
    assert isinstance(message, Message)
    assert message.duplicate_id == b""
