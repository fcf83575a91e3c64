"""What an error means for the shard that met it, as one table by the step of the shard and the kind of the error.

`ShardWorker` looks up every error of a recovery, a frame or a checkpoint, and applies the remedy. An error that is not
in the table is a fault of the program, and ends the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from journal.errors import (
    AgentError,
    ClosedError,
    CorruptionError,
    FatalProducerError,
    LocalDamageError,
    LocalStorageError,
    OperatingError,
    RouteStopError,
    StaleReadError,
)
from streams.routes.outgoing import OutgrownError

log = logging.getLogger(__name__)


class ShardStep(Enum):
    """The step in which a shard met an error."""

    RECOVERY = "recovery"
    FRAME = "frame"
    CHECKPOINT = "checkpoint"


class Remedy(Enum):
    """How the shard reacts to an error. After any of these, a shard that does not stop recovers before it goes on."""

    RECOVER = "recover, and do the same again"
    BUILD_COPY = "build the local copy anew"
    STOP_AT_FRAME = "checkpoint what came before the frame, and stop until an operator has it skipped"
    STOP_FOR_A_WHILE = "stop, and read again later"
    STOP_BEFORE_GROUP = "apply up to before the group that a route cannot send, checkpoint that, and stop"
    TELL_ALONE = "pause, and tell agents of one group a checkpoint"
    WAIT_TO_BE_REVOKED = "apply nothing until the group says whose the shard is"
    FIND_REFUSED = "find out what was refused; if nothing was, take less"
    ASK_TARGETS = "look at the routes' targets again"
    TAKE_LESS = "look at the routes' targets again, and checkpoint less at once"


class Meaning(NamedTuple):
    """What one kind of error means."""

    remedy: Remedy
    level: int
    """The level at which the error is logged; 0 if it is not logged, because the remedy logs more."""
    text: str = ""
    """The text in the log before the error itself."""

    def log(self, shard: int, error: Exception) -> None:
        """Log the error, if its level is not 0."""
        if self.level:
            trace = error if self.remedy is Remedy.TELL_ALONE else None
            log.log(self.level, "shard %d: %s%s", shard, self.text and self.text + ": ", error, exc_info=trace)


_DAMAGED = Meaning(Remedy.BUILD_COPY, logging.WARNING, "the local copy is damaged, and will be built anew")

_MEANINGS: Mapping[ShardStep, Mapping[type[Exception], Meaning]] = {
    ShardStep.RECOVERY: {
        ClosedError: Meaning(Remedy.RECOVER, logging.INFO),
        CorruptionError: Meaning(Remedy.STOP_FOR_A_WHILE, 0),
        LocalDamageError: _DAMAGED,
        OperatingError: Meaning(Remedy.RECOVER, logging.WARNING, "it cannot be recovered yet"),
    },
    ShardStep.FRAME: {
        CorruptionError: Meaning(Remedy.STOP_AT_FRAME, 0),
        LocalDamageError: _DAMAGED,
        LocalStorageError: Meaning(Remedy.RECOVER, logging.ERROR),
    },
    ShardStep.CHECKPOINT: {
        RouteStopError: Meaning(Remedy.STOP_BEFORE_GROUP, 0),
        OutgrownError: Meaning(Remedy.RECOVER, logging.INFO, "another producer"),
        FatalProducerError: Meaning(Remedy.FIND_REFUSED, logging.WARNING),
        LocalDamageError: _DAMAGED,
        LocalStorageError: Meaning(Remedy.RECOVER, logging.ERROR),
        AgentError: Meaning(Remedy.TELL_ALONE, logging.ERROR, "no checkpoint"),
        StaleReadError: Meaning(Remedy.ASK_TARGETS, logging.WARNING, "the checkpoint's outcome is not known"),
        OperatingError: Meaning(Remedy.TAKE_LESS, logging.WARNING, "the checkpoint's outcome is not known"),
    },
}

_FENCED = Meaning(Remedy.WAIT_TO_BE_REVOKED, logging.WARNING)

KNOWN = (OperatingError, CorruptionError, ClosedError, OutgrownError)
"""The families of errors that the table knows in some step."""


def meaning_of(step: ShardStep, error: Exception) -> Meaning | None:
    """The meaning of the error in this step, by its nearest kind in the table; None if it is a fault of the program."""
    if step is ShardStep.CHECKPOINT and isinstance(error, FatalProducerError) and error.fenced:
        return _FENCED
    meanings = _MEANINGS[step]
    return next((meanings[kind] for kind in type(error).__mro__ if kind in meanings), None)
