"""The commands' side of a control socket. It calls a running node's operations from another process of its machine."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from journal.cli.control_socket.errors import decode_error
from journal.cli.control_socket.lines import JsonConnection, SocketLimits, encode_line, require_no_gap
from journal.cli.control_socket.paths import connect, node_of, socket_path, sockets_directory, sockets_of
from journal.cli.control_socket.requests import SEND_MESSAGES_MAX, order_params
from journal.cli.control_socket.server import HELLO
from journal.cli.operations.ports import (
    Json,
    MessageRead,
    MessagesFound,
    QueueAct,
    QueuesFound,
    SendOrder,
    SendResult,
    SentSoFar,
    TransactionFound,
    TransactionsFound,
)
from journal.config import Settings
from journal.errors import ConfigError, DeadlineError, InvalidOperationError, JournalError, NodeSocketError
from journal.process.commands import command
from journal.process.progress import Progress, no_progress
from journal.words import called


class NodeClient:
    """`NodeOperations` of a node, over one connection. One thread uses it, for one call at a time.

    Raises what the node raises, and NodeSocketError or DeadlineError if the node does not answer.
    """

    def __init__(self, path: Path, limits: SocketLimits | None = None, *, progress: Progress = no_progress) -> None:
        """Raises NodeSocketError."""
        self._limits = limits or SocketLimits()
        self._lines = JsonConnection(
            connect(path, self._limits.hello_s), bytes_max=self._limits.reply_bytes_max, line_s=self._limits.line_s
        )
        self._progress = progress
        self._request = 0
        self._answered = True
        """The reply to the last request is complete, and the node has not ended the connection."""

    # ---- operations ------------------------------------------------------------------------------------------------

    def hello(self) -> str:
        """The node's name. Raises NodeSocketError soon if the node does not answer."""
        try:
            said = self._call(HELLO, wait_s=self._limits.hello_s)
        except DeadlineError as error:
            raise NodeSocketError("it takes connections and does not answer: it hangs, or was stopped") from error
        return str(said["node"])

    def status(self) -> Mapping[str, Any]:
        return dict(self._call("status"))

    def hand_over(self, to: str) -> Mapping[str, Any]:
        return dict(self._call("hand_over", to=to))

    def resume_source(self, source: str, *, skip: bool, operator: str) -> Mapping[str, Any]:
        return dict(self._call("resume_source", source=source, skip=skip, operator=operator))

    def queues(self) -> QueuesFound:
        return QueuesFound(**self._call("queues"))

    def messages(self, queue: str, limit: int) -> MessagesFound:
        parts = self._parts("messages", {"queue": queue, "limit": limit})
        return MessagesFound(int(next(parts)), parts)

    def message(self, message_id: int) -> MessageRead:
        parts = self._parts("message", {"id": message_id})
        first = next(parts)
        return MessageRead(base64.b64decode(first["data"]), bool(first["large"]), map(base64.b64decode, parts))

    def explain(self, record_id: int) -> Json:
        return dict(self._call("explain", id=record_id))

    def transactions(self) -> TransactionsFound:
        return TransactionsFound(**self._call("transactions"))

    def transaction(self, named: str) -> TransactionFound:
        return TransactionFound(**self._call("transaction", named=named))

    def send(self, order: SendOrder, so_far: SentSoFar) -> SendResult:
        """Send messages, in requests of a bounded number each. Some may be stored when a later request is refused."""
        sent = SendResult([], [])
        while (left := order.count - len(sent.messages)) > 0:
            self._progress("send", len(sent.messages), order.count)
            # all messages go to the queues that the first ones went to
            part = replace(order, count=min(left, SEND_MESSAGES_MAX), queues=sent.queues or order.queues)
            so_far.begin(part.count)
            said = SendResult(**self._call("send", **order_params(part)))
            so_far.handed_in(said.messages, lambda: True)
            so_far.queues = said.queues
            sent = SendResult(said.queues, sent.messages + said.messages)
        return sent

    def receiving(self, queue: str, receiver: str) -> RemoteReceiving:
        self._call("receive", queue=queue, receiver=receiver)
        return RemoteReceiving(self)

    def queue(self, act: QueueAct, *, operator: str) -> Json:
        return dict(self._call("queue", **act._asdict(), operator=operator))

    def settle(self, tx: int, *, commit: bool, operator: str) -> int:
        return int(self._call("settle", tx=tx, commit=commit, operator=operator))

    def forget(self, named: str, *, operator: str) -> int:
        return int(self._call("forget", named=named, operator=operator))

    def take(self) -> Json | None:
        found: Json | None = self._call("take")
        return found

    def acknowledge(self, message: int) -> None:
        self._call("acknowledge", message=message)

    def finish(self) -> int:
        return int(self._call("finish"))

    def give_back(self) -> None:
        """Release the messages that were taken and not acknowledged. After a request that was given up (by Ctrl-C or a
        time-out) this ends the connection instead, which has the same effect: the late reply would otherwise be taken
        for that of the next request."""
        if self._answered:
            self._call("close")
        else:
            self.close()

    # ---- calling ---------------------------------------------------------------------------------------------------

    def _call(self, method: str, *, wait_s: float | None = None, **params: Any) -> Any:
        self._ask(method, params)
        line = self._reply(wait_s or self._limits.reply_s)
        return line.get("result")

    def _parts(self, method: str, params: Json) -> Iterator[Any]:
        self._ask(method, params)
        while "part" in (line := self._reply(self._limits.reply_s)):
            yield line["part"]

    def _ask(self, method: str, params: Mapping[str, Any]) -> None:
        self._request += 1
        request = {"id": self._request, "method": method, "params": params}
        size = len(encode_line(request))
        if size > self._limits.request_bytes_max:
            raise InvalidOperationError(
                f"a request of {size} bytes is too large for a control socket, which takes "
                f"{self._limits.request_bytes_max}: a body may have three quarters of that"
            )
        self._answered = False
        try:
            self._lines.write(request)
        except OSError:
            return  # the node has ended the connection, and may have sent the reason before

    def _reply(self, wait_s: float) -> Json:
        """A part of the reply, or the result. Raises the node's error."""
        try:
            line = require_no_gap(self._lines.read(wait_s), self._request)
        except DeadlineError as error:
            raise DeadlineError(
                f"the node has not answered in {wait_s:g} s: what it was asked may still be done"
            ) from error
        except OSError as error:
            raise NodeSocketError(f"the node has ended the connection: {error}") from error
        self._answered = "part" not in line and line.get("id") is not None
        if "error" in line:
            raise decode_error(line["error"])
        return line

    def close(self) -> None:
        self._lines.close()

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteReceiving:
    """`Receiving` over a client's connection."""

    def __init__(self, client: NodeClient) -> None:
        self.take = client.take
        self.acknowledge = client.acknowledge
        self.finish = client.finish
        self.close = client.give_back


