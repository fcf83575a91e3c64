"""`on_in_doubt`: what happens to branches in doubt whose coordinator does not come back.

The default keeps them for ever, because only their coordinator knows the outcome. The outcome of a branch that is
settled by policy is heuristic: it is kept, and the coordinator is told when it asks (`XaCode.HEURCOM`, `HEURRB`). A
transaction that was prepared without an xid of its own has no coordinator; it is settled too, and no outcome is kept.
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
    """Which branches a policy settles. `age_ms` counts from the prepare, by the clock of its node; from the load if the
    prepare has no time."""

    action: OnInDoubt = OnInDoubt.KEEP
    age_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.age_ms < 0:
            raise ConfigError(f"on_in_doubt: an age of {self.age_ms} ms is below 0")
        if self.action is not OnInDoubt.KEEP and not self.age_ms:
            raise ConfigError(f"on_in_doubt: {self.action.value} needs an age: a coordinator must have had its time")

    def apply(self, resource: XaResource, now_ms: float) -> list[int]:
        """Settle the transactions that are old enough, and return them. Call it now and then.

        Transactions that were settled by others meanwhile are skipped, and if the journal refuses one, the others are
        still settled. Raises ClosedError and StateError, and the error with which the journal has failed.
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
