"""A small web server beside a process, for those who watch it.

/metrics    for Prometheus
/live       200 while the process answers
/ready      200 while it is ready for its work, else 503 with the reason

web = ObservedWeb("127.0.0.1:9464", metrics=families_of, ready=lambda: "")
host, port = web.start()
...
web.close()
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from journal.errors import WebPortError
from journal.observe.exposition import CONTENT_TYPE, Family, exposition

log = logging.getLogger(__name__)

_REQUEST_S = 10.0
"""The time within which a client must have sent its request, and read the answer."""


class ObservedWeb:
    """The server. Each request is answered in a thread of its own."""

    def __init__(
        self, address: tuple[str, int], *, metrics: Callable[[], Iterable[Family]], ready: Callable[[], str]
    ) -> None:
        """`ready` gives the reason for which the process is not ready, or an empty text. Both may be called by several
        threads at a time."""
        self._address = address
        self._handler = type("Handler", (_Handler,), {"metrics": staticmethod(metrics), "ready": staticmethod(ready)})
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> tuple[str, int]:
        """Listen; returns host and port. Raises WebPortError if the address is in use, or not this machine's."""
        host, port = self._address
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler)
        except OSError as error:
            what = f"the web server cannot listen at {host}:{port}: {error.strerror}"
            raise WebPortError(f"{what}; give another address (--web)") from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="kafka-journal-web", daemon=True).start()
        host, port = self._server.socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = _REQUEST_S
    server_version = "kafka-journal"
    sys_version = ""
    metrics: Callable[[], Iterable[Family]]
    ready: Callable[[], str]

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, f"{CONTENT_TYPE}; charset=utf-8", exposition(self.metrics()))
            case "/live":
                self._json(200, {"live": True})
            case "/ready":
                why_not = self.ready()
                self._json(503 if why_not else 200, {"ready": not why_not, "reason": why_not or None})
            case _:
                self._json(404, {"error": "there is no such page: /metrics, /live and /ready are there"})

    def _json(self, status: int, body: object) -> None:
        self._answer(status, "application/json", json.dumps(body))

    def _answer(self, status: int, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form: str, *values: object) -> None:
        log.debug("%s: " + form, self.client_address[0], *values)
