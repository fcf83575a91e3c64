"""Acceptance: whether the active node may append an operation. Pure; one owner at a time.

It decides about operations outside of transactions itself, and its `transactions` about those inside and about
settlement. Both meet the same locks, and know the same live records.
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
