"""Transactions of a chain. They are begun, prepared and settled in all stores under one number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from journal.append.operations import PlainOperation
from journal.errors import FullError, JournalError, TransactionUnknownError
from journal.store.chain.core import ChainCore
from journal.store.chain.lockstep import chained_id
from journal.store.operations.transactions import Prepared
from journal.store.pending import Pending

log = logging.getLogger(__name__)


class ChainTransactions:
    """The operations of a chain on its transactions."""

    def __init__(self, core: ChainCore) -> None:
        self._core = core
        self._abandoned: dict[int, None] = {}
        """Transactions that this chain has begun and given up, and that must still be rolled back."""

    def begin(self) -> int:
        self._roll_back_abandoned()
        with self._core.lock:
            tx = self._core.steps.ask_first(lambda store: store.begin())
            for place in range(1, len(self._core.stores)):
                self._core.steps.ask_other(place, lambda store: store.begin(chained_id(tx)))
            self._core.in_transaction[tx] = []
            self._core.begun.add(tx)
            return tx

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        # `not_durable` is that of the first store, because its ids are those of the chain
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.prepare(tx, data))
            joined = self._core.steps.join(first, lambda store: store.prepare(chained_id(tx), data))
            return Prepared(tx, joined.completion, first.not_durable)

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Pending:
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.commit(tx, then=then, discard=False))
            joined = self._core.steps.join(first, lambda store: self._settle(tx, partial(store.commit, discard=False)))
            self._core.settled(tx, joined)
        self._core.discard_leaving()
        return Pending(tx, joined.completion)

    def rollback(self, tx: int, *, release: bool = False) -> Pending:
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.rollback(tx, release=release))
            joined = self._core.steps.join(
                first, lambda store: self._settle(tx, partial(store.rollback, release=release))
            )
            self._core.settled(tx, joined)
            return Pending(tx, joined.completion)

    def _settle(self, tx: int, settle: Callable[[int], Pending]) -> Pending:
        """Settle a transaction in another store. That store may have settled it before a crash, while it is still in
        doubt in the first one."""
        try:
            return settle(chained_id(tx))
        except TransactionUnknownError:
            if tx in self._core.begun:
                raise
            return Pending(tx)

    def abandon(self, tx: int) -> None:
        """Roll back a transaction of the chain's own. If the first store does not accept the rollback now, it is done
        later."""
        self._abandoned[tx] = None
        self._roll_back_abandoned()

    def _roll_back_abandoned(self) -> None:
        """Roll back the abandoned transactions, as far as the first store accepts it now."""
        for tx in list(self._abandoned):
            if tx in self._core.begun:
                try:
                    self.rollback(tx)
                except FullError:
                    return
                except JournalError as error:
                    log.info("transaction %d is left for the next activation to roll back: %s", tx, error)
            self._abandoned.pop(tx, None)