# ---- which node --------------------------------------------------------------------------------------------


def find_node(
    settings: Settings, name: str, limits: SocketLimits | None = None, *, progress: Progress = no_progress
) -> NodeClient:
    """A connection to the node `name` of this machine, or without a name to the only one that runs.

    Raises NodeSocketError if no node answers, and ConfigError if several do.
    """
    if name:
        return _named(settings, name, limits, progress)
    answering: list[tuple[str, NodeClient]] = []
    silent: list[str] = []
    for path in sockets_of(settings):
        try:
            answering.append(_greeted(path, limits, progress))
        except JournalError as error:
            silent.append(str(error))
    if len(answering) == 1:
        return answering[0][1]
    for _, client in answering:
        client.close()
    if answering:
        names = ", ".join(name for name, _ in answering)
        raise ConfigError(f"several nodes of {called(settings.journal)} run on this machine, {names}: --node=NAME")
    raise NodeSocketError(
        "; ".join(silent)
        or f"no node of {called(settings.journal)} runs on this machine: there is no socket in "
        f"{sockets_directory(settings)} ({command('node')} starts one)"
    )


def _named(settings: Settings, name: str, limits: SocketLimits | None, progress: Progress) -> NodeClient:
    chosen = socket_path(settings, name)
    try:
        return _greeted(chosen, limits, progress)[1]
    except NodeSocketError as error:
        others = [node_of(path) for path in sockets_of(settings) if path != chosen]
        if not others:
            raise
        raise NodeSocketError(f"{error}; sockets that there are: {', '.join(others)}") from error


def _greeted(path: Path, limits: SocketLimits | None, progress: Progress) -> tuple[str, NodeClient]:
    """A connection to a node that has said its name."""
    client = NodeClient(path, limits, progress=progress)
    try:
        return client.hello(), client
    except NodeSocketError as error:
        client.close()
        raise NodeSocketError(f"node {node_of(path)} at {path}: {error}") from error
    except JournalError:
        client.close()
        raise
