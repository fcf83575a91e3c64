"""The node's side of its control socket: a thread that accepts, and a bounded number of threads, one for each
connection.

None of the node's own threads ever waits for a connection. A peer that is silent, reads nothing, sends nonsense or
disappears loses its connection, and the messages that it had taken are released.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from journal.cli.control_socket.errors import encode_error
from journal.cli.control_socket.lines import JsonConnection, SocketLimits, encode_line
from journal.cli.control_socket.paths import OwnSocket
from journal.cli.control_socket.requests import ControlRequests
from journal.cli.operations.ports import NodeOperations
from journal.errors import DeadlineError, FullError, InvalidOperationError, JournalError, NodeSocketError

log = logging.getLogger(__name__)

HELLO = "hello"
"""The request for the node's name. The server itself answers it, whatever the node is doing."""

_NO_DESCRIPTORS_PAUSE_S = 1.0


class ControlSocketServer:
    """Serves from its construction until `close`."""

    def __init__(self, path: Path, node: str, operations: NodeOperations, limits: SocketLimits) -> None:
        """Raises NodeSocketError."""
        self._node = node
        self._operations = operations
        self._limits = limits
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, JsonConnection] = {}
        self._closing = threading.Event()
        self._socket = OwnSocket(path)
        self._is_lost = False
        self._accepting = threading.Thread(target=self._accept, name="kafka-journal-control-socket", daemon=True)
        self._accepting.start()

    @property
    def path(self) -> Path:
        return self._socket.path

    @property
    def connections(self) -> int:
        """Number of connections now."""
        with self._lock:
            return len(self._connections)

    def close(self) -> None:
        """Accept no more requests, end the connections, and remove the socket. Accepted requests are still answered, if
        that takes no longer than `close_s`."""
        self._closing.set()
        with suppress(OSError):  # the thread may be creating the socket again just now; the next look then ends it
            self._socket.listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        with self._lock:
            connections = dict(self._connections)
        for lines in connections.values():
            lines.shut_reading()
        until = time.monotonic() + self._limits.close_s
        for thread, lines in connections.items():
            thread.join(max(0.0, until - time.monotonic()))
            lines.shut()
        self._socket.close()

    # ---- accepting -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connected, _ = self._socket.listening.accept()
            except TimeoutError:
                self._look()
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.warning("the control socket takes no connection: %s", error)
                    self._closing.wait(_NO_DESCRIPTORS_PAUSE_S)
                continue  # the server closes, or the peer gave up before it was accepted
            self._take_on(connected)

    def _look(self) -> None:
        """Create the socket again if it was deleted. A failure is logged once until that succeeds."""
        if not self._socket.is_lost:
            return
        try:
            self._socket.renew()
        except NodeSocketError as error:
            level = logging.DEBUG if self._is_lost else logging.ERROR
            log.log(level, "commands do not find this node: its control socket was deleted, and %s", error)
            self._is_lost = True
        else:
            log.warning("the control socket %s was deleted, and is made anew", self.path)
            self._is_lost = False

    def _take_on(self, connected: socket.socket) -> None:
        limits = self._limits
        refusal = f"{limits.connections_max} commands use this node's control socket: try again"
        with self._lock:
            if len(self._connections) < limits.connections_max:
                lines = JsonConnection(connected, bytes_max=limits.request_bytes_max, line_s=limits.line_s)
                thread = threading.Thread(
                    target=self._serve, args=(lines,), name="kafka-journal-control-connection", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    refusal = f"no thread can be started on this node's machine ({error}): allow it more, or try again"
                    log.error("a connection of the control socket was refused: %s", refusal)
                else:
                    self._connections[thread] = lines
                    return
        _refuse(connected, refusal)

    # ---- one connection --------------------------------------------------------------------------------------------

    def _serve(self, lines: JsonConnection) -> None:
        requests = ControlRequests(self._operations)
        try:
            while not self._closing.is_set() and self._answer(lines, requests):
                pass
        except _PeerGoneError as gone:
            log.debug("a connection of the control socket ended: %s", gone)
        except Exception:
            # this is the edge of the thread: a failing request must be logged, and must not end the node
            log.exception("a connection of the control socket failed")
        finally:
            try:
                requests.close()
            finally:
                with self._lock:
                    del self._connections[threading.current_thread()]
                lines.close()

    def _answer(self, lines: JsonConnection, requests: ControlRequests) -> bool:
        """Read one request and reply to it; False if the connection has ended."""
        try:
            request = lines.read(self._limits.idle_s)
        except InvalidOperationError as error:
            _write(lines, {"id": None, "error": encode_error(error)})
            return False
        except DeadlineError:
            _write(lines, {"id": None, "error": encode_error(self._silence())})
            return False
        except OSError as error:
            raise _PeerGoneError(str(error)) from error
        if request is None:
            return False
        number = request.get("id")
        try:
            if request.get("method") == HELLO:
                result: object = {"node": self._node}
            else:
                result = requests.answer(request, lambda part: _write(lines, {"id": number, "part": part}))
        except JournalError as error:
            _write(lines, {"id": number, "error": encode_error(error)})
        else:
            _write(lines, {"id": number, "result": result})
        return True

    def _silence(self) -> DeadlineError:
        return DeadlineError(
            f"nothing was asked for {self._limits.idle_s:g} s: the node has ended the connection, and what was taken "
            "through it and not acknowledged is given back"
        )


class _PeerGoneError(Exception):
    """The other side has disappeared or hangs. Its connection ends, even if a request is open."""


def _write(lines: JsonConnection, value: Mapping[str, object]) -> None:
    try:
        lines.write(value)
    except (OSError, DeadlineError) as error:
        raise _PeerGoneError(str(error)) from error


def _refuse(connected: socket.socket, why: str) -> None:
    """Refuse a connection, and say so if that is possible at once."""
    connected.setblocking(False)
    try:
        connected.send(encode_line({"id": None, "error": encode_error(FullError(why))}))
    except OSError as gone:
        log.debug("a refused connection is gone: %s", gone)
    finally:
        connected.close()
