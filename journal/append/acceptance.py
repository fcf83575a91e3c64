"""Acceptance refuses an append for what it says. Pure; one owner at a time.

`record_acceptance` refuses operations outside of transactions, `transaction_acceptance` those inside and settlements;
both meet the same locks and know the same live records. A journal that is not active, and a full queue, refuse in
`journal.append.intake`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from journal.append.locks import Locks
from journal.append.record_acceptance import RecordAcceptance
from journal.append.transaction_acceptance import TransactionAcceptance
from journal.limits import Limits


class Acceptance(RecordAcceptance):
    """What may be appended after all that was accepted so far. A load fills it."""

    def __init__(self, shards: int, limits: Limits, live: BitMap64 | None = None) -> None:
        """`live` has the ids of the records that exist, if they are known. The acceptance changes it from now on."""
        locks = Locks()
        super().__init__(limits, locks, BitMap64() if live is None else live)
        self.transactions = TransactionAcceptance(shards, limits, locks, self)

    def load_records(self, record_ids: Iterable[int]) -> None:
        self.live.update(record_ids)
