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
from streams.worker.shard_failures import Remedy, ShardStep, meaning_of

ROUTE_STOP = RouteStopError("a route cannot send", offset=1, retried=False)

MEANT = {
    (ShardStep.RECOVERY, ClosedError("given up")): Remedy.RECOVER,
    (ShardStep.RECOVERY, CorruptionError("a row")): Remedy.STOP_FOR_A_WHILE,
    (ShardStep.RECOVERY, FrameError("a frame")): Remedy.STOP_FOR_A_WHILE,
    (ShardStep.RECOVERY, LocalDamageError("a file")): Remedy.BUILD_COPY,
    (ShardStep.RECOVERY, LocalStorageError("full")): Remedy.RECOVER,
    (ShardStep.RECOVERY, HangingTransactionError("open")): Remedy.RECOVER,
    (ShardStep.RECOVERY, FatalProducerError("fenced", fenced=True)): Remedy.RECOVER,
    (ShardStep.FRAME, CorruptionError("a frame")): Remedy.STOP_AT_FRAME,
    (ShardStep.FRAME, FrameError("a frame")): Remedy.STOP_AT_FRAME,
    (ShardStep.FRAME, LocalDamageError("a file")): Remedy.BUILD_COPY,
    (ShardStep.FRAME, LocalStorageError("full")): Remedy.RECOVER,
    (ShardStep.CHECKPOINT, ROUTE_STOP): Remedy.STOP_BEFORE_GROUP,
    (ShardStep.CHECKPOINT, OutgrownError("sizes")): Remedy.RECOVER,
    (ShardStep.CHECKPOINT, FatalProducerError("state")): Remedy.FIND_REFUSED,
    (ShardStep.CHECKPOINT, FatalProducerError("fenced", fenced=True)): Remedy.WAIT_TO_BE_REVOKED,
    (ShardStep.CHECKPOINT, LocalDamageError("a file")): Remedy.BUILD_COPY,
    (ShardStep.CHECKPOINT, LocalStorageError("full")): Remedy.RECOVER,
    (ShardStep.CHECKPOINT, AgentError("raised")): Remedy.TELL_ALONE,
    (ShardStep.CHECKPOINT, StaleReadError("deposed")): Remedy.ASK_TARGETS,
    (ShardStep.CHECKPOINT, DeadlineError("late")): Remedy.TAKE_LESS,
    (ShardStep.CHECKPOINT, RetriableProducerError("again")): Remedy.TAKE_LESS,
    (ShardStep.CHECKPOINT, AbortableProducerError("abort")): Remedy.TAKE_LESS,
}


@pytest.mark.parametrize(("step", "error"), MEANT, ids=lambda value: getattr(value, "value", type(value).__name__))
def test_an_error_means_what_the_nearest_kind_in_the_table_says(step: ShardStep, error: Exception) -> None:
    meaning = meaning_of(step, error)
    assert meaning is not None
    assert meaning.remedy is MEANT[step, error]


def test_every_remedy_is_that_of_some_error() -> None:
    assert set(MEANT.values()) == set(Remedy)


@pytest.mark.parametrize("step", [ShardStep.RECOVERY, ShardStep.CHECKPOINT])
def test_a_shard_recovers_from_whatever_the_environment_does(step: ShardStep) -> None:
    for kind in vars(journal.errors).values():
        if isinstance(kind, type) and issubclass(kind, OperatingError):
            error = ROUTE_STOP if kind is RouteStopError else kind("it is so")
            assert meaning_of(step, error) is not None, kind


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (ShardStep.FRAME, DeadlineError("late")),
        (ShardStep.FRAME, ROUTE_STOP),
        (ShardStep.CHECKPOINT, CorruptionError("a row")),
        (ShardStep.CHECKPOINT, FencedError("a node")),
        (ShardStep.RECOVERY, FencedError("a node")),
        (ShardStep.RECOVERY, OutgrownError("sizes")),
    ],
)
def test_an_error_that_its_step_cannot_meet_is_a_fault_of_the_program(step: ShardStep, error: Exception) -> None:
    assert meaning_of(step, error) is None
