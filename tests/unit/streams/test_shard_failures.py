"""What each kind of error means to the shard that met it: every step with every error there is."""

from __future__ import annotations

import pytest

import journal.errors
from journal.errors import (
    AbortableProducerError,
    AgentError,
    ClosedError,
    CorruptionError,
    DeadlineError,
    FatalProducerError,
    FencedError,
    FrameError,
    HangingTransactionError,
    LocalDamageError,
    LocalStorageError,
    OperatingError,
    RetriableProducerError,
    RouteStopError,
    StaleReadError,
)
from streams.routes.outgoing import OutgrownError
from streams.worker.shard_failures import Remedy, Step, meaning_of

ROUTE_STOP = RouteStopError("a route cannot send", offset=1, retried=False)

MEANT = {
    (Step.RECOVERY, ClosedError("given up")): Remedy.RECOVER,
    (Step.RECOVERY, CorruptionError("a row")): Remedy.STOP_FOR_A_WHILE,
    (Step.RECOVERY, FrameError("a frame")): Remedy.STOP_FOR_A_WHILE,
    (Step.RECOVERY, LocalDamageError("a file")): Remedy.BUILD_COPY,
    (Step.RECOVERY, LocalStorageError("full")): Remedy.RECOVER,
    (Step.RECOVERY, HangingTransactionError("open")): Remedy.RECOVER,
    (Step.RECOVERY, FatalProducerError("fenced", fenced=True)): Remedy.RECOVER,
    (Step.FRAME, CorruptionError("a frame")): Remedy.STOP_AT_FRAME,
    (Step.FRAME, FrameError("a frame")): Remedy.STOP_AT_FRAME,
    (Step.FRAME, LocalDamageError("a file")): Remedy.BUILD_COPY,
    (Step.FRAME, LocalStorageError("full")): Remedy.RECOVER,
    (Step.CHECKPOINT, ROUTE_STOP): Remedy.STOP_BEFORE_GROUP,
    (Step.CHECKPOINT, OutgrownError("sizes")): Remedy.RECOVER,
    (Step.CHECKPOINT, FatalProducerError("state")): Remedy.FIND_REFUSED,
    (Step.CHECKPOINT, FatalProducerError("fenced", fenced=True)): Remedy.WAIT_TO_BE_REVOKED,
    (Step.CHECKPOINT, LocalDamageError("a file")): Remedy.BUILD_COPY,
    (Step.CHECKPOINT, LocalStorageError("full")): Remedy.RECOVER,
    (Step.CHECKPOINT, AgentError("raised")): Remedy.TELL_ALONE,
    (Step.CHECKPOINT, StaleReadError("deposed")): Remedy.ASK_TARGETS,
    (Step.CHECKPOINT, DeadlineError("late")): Remedy.TAKE_LESS,
    (Step.CHECKPOINT, RetriableProducerError("again")): Remedy.TAKE_LESS,
    (Step.CHECKPOINT, AbortableProducerError("abort")): Remedy.TAKE_LESS,
}


@pytest.mark.parametrize(("step", "error"), MEANT, ids=lambda value: getattr(value, "value", type(value).__name__))
def test_an_error_means_what_the_nearest_kind_in_the_table_says(step: Step, error: Exception) -> None:
    meaning = meaning_of(step, error)
    assert meaning is not None
    assert meaning.remedy is MEANT[step, error]


def test_every_remedy_is_that_of_some_error() -> None:
    assert set(MEANT.values()) == set(Remedy)


@pytest.mark.parametrize("step", [Step.RECOVERY, Step.CHECKPOINT])
def test_a_shard_recovers_from_whatever_the_environment_does(step: Step) -> None:
    for kind in vars(journal.errors).values():
        if isinstance(kind, type) and issubclass(kind, OperatingError):
            error = ROUTE_STOP if kind is RouteStopError else kind("it is so")
            assert meaning_of(step, error) is not None, kind


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Step.FRAME, DeadlineError("late")),
        (Step.FRAME, ROUTE_STOP),
        (Step.CHECKPOINT, CorruptionError("a row")),
        (Step.CHECKPOINT, FencedError("a node")),
        (Step.RECOVERY, FencedError("a node")),
        (Step.RECOVERY, OutgrownError("sizes")),
    ],
)
def test_an_error_that_its_step_cannot_meet_is_a_fault_of_the_program(step: Step, error: Exception) -> None:
    assert meaning_of(step, error) is None
