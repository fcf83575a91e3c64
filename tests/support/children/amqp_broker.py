"""A broker on a local journal as a process of its own: says its address, and serves AMQP until its standard input ends.

Argument: DIRECTORY of the journal.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journal.amqp.settings import AmqpSettings
from journal.broker.server import AmqpServer
from journal.local.journal import LocalJournal
from journal.store.settings import StoreSettings
from tests.support.children.store import start
from tests.support.children.telling import tell


def main(directory: str) -> None:
    settings = StoreSettings(expiry_agreement_ms=0)
    with LocalJournal(Path(directory), shards=4) as journal:
        store = start(journal, settings)
        server = AmqpServer(
            store,
            AmqpSettings(listen="127.0.0.1:0"),
            container_id="broker",
            message_bytes_max=settings.message_bytes_max,
        )
        host, port = server.start()
        tell("listens", url=f"amqp://{host}:{port}")
        sys.stdin.read()
        server.stop("the test has ended")
        store.close()
