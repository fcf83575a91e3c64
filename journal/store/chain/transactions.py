"""Transactions of a chain: begun, prepared and settled in all stores under one number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from journal.append.operations import PlainOperation
from journal.errors import FullError, JournalError, TransactionUnknownError
from journal.store.chain.core import ChainCore
from journal.store.chain.lockstep import chained_id
from journal.store.operations.transactions import Prepared
from journal.store.pending import Pending

log = logging.getLogger(__name__)


class ChainTransactions:
    """Operations on transactions."""

    def __init__(self, core: ChainCore) -> None:
        self._core = core
        self._abandoned: list[int] = []
        """Transactions that this chain began and gave up, and that are still to be rolled back."""

    def begin(self) -> int:
        abandoned, self._abandoned = self._abandoned, []
        for tx in abandoned:
            self.abandon(tx)
        with self._core.lock:
            tx = self._core.steps.ask_first(lambda store: store.begin())
            for place in range(1, len(self._core.stores)):
                self._core.steps.ask_other(place, lambda store: store.begin(chained_id(tx)))
            self._core.in_transaction[tx] = []
            self._core.begun.add(tx)
            return tx

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        # `not_durable` is the first store's, whose ids are the chain's
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.prepare(tx, data))
            joined = self._core.steps.join(first, lambda store: store.prepare(chained_id(tx), data))
            return Prepared(tx, joined.completion, first.not_durable)

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Pending:
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.commit(tx, then=then))
            joined = self._core.steps.join(first, lambda store: self._settle(tx, store.commit))
            self._core.settled(tx, joined)
            return Pending(tx, joined.completion)

    def rollback(self, tx: int) -> Pending:
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.rollback(tx))
            joined = self._core.steps.join(first, lambda store: self._settle(tx, store.rollback))
            self._core.settled(tx, joined)
            return Pending(tx, joined.completion)

    def _settle(self, tx: int, settle: Callable[[int], Pending]) -> Pending:
        """Settle in another store, which may have settled before a crash what is still in doubt in the first one."""
        try:
            return settle(chained_id(tx))
        except TransactionUnknownError:
            if tx in self._core.begun:
                raise
            return Pending(tx)

    def abandon(self, tx: int) -> None:
        """Roll back a transaction of the chain's own, later if the first store does not take it now."""
        if tx not in self._core.begun:
            return
        try:
            self.rollback(tx)
        except FullError:
            self._abandoned.append(tx)
        except JournalError as error:
            log.info("transaction %d is left for the next activation to roll back: %s", tx, error)
