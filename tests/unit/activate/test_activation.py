"""What an activation reads after the fence: both reads at once, whose journal it is before what its frames say. And
what it says when it cannot claim."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Timer
from typing import Any

import pytest

from journal.activate.activation import Activation
from journal.append.writing import Claim
from journal.errors import DeadlineError, FatalProducerError, OperatingError, StateError, TopicError
from journal.limits import Limits
from journal.load.loading import NullLoader
from journal.process.background import InBackground, at_once
from journal.process.clocks import Timing
from journal.table.replica import Replica
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Identity
from journal.wal.config import WriterConfig
from journal.wire.frames import FORMAT, MAGIC
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.timeline import Timeline
from tests.support.activations import Activations, fails

REQUEST_S = 10.0
OURS, ANOTHERS = b"o" * 16, b"a" * 16


def activate(identity: bytes, *, beside: InBackground, wal_partitions: int) -> None:
    """An activation of a journal of two shards, on topics that say that they are `identity`'s."""
    broker = SimulatedBroker(Timeline())
    kafka = SimulatedKafka(broker)
    broker.create_topic(wal_topic("j"), wal_partitions, 1, {})
    broker.create_topic(control_topic("j"), 1, 1, {})
    row = control_row("j", IDENTITY_KEY, Identity(magic=MAGIC, format=FORMAT, journal=identity, name="j", shards=2))
    broker.write(row.topic, 0, [(row.key, row.value)])
    now = broker.timeline.now
    store = SimulatedStore(Disk(), Faults(), "node")
    replica = Replica(
        kafka,
        table_topic("j"),
        range(2),
        store,
        b"",
        clock=now,
        wall_ms=now,
        delete_retention_ms=1,
        min_compaction_lag_ms=1,
        held_bytes_max=1000,
    )
    Activation(
        kafka,
        WriterConfig("j", OURS, 2, 0.0, 0.0, 0.0, 1 << 20),
        Limits(),
        lambda epoch: Claim(epoch, "node", b"nonce"),
        replica,
        store,
        Timing(now, lambda seconds: None, REQUEST_S, REQUEST_S, REQUEST_S),
        require_same_table=lambda: None,
        gate_s=0.0,
        wall_ms=now,
        progress=lambda step, done, total: None,
        beside=beside,
    ).run(NullLoader())


def test_a_journal_made_anew_is_told_as_such_whatever_its_wal_gives() -> None:
    with pytest.raises(StateError, match="was made anew"):
        activate(ANOTHERS, beside=at_once, wal_partitions=1)


def test_what_the_wal_does_not_give_is_told_where_the_journal_is_the_same() -> None:
    with pytest.raises(TopicError, match="is not there"):
        activate(OURS, beside=at_once, wal_partitions=1)


def test_no_read_of_a_try_that_failed_runs_on() -> None:
    reads: list[Future[Any]] = []

    def slowly(call: Callable[[], Any]) -> Future[Any]:
        """All but the first."""
        future: Future[Any] = Future()
        if reads:
            Timer(0.2, future.set_result, ([],)).start()
        else:
            future = at_once(call)
        reads.append(future)
        return future

    with pytest.raises(StateError, match="was made anew"):
        activate(ANOTHERS, beside=slowly, wal_partitions=2)
    assert [read.done() for read in reads] == [True, True, True]


def test_an_activation_that_is_not_told_whose_table_it_read_fails_in_time() -> None:
    scene = Activations()

    def beside(call: Callable[[], Any]) -> Future[Any]:
        return Future() if call == scene.same_table else at_once(call)

    with pytest.raises(DeadlineError, match="whether the local copy is still one of the table"):
        scene.activate(beside=beside, request_s=0.01)


@pytest.mark.parametrize("of_init", [False, True])
def test_a_claim_that_is_refused_at_every_try_says_what_refused_it(
    of_init: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Activations()
    inits = 0

    def refuse(*_: object) -> list[int]:
        raise FatalProducerError("this one may not write topic j.wal")

    def initialise(transactional_id: str) -> SimulatedTransactionalProducer:
        nonlocal inits
        inits += 1
        producer = make(transactional_id)
        monkeypatch.setattr(producer, "send", refuse)
        if of_init and inits > 1:
            monkeypatch.setattr(producer, "init", lambda _: refuse())
        return producer

    make = scene.kafka.transactional_producer
    monkeypatch.setattr(scene.kafka, "transactional_producer", initialise)
    assert "this one may not write topic j.wal" in str(fails(scene))


def test_what_a_call_raises_at_once_is_its_futures() -> None:
    def failing() -> None:
        raise OperatingError("no answer")

    future = at_once(failing)
    with pytest.raises(OperatingError, match="no answer"):
        future.result()
