"""Requests that were sent to Kafka and wait for their replies: the messages with a reply address in a queue of the
store.

The queue is the only record of pending requests, so a failover keeps them as it keeps any message. The group that takes
in a reply also acknowledges its request: both happen, or neither. A source looks at its queue before each batch that
contains replies, when all accepted messages are durable. A request is durable before it is sent, and it is sent before
anybody can reply. So if a request is not in the queue at that time, nobody waits for the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from journal.errors import MessageMissingError, QueueMissingError
from journal.routing import headers as convention
from journal.routing.dead_letters import refusal
from journal.routing.headers import HeaderNames
from journal.routing.outcomes import Reason, RouteRefusal, UnfitError
from journal.routing.parts import SourceConfig
from journal.routing.record_in import policy_of
from journal.routing.templates import text_of
from journal.routing.view import value_of
from journal.store.message_records import encode_message, parse_message
from journal.store.model import Message, ReferenceState
from journal.store.operations.take_in import Settles
from journal.store.store import MessageStore

REQUESTS_MAX = 100_000
"""The most requests that may wait in one queue. The limit exists because every batch of replies looks at all of
them."""

_WAITING = (ReferenceState.READY, ReferenceState.SCHEDULED)
"""States of a reference in which its message counts as waiting. A held message belongs to its holder."""


class WaitingRequest(NamedTuple):
    """A message that waits for a reply. `since` is ms since 1970."""

    message: int
    correlation_id: str
    address: str
    since: int


class WaitingRequests:
    """The waiting requests of one source. Used by the sources' thread."""

    def __init__(self, store: MessageStore, source: SourceConfig, clock_ms: Callable[[], float]) -> None:
        self.source = source
        self._store = store
        self._clock_ms = clock_ms
        self._seen: dict[int, WaitingRequest | None] = {}
        """The request by message of the queue; None if the message asks for no reply."""
        self._waiting: dict[str, WaitingRequest] = {}

    def look(self) -> str:
        """Look at the queue; returns the reason if that is impossible, else an empty text. Raises JournalError."""
        queue = self.source.requests
        before, self._seen, self._waiting = self._seen, {}, {}
        try:
            config = self._store.queue(queue).config
            infos = list(self._store.browse(queue, REQUESTS_MAX + 1))
        except QueueMissingError:
            return f"queue {queue}, in which requests wait for replies, is not there: create it"
        if not config.durable:
            return f"queue {queue} is not durable: requests that wait in it would not outlive the node"
        if len(infos) > REQUESTS_MAX:
            return f"queue {queue} has too many waiting messages, over {REQUESTS_MAX:,}: lower reply_timeout_ms"
        for info in infos:
            if info.state not in _WAITING:
                continue
            message_id = info.message
            request = before[message_id] if message_id in before else self._read(message_id)
            self._seen[message_id] = request
            if request is not None:  # if two requests have the same correlation id, the first one is answered first
                self._waiting.setdefault(request.correlation_id, request)
        return ""

    def _read(self, message_id: int) -> WaitingRequest | None:
        try:
            message = self._store.message(message_id, body=False)
        except MessageMissingError:
            return None  # the message was removed a moment ago
        address = value_of(message, convention.REPLY_TO)
        if not message.durable or not isinstance(address, str) or not address:
            return None
        own = value_of(message, convention.CORRELATION_ID)
        # a route refuses a correlation id that is not text
        correlation_id = str(message_id) if own is None else text_of(own)
        if correlation_id is None:
            return None
        return WaitingRequest(message_id, correlation_id, address, message.timestamp or int(self._clock_ms()))

    def get(self, correlation_id: str) -> WaitingRequest | None:
        """The request with this correlation id that was waiting at the last look."""
        return self._waiting.get(correlation_id)

    def overdue(self, limit: int, now_ms: float) -> list[WaitingRequest]:
        """The requests that had waited too long at `now_ms`, in ms since 1970, among those found at the last look."""
        until = now_ms - self.source.reply_timeout_ms
        late = [request for request in self._seen.values() if request is not None and request.since < until]
        return late[:limit]

    def settles(self, request: WaitingRequest, *, expired: bool = False) -> Settles:
        return Settles(request.message, self.source.requests, expired)


class Waiting:
    """The requests of all sources."""

    def __init__(
        self,
        store: MessageStore,
        sources: Sequence[SourceConfig],
        clock_ms: Callable[[], float],
        agreed_ms: Callable[[], float],
    ) -> None:
        """`agreed_ms` is the time by which requests have waited too long, for good: that of `AgreedTime`, so that a
        wall clock that is set forward gives up nothing that still waits."""
        self._store = store
        self._agreed_ms = agreed_ms
        self._of_sources = {
            source.name: WaitingRequests(store, source, clock_ms) for source in sources if source.requests
        }

    def __bool__(self) -> bool:
        return bool(self._of_sources)

    def look(self, timeout_s: float) -> dict[str, str]:
        """Look at all queues; returns the reason by source for those queues that cannot be read. The batch before must
        have landed.

        Raises DeadlineError, and any error that ends the activation.
        """
        self._store.flush().wait(timeout_s)
        faults = {name: requests.look() for name, requests in self._of_sources.items()}
        return {name: fault for name, fault in faults.items() if fault}

    def address(self, source: str, correlation_id: str) -> str | None:
        """The address to which a source's reply goes; None if no request of this source waits for it."""
        requests = self._of_sources.get(source)
        found = None if requests is None else requests.get(correlation_id)
        return None if found is None else found.address

    def settles(self, source: str, message: Message) -> Settles | None:
        """The waiting request that a source's reply answers; None if there is none."""
        requests = self._of_sources.get(source)
        value = message.headers.get(convention.CORRELATION_ID)
        text = None if value is None else text_of(value)
        if requests is None or text is None or (found := requests.get(text)) is None:
            return None
        return requests.settles(found)

    def late_since(self) -> dict[str, float]:
        """Sources with requests that have waited too long, and the time of the look, in ms since 1970."""
        return {
            name: now_ms
            for name, requests in self._of_sources.items()
            if requests.overdue(1, now_ms := self._agreed_ms())
        }

    def overdue(self, source: str, limit: int, now_ms: float) -> list[tuple[WaitingRequests, WaitingRequest]]:
        """The requests of a source that had waited too long at a given time."""
        requests = self._of_sources[source]
        return [(requests, request) for request in requests.overdue(limit, now_ms)]


def unanswered(
    source: SourceConfig, message_id: int, message: Message, dead_letter_topic: str, bytes_max: int
) -> RouteRefusal:
    """The refusal of a request that has waited too long."""
    stored = parse_message(encode_message(message))
    detail = f"no reply has come in {source.reply_timeout_ms / 1000:g} s (reply_timeout_ms)"
    return refusal(
        UnfitError(Reason.NO_REPLY, detail),
        route=source.name,
        topic="",
        message=message_id,
        on_error=policy_of(source, Reason.NO_REPLY),
        dead_letter_topic=dead_letter_topic,
        key=convention.pack_long(message_id),
        value=message.body,
        headers=convention.whole(HeaderNames().encoded(message_id, message.address.encode(), stored)),
        bytes_max=bytes_max,
    )
