"""The node's side of one connection: each request becomes a call of the node's operations, one after another."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from journal.cli.operations.ports import Json, NodeOperations, QueueAct, Receiving, SendOrder, SentSoFar
from journal.cli.operations.typed_values import parse_values, value_texts
from journal.cli.script import encode_data
from journal.errors import InvalidOperationError, StateError
from journal.limits import ID_MAX
from journal.store.model import Message

SEND_MESSAGES_MAX = 1000
"""The most messages in one request, so that a node does not work for long for a peer that is gone."""

_T = TypeVar("_T")


class Params:
    """The parameters of a request. Any process may have written them, so they are checked. Raises
    InvalidOperationError."""

    def __init__(self, given: object) -> None:
        if not isinstance(given, dict):
            raise InvalidOperationError("params is not an object")
        self._given = given

    def _of(self, name: str, kind: type[_T]) -> _T:
        value = self._given.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidOperationError(f"parameter {name} is no {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        return self._of(name, str)

    def flag(self, name: str) -> bool:
        return self._of(name, bool)

    def number(self, name: str) -> int:
        """A number that is 0 or more."""
        value = self._of(name, int)
        if not 0 <= value <= ID_MAX:
            raise InvalidOperationError(f"parameter {name} is out of range")
        return value

    def texts(self, name: str) -> list[str]:
        values = self._of(name, list)
        if not all(isinstance(value, str) for value in values):
            raise InvalidOperationError(f"parameter {name} is not a list of texts")
        return values

    def values(self, name: str) -> Mapping[str, Any]:
        """An object of texts, numbers and flags."""
        values: dict[str, Any] = self._of(name, dict)
        if not all(isinstance(value, (str, int)) for value in values.values()):
            raise InvalidOperationError(f"parameter {name} is not an object of texts, numbers and flags")
        return values

    def order(self) -> SendOrder:
        """The `SendOrder` that `order_params` has encoded."""
        try:
            body = base64.b64decode(self.text("body"), validate=True)
        except binascii.Error as error:
            raise InvalidOperationError(f"parameter body is not base64: {error}") from None
        headers, properties = parse_values(self.texts("properties"), "parameter properties")
        message = Message(
            self.text("address"),
            body,
            headers=headers,
            properties=properties,
            priority=self.number("priority"),
            timestamp=self.number("timestamp"),
            expires=self.number("expires"),
            due=self.number("due"),
        )
        count = self.number("count")
        if count > SEND_MESSAGES_MAX:
            raise InvalidOperationError(f"a request sends up to {SEND_MESSAGES_MAX} messages, and this one {count}")
        return SendOrder(message, self.texts("queues"), count, self.flag("create"))


def order_params(order: SendOrder) -> Json:
    """A `SendOrder` as parameters. Of a message they have only what `send` can set."""
    message = order.message
    return {
        "address": message.address,
        "body": encode_data(message.body),
        "properties": value_texts({**message.headers, **message.properties}),
        "priority": message.priority,
        "timestamp": message.timestamp,
        "expires": message.expires,
        "due": message.due,
        "queues": list(order.queues),
        "count": order.count,
        "create": order.create,
    }


Part = Callable[[Any], None]
"""Sends a part of the reply."""


class ControlRequests:
    """The requests of one connection. The connection's thread uses it."""

    def __init__(self, operations: NodeOperations) -> None:
        self._operations = operations
        self._receiving: Receiving | None = None

    def answer(self, request: Mapping[str, Any], part: Part) -> Any:
        """The result of a request. Raises JournalError."""
        method = _METHODS.get(str(request.get("method")))
        if method is None:
            raise InvalidOperationError(
                f"this node knows no method {request.get('method')!r}: it is of another version"
            )
        return method(self, Params(request.get("params", {})), part)

    def close(self) -> None:
        """Release the messages that were taken through this connection."""
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.close()

    # ---- methods ---------------------------------------------------------------------------------------------------

    def _status(self, params: Params, part: Part) -> Any:
        return dict(self._operations.status())

    def _hand_over(self, params: Params, part: Part) -> Any:
        return dict(self._operations.hand_over(params.text("to")))

    def _resume_source(self, params: Params, part: Part) -> Any:
        source, operator = params.text("source"), params.text("operator")
        return dict(self._operations.resume_source(source, skip=params.flag("skip"), operator=operator))

    def _queues(self, params: Params, part: Part) -> Any:
        return self._operations.queues()._asdict()

    def _messages(self, params: Params, part: Part) -> Any:
        total, lines = self._operations.messages(params.text("queue"), params.number("limit"))
        part(total)
        for line in lines:
            part(line)
        return None

    def _message(self, params: Params, part: Part) -> Any:
        found = self._operations.message(params.number("id"))
        part({"data": encode_data(found.data), "large": found.is_large})
        for piece in found.pieces:
            part(encode_data(piece))
        return None

    def _explain(self, params: Params, part: Part) -> Any:
        return self._operations.explain(params.number("id"))

    def _transactions(self, params: Params, part: Part) -> Any:
        return self._operations.transactions()._asdict()

    def _transaction(self, params: Params, part: Part) -> Any:
        return self._operations.transaction(params.text("named"))._asdict()

    def _send(self, params: Params, part: Part) -> Any:
        return self._operations.send(params.order(), SentSoFar())._asdict()

    def _queue(self, params: Params, part: Part) -> Any:
        act = QueueAct(params.text("action"), params.text("queue"), params.values("fields"))
        return self._operations.queue(act, operator=params.text("operator"))

    def _settle(self, params: Params, part: Part) -> Any:
        tx, operator = params.number("tx"), params.text("operator")
        return self._operations.settle(tx, commit=params.flag("commit"), operator=operator)

    def _forget(self, params: Params, part: Part) -> Any:
        return self._operations.forget(params.text("named"), operator=params.text("operator"))

    def _receive(self, params: Params, part: Part) -> Any:
        if self._receiving is not None:
            raise StateError("this connection receives already")
        self._receiving = self._operations.receiving(params.text("queue"), params.text("receiver"))

    def _take(self, params: Params, part: Part) -> Any:
        return self._received().take()

    def _acknowledge(self, params: Params, part: Part) -> Any:
        self._received().acknowledge(params.number("message"))

    def _finish(self, params: Params, part: Part) -> Any:
        return self._received().finish()

    def _close(self, params: Params, part: Part) -> Any:
        self.close()

    def _received(self) -> Receiving:
        if self._receiving is None:
            raise StateError("this connection does not receive: `receive` comes first")
        return self._receiving


_METHODS: Mapping[str, Callable[[ControlRequests, Params, Part], Any]] = {
    "status": ControlRequests._status,
    "hand_over": ControlRequests._hand_over,
    "resume_source": ControlRequests._resume_source,
    "queues": ControlRequests._queues,
    "messages": ControlRequests._messages,
    "message": ControlRequests._message,
    "explain": ControlRequests._explain,
    "transactions": ControlRequests._transactions,
    "transaction": ControlRequests._transaction,
    "send": ControlRequests._send,
    "queue": ControlRequests._queue,
    "settle": ControlRequests._settle,
    "forget": ControlRequests._forget,
    "receive": ControlRequests._receive,
    "take": ControlRequests._take,
    "acknowledge": ControlRequests._acknowledge,
    "finish": ControlRequests._finish,
    "close": ControlRequests._close,
}
