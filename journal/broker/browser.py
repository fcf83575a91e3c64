"""A link that browses a queue (`distribution-mode` copy): it sees each message once and holds none. With drain it ends
where the queue ends; without it, messages that come later follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from journal.amqp import SenderLink
from journal.amqp.message_types import State
from journal.broker.consumer import Consumer
from journal.broker.ports import LinkOwner
from journal.store.model import Delivery
from journal.store.operations.cursor import Selects
from journal.store.pending import Accepted


class Browser(Consumer):
    """One such link. What its client says of a message changes nothing."""

    def __init__(
        self, connection: LinkOwner, link: SenderLink, queue: str, *, presettled: bool, selects: Selects | None
    ) -> None:
        super().__init__(connection, link, queue, "", presettled=presettled)
        self._cursor = self._browsed = connection.store.cursor(queue, selects, browses=True)

    def _fetch(self, count: int) -> list[Delivery]:
        return self._browsed.browse(count)

    def _settle_sent(self, ids: Sequence[int]) -> None:
        pass

    def _apply(self, ids: Sequence[int], state: State | None, tx: int) -> Accepted | None:
        return None

    def close(self) -> None:
        self._stop()
        self._rest.clear()
        self._connection.do(self._browsed.close)
