"""`on_in_doubt`: what becomes of branches in doubt whose coordinator does not come back.

The default is to keep them for ever: only their coordinator knows the outcome. Settled by policy, an outcome is
heuristic: it is kept, and the coordinator hears of it when it asks (`XaCode.HEURCOM`, `HEURRB`). What was prepared
without an xid of its own has no coordinator to hear of it; it is settled all the same, and nothing kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from journal.errors import CallerError, ClosedError, ConfigError, StateError, TransactionUnknownError, XidError
from journal.xa.resource import XaResource
from journal.xa.xid import text

log = logging.getLogger(__name__)


class OnInDoubt(Enum):
    """What to do with a branch that has been in doubt for too long."""

    KEEP = "keep"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class InDoubtPolicy:
    """`age_ms` counts from the prepare, by the clock of its node; from the load if the prepare has no time."""

    action: OnInDoubt = OnInDoubt.KEEP
    age_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.age_ms < 0:
            raise ConfigError(f"on_in_doubt: an age of {self.age_ms} ms is below 0")
        if self.action is not OnInDoubt.KEEP and not self.age_ms:
            raise ConfigError(f"on_in_doubt: {self.action.value} needs an age: a coordinator must have had its time")

    def apply(self, resource: XaResource, now_ms: float) -> list[int]:
        """Settle what is old enough, and return the transactions that were settled. Call it now and then.

        What somebody else settles meanwhile is left to them, and what the journal refuses of one transaction stops no
        other. Raises ClosedError and StateError, and what the journal fails with.
        """
        if self.action is OnInDoubt.KEEP:
            return []
        commit = self.action is OnInDoubt.COMMIT
        settled = []
        for line in resource.in_doubt():
            if now_ms - line.since_ms < self.age_ms:
                continue
            if not _settled(line.tx, partial(resource.settle, line.xid, commit=commit)):
                continue
            log.warning("on_in_doubt: %s of transaction %d, xid %s", self.action.value, line.tx, text(line.xid))
            settled.append(line.tx)
        if now_ms - resource.loaded_ms < self.age_ms:
            return settled
        for tx in list(resource.unnamed):
            if not _settled(tx, partial(resource.settle_unnamed, tx, commit=commit)):
                continue
            log.warning("on_in_doubt: %s of transaction %d, without an xid of its own", self.action.value, tx)
            settled.append(tx)
        return settled


def _settled(tx: int, settle: Callable[[], None]) -> bool:
    """Call `settle`. False if the transaction stays as it is."""
    try:
        settle()
    except (XidError, TransactionUnknownError) as error:
        log.info("on_in_doubt leaves transaction %d: %s", tx, error)
        return False
    except (ClosedError, StateError):
        raise
    except CallerError as error:
        log.warning("on_in_doubt cannot settle transaction %d: %s", tx, error)
        return False
    return True
