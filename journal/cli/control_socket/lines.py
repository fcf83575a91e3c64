r"""Lines of JSON over a socket, with bounds on their size and time.

    request    {"id": 1, "method": "take", "params": {...}}
    replies    {"id": 1, "part": ...}                            none or more
               {"id": 1, "result": ...} or {"id": 1, "error": {"type": ..., "message": ..., "fields": {...}}}

A connection has one request at a time. A side that gets anything else than such a line ends the connection.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from journal.errors import DeadlineError, InvalidOperationError, NodeSocketError

_READ_BYTES = 65_536


class SocketLimits(BaseModel):
    """Bounds of a control socket. Times are seconds."""

    model_config = ConfigDict(frozen=True)

    connections_max: int = Field(default=16, ge=1)
    """Most connections, each of which has a thread. One more is refused."""

    request_bytes_max: int = Field(default=16 * 1024 * 1024, ge=1024)
    """Size of a request. A message's body in base64 fits if it takes up to three quarters of this."""

    reply_bytes_max: int = Field(default=128 * 1024 * 1024, ge=1024)
    """Size of a line that a command accepts from a node: the largest message of a store in base64, with its
    properties."""

    idle_s: float = Field(default=120.0, gt=0)
    """How long a node waits for the next request of a connection. After that it releases the messages that were taken
    through it."""

    line_s: float = Field(default=30.0, gt=0)
    """How long a line may take to arrive once it has begun, and to be read by the other side."""

    reply_s: float = Field(default=660.0, gt=0)
    """How long a command waits for a node's next line. A node may load its tables for ten minutes before it answers."""

    hello_s: float = Field(default=5.0, gt=0)
    """How long a command waits for a node to say its name."""

    close_s: float = Field(default=5.0, ge=0)
    """How long a node that closes waits for the replies to requests that it has accepted."""


class JsonConnection:
    """One side of a connection. One thread uses it; any thread may call `shut` and `shut_reading`."""

    def __init__(self, connected: socket.socket, *, bytes_max: int, line_s: float) -> None:
        """`bytes_max` bounds the size of a line that is read, `line_s` the time that a line may take."""
        self._socket = connected
        self._bytes_max = bytes_max
        self._line_s = line_s
        self._buffer = bytearray()

    def read(self, wait_s: float) -> dict[str, Any] | None:
        """The next line; None if the other side has ended the connection.

        Raises DeadlineError (nothing came within `wait_s`, or the rest of a line took too long), InvalidOperationError
        (no JSON object, or too long), OSError.
        """
        line = self._line(wait_s)
        if line is None:
            return None
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InvalidOperationError(f"a line is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise InvalidOperationError("a line is not a JSON object")
        return value

    def _line(self, wait_s: float) -> bytes | None:
        until = time.monotonic() + (self._line_s if self._buffer else wait_s)
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0 and len(self._buffer) <= self._bytes_max:
            searched = len(self._buffer)
            read = self._read_some(until)
            if not read:
                return None
            if not searched:
                until = time.monotonic() + self._line_s
            self._buffer += read
        if not 0 <= end <= self._bytes_max:
            raise InvalidOperationError(f"a line has more than {self._bytes_max} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _read_some(self, until: float) -> bytes:
        left = until - time.monotonic()
        if left <= 0:
            raise DeadlineError("the other side of the control socket sends nothing")
        self._socket.settimeout(left)
        try:
            return self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise DeadlineError("the other side of the control socket sends nothing") from None

    def write(self, value: Mapping[str, Any]) -> None:
        """Write a line. Raises DeadlineError if the other side does not read it in time, OSError if it is gone."""
        self._socket.settimeout(self._line_s)
        try:
            self._socket.sendall(encode_line(value))
        except TimeoutError:
            raise DeadlineError("the other side of the control socket does not read") from None

    def shut_reading(self) -> None:
        """Read nothing more. A thread that reads wakes up, and accepted requests can still be answered."""
        self._shut(socket.SHUT_RD)

    def shut(self) -> None:
        """End the connection. Threads that read or write wake up."""
        self._shut(socket.SHUT_RDWR)

    def _shut(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            return  # the other side has ended the connection already

    def close(self) -> None:
        self._socket.close()


def encode_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def require_no_gap(line: dict[str, Any] | None, request: int) -> dict[str, Any]:
    """The reply to this request. Raises NodeSocketError if the node is gone or answers something else."""
    if line is None:
        raise NodeSocketError("the node has ended the connection: it closed, or was killed")
    if line.get("id") not in (request, None):
        raise NodeSocketError(f"the node answers request {line.get('id')}, and {request} was asked")
    return line
