"""A batch of records that are encoded in runs is the batch of the same records one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.config import load_settings
from journal.kafka.ports import Cluster
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.routing.record_in import Sources
from journal.routing.source_record import SourceRecord
from journal.sources.batch import Converter, SourceBatch
from journal.sources.filters import Filters
from journal.sources.letters import LetterTopics
from journal.sources.requests import Waiting
from journal.store.incoming import Incoming, PlainRun
from journal.store.model import QueueConfig
from journal.store.settings import StoreSettings
from tests.support.children.store import start
from tests.unit.sources.scene import BrokerCluster, SourcesBroker

ROUTING = {
    "dead_letter_topic": "letters",
    "sources": [
        {"name": "orders", "topics": ["a", "b"], "address": "orders", "on_error": "dead-letter"},
        {"name": "stock", "topics": ["c"], "address": "orders"},
        {"name": "lost", "topics": ["d"], "address": "nowhere", "on_error": "skip"},
    ],
}
INLINE_BYTES = 100
LIMITS = Limits(data_bytes_max=300)


class OneByOne(Sources):
    """Has no plain records."""

    def encode(
        self, records: Sequence[SourceRecord], start: int, end: int, bytes_max: int, room: int
    ) -> PlainRun | None:
        return None


PLAIN_HEADERS = [[], [("jms.string.region", b"eu")]]
OTHER_HEADERS = [
    [("plain", b"x" * 250)],
    [("jms.long.count", b"no number")],
    [("jms.string.JMSCorrelationID", b"c")],
    None,
]
PLAIN_VALUES = [None, b"", b"v", b"v" * INLINE_BYTES]
OTHER_VALUES = [b"v" * (INLINE_BYTES + 1), b"v" * 400]


def some(headers: Sequence[object], values: Sequence[object]) -> st.SearchStrategy[SourceRecord]:
    return st.builds(
        SourceRecord,
        topic=st.just(""),
        partition=st.just(0),
        offset=st.just(0),
        timestamp=st.sampled_from([-1, 0, 5, 6, 2**40]),
        key=st.sampled_from([None, b"k", b"k" * 250]),
        value=st.sampled_from(values),
        headers=st.sampled_from(headers),
    )


plain = some(PLAIN_HEADERS, PLAIN_VALUES)
parts = st.tuples(
    st.sampled_from("aaabbcd"),
    st.integers(0, 1),
    st.lists(
        st.one_of(plain, plain, some(PLAIN_HEADERS + OTHER_HEADERS, PLAIN_VALUES + OTHER_VALUES)),
        min_size=1,
        max_size=6,
    ),
)
"""Records of a topic's partition that follow each other."""


def as_consumed(found: list[tuple[str, int, list[SourceRecord]]]) -> list[SourceRecord]:
    """Each partition's by offset."""
    offsets = count(7, 3)
    return [
        record._replace(topic=topic, partition=partition, offset=next(offsets))
        for topic, partition, records in found
        for record in records
    ]


batches = st.lists(parts, min_size=1, max_size=5).map(as_consumed)


class Scene:
    """Both ways to convert, for one store."""

    def __init__(self, directory: Path) -> None:
        self._settings = load_settings(None, journal="j", routing=ROUTING)
        self.journal = LocalJournal(directory)
        self.journal.start()
        self.store = start(self.journal, StoreSettings(inline_bytes_max=INLINE_BYTES, chunk_bytes=64))
        self.store.create_address("orders")
        self.store.create_queue(QueueConfig("orders", "orders")).wait(10)
        self._letters = LetterTopics(self._settings)
        broker = SourcesBroker()
        broker.topic("letters", 2)
        self._letters.look(cast(Cluster, BrokerCluster(broker)), 1)

    def converter(self, kind: type[Sources], batch_bytes: int) -> Converter:
        routing = self._settings.routing
        sources = kind(routing, journal="j", own_topics=frozenset(), bytes_max=self._letters.bytes_max)
        waiting = Waiting(self.store, routing.sources, time.time, time.time)
        return Converter(
            sources,
            routing,
            self.store,
            Filters(self.store),
            waiting,
            self._letters,
            LIMITS,
            batch_bytes=batch_bytes,
            request_s=1,
        )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("journal"))
    yield made
    made.store.close()
    made.journal.close()


def messages(batch: SourceBatch) -> list[tuple[str, bytes, int]]:
    flat = [one for each in batch.messages for one in (each.each() if isinstance(each, PlainRun) else [each])]
    return [(one.address, one.data, one.timestamp) for one in flat]


def facts(batch: SourceBatch) -> dict[str, object]:
    kept = ("beside", "letters", "letter_bytes", "offsets", "counts", "stopped", "stopped_at")
    return {"messages": messages(batch), "left": [*batch.left], **{name: getattr(batch, name) for name in kept}}


@given(taken=batches, records_max=st.integers(1, 30), letters_max=st.integers(1, 5))
def test_a_batch_is_what_its_records_one_by_one_are(
    scene: Scene, taken: list[SourceRecord], records_max: int, letters_max: int
) -> None:
    runs, one_by_one = (
        scene.converter(kind, 10**6).batch(taken, records_max, letters_max) for kind in (Sources, OneByOne)
    )
    assert facts(runs) == facts(one_by_one)


@given(taken=batches, batch_bytes=st.integers(0, 600))
def test_small_batches_one_after_the_other_are_the_large_one(
    scene: Scene, taken: list[SourceRecord], batch_bytes: int
) -> None:
    whole = scene.converter(Sources, 10**6).batch(taken, len(taken), len(taken))
    converter, found, offsets = scene.converter(Sources, batch_bytes), list[tuple[str, bytes, int]](), {}
    left: Sequence[SourceRecord] = taken
    while left:
        batch = converter.batch(left, len(taken), len(taken))
        assert len(batch.left) < len(left)
        found += messages(batch)
        offsets |= batch.offsets
        left = [] if batch.stopped else batch.left
    if not whole.stopped:
        assert (found, offsets) == (messages(whole), whole.offsets)


def test_plain_records_of_a_batch_are_in_runs(scene: Scene) -> None:
    plain = [SourceRecord("a", part, offset, 5, b"k", b"v", []) for part in (0, 1) for offset in range(3)]
    other = SourceRecord("b", 0, 0, 5, b"k", b"v", [("jms.string.JMSCorrelationID", b"c")])
    batch = scene.converter(Sources, 10**6).batch([*plain, other, *plain], 100, 1)
    assert [type(each) for each in batch.messages] == [PlainRun, Incoming, PlainRun]
    assert len(messages(batch)) == 13
