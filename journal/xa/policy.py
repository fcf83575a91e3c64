"""`on_in_doubt`: what becomes of branches in doubt whose coordinator does not come back.

The default is to keep them for ever: only their coordinator knows the outcome. Settled by policy, an outcome is
heuristic: it is kept, and the coordinator hears of it when it asks (`XaCode.HEURCOM`, `HEURRB`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum

from journal.errors import ConfigError
from journal.xa.resource import InDoubt, XaResource
from journal.xa.xid import text

log = logging.getLogger(__name__)


class OnInDoubt(Enum):
    """What to do with a branch that has been in doubt for too long."""

    KEEP = "keep"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class InDoubtPolicy:
    """`age_ms` counts from the prepare, by the clock of the node that made it."""

    action: OnInDoubt = OnInDoubt.KEEP
    age_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.age_ms < 0:
            raise ConfigError(f"on_in_doubt: an age of {self.age_ms} ms is below 0")
        if self.action is not OnInDoubt.KEEP and not self.age_ms:
            raise ConfigError(f"on_in_doubt: {self.action.value} needs an age: a coordinator must have had its time")

    def apply(self, resource: XaResource, now_ms: float) -> list[InDoubt]:
        """Settle what is old enough; what was settled. Call it now and then."""
        if self.action is OnInDoubt.KEEP:
            return []
        old = [line for line in resource.in_doubt() if now_ms - line.since_ms >= self.age_ms]
        for line in old:
            resource.settle(line.xid, commit=self.action is OnInDoubt.COMMIT)
            log.warning("on_in_doubt: %s of transaction %d, xid %s", self.action.value, line.tx, text(line.xid))
        return old
