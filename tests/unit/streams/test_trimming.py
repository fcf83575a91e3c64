"""Trims on a schedule: by whoever serves shard 0, one at a time, and never the end of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest

from journal.config import Settings, load_settings
from journal.errors import ConfigError, KafkaUnavailableError, TrimError
from journal.topics.control_rows import ControlRows
from journal.v1.journal_pb2 import Archive, Identity
from journal.wire.frames import FORMAT, MAGIC
from streams.reading.records import Record
from streams.reading.shell import WorkerShell
from streams.worker.trimming import GivenUp, TrimmingShell, with_trims
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL

WAIT_S = 30.0
EVERY_S = 10.0


class TrimmedShell(WorkerShell):
    """One that does nothing."""

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        return dict.fromkeys(shards, 7)

    def revoked(self, shards: Collection[int]) -> None: ...

    def frames(self, shard: int, records: Sequence[Record]) -> None: ...

    def tick(self) -> float:
        return 0.5

    def seeks(self) -> Mapping[int, int]:
        return {}

    def applied(self) -> Mapping[int, int]:
        return {}

    def stop(self) -> None: ...

    def abandon(self) -> None: ...


class Trims:
    """A clock, and trims that are begun by it and end when a test says how."""

    def __init__(self) -> None:
        self.now = 0.0
        self.begun = 0
        self.given_up = 0
        self._begun = threading.Semaphore(0)
        self._ends: list[Callable[[], int]] = []
        self._end = threading.Semaphore(0)
        self.shell = TrimmingShell(TrimmedShell(), self._trim, EVERY_S, lambda: self.now)

    def _trim(self, stop: threading.Event) -> int:
        self.begun += 1
        self._begun.release()
        while not self._end.acquire(timeout=0.01):
            if stop.is_set():
                self.given_up += 1
                raise GivenUp
        return self._ends.pop()()

    def end(self, how: Callable[[], int]) -> None:
        """Let the one under way end, and begin the next, which is due."""
        assert self._begun.acquire(timeout=WAIT_S)
        self._ends.append(how)
        self._end.release()
        self.now += EVERY_S

    def until_begun(self, count: int) -> None:
        """Tick until so many have begun."""
        ticked = threading.Event()
        for _ in range(int(WAIT_S / 0.01)):
            self.shell.tick()
            if self.begun == count:
                return
            ticked.wait(0.01)
        raise AssertionError(f"{self.begun} trims were begun, not {count}")


def failing(error: Exception) -> Callable[[], int]:
    def end() -> int:
        raise error

    return end


def test_who_serves_shard_0_trims_when_it_is_due_and_nobody_else() -> None:
    trims = Trims()
    trims.now += EVERY_S
    assert trims.shell.assigned((1, 2)) == {1: 7, 2: 7}
    assert trims.shell.tick() == 0.5
    trims.shell.assigned((0, 1))
    trims.until_begun(1)
    trims.now += EVERY_S
    trims.shell.tick()
    assert trims.begun == 1, "one at a time"
    trims.end(lambda: 3)
    trims.until_begun(2)
    trims.shell.stop()
    assert (trims.begun, trims.given_up) == (2, 1)


@pytest.mark.parametrize("error", [KafkaUnavailableError("no broker"), TrimError("tables differ")])
def test_a_trim_that_fails_is_tried_again_when_the_next_is_due(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    trims = Trims()
    trims.now += EVERY_S
    trims.shell.assigned((0,))
    trims.until_begun(1)
    trims.end(failing(error))
    trims.until_begun(2)
    trims.shell.stop()
    assert f"tried again in 10 s: {error}" in caplog.text


def test_a_fault_of_our_own_ends_the_worker() -> None:
    trims = Trims()
    trims.now += EVERY_S
    trims.shell.assigned((0,))
    trims.until_begun(1)
    trims.end(failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        trims.until_begun(2)
    trims.shell.stop()


def test_a_trim_under_way_is_given_up_when_the_shard_is_another_s_and_not_when_it_comes_back() -> None:
    trims = Trims()
    trims.now += EVERY_S
    trims.shell.assigned((0,))
    trims.until_begun(1)
    trims.shell.revoked((0,))
    trims.shell.assigned((0, 1))
    trims.end(lambda: 1)
    trims.until_begun(2)
    trims.shell.revoked((0,))
    trims.shell.assigned((1,))
    trims.now += EVERY_S
    trims.shell.stop()
    assert (trims.begun, trims.given_up) == (2, 1)


def test_a_trim_under_way_is_given_up_when_an_error_has_ended_the_worker() -> None:
    trims = Trims()
    trims.now += EVERY_S
    trims.shell.assigned((0,))
    trims.until_begun(1)
    trims.shell.abandon()
    assert trims.given_up == 1


def settings(**given: object) -> Settings:
    return load_settings(None, journal="j", bootstrap_servers="nowhere:1", **given)


def rows(journal: bytes | None) -> ControlRows:
    archives = {} if journal is None else {0: Archive(journal=journal, shard=0, offset=1, path="/a")}
    return ControlRows(Identity(magic=MAGIC, format=FORMAT, journal=JOURNAL, name="j", shards=1), archives=archives)


def test_a_worker_that_is_to_trim_without_an_archive_does_not_start_unless_that_is_meant() -> None:
    kafka, shell = SimulatedKafka(SimulatedBroker(Timeline(), Faults())), TrimmedShell()
    assert with_trims(shell, kafka, settings(), rows(None)) is shell
    for found in (rows(None), rows(bytes(16))):
        with pytest.raises(ConfigError, match="trim_without_archive does without"):
            with_trims(shell, kafka, settings(trim_every_ms=1000), found)
        with_trims(shell, kafka, settings(trim_every_ms=1000, trim_without_archive=True), found).stop()
    with_trims(shell, kafka, settings(trim_every_ms=1000), rows(JOURNAL)).stop()
    with pytest.raises(ConfigError, match="set that too"):
        settings(trim_without_archive=True)
