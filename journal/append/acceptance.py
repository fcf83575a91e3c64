"""Acceptance decides about an append by its arguments and the accepted state. Pure; one owner at a time.

`record_acceptance` decides about operations outside of transactions, `transaction_acceptance` about those inside and
about settlements. Both use the same locks and the same live records. Refusals because the journal is not active or the
queue is full are in `journal.append.intake`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from journal.append.locks import Locks
from journal.append.record_acceptance import RecordAcceptance
from journal.append.transaction_acceptance import TransactionAcceptance
from journal.limits import Limits


class Acceptance(RecordAcceptance):
    """Decides which operations may be appended after all that were accepted so far. A load fills it."""

    def __init__(self, shards: int, limits: Limits, live: BitMap64 | None = None) -> None:
        """`live` has the ids of the records that exist, if they are known already; the acceptance changes it from now
        on."""
        locks = Locks()
        super().__init__(limits, locks, BitMap64() if live is None else live)
        self.transactions = TransactionAcceptance(shards, limits, locks, self)

    def load_records(self, record_ids: Iterable[int]) -> None:
        self.live.update(record_ids)
