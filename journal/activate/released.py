"""The release of a journal: an active node writes it when it ends in order, so that no other node waits for its session
to run out."""

from __future__ import annotations

import logging

from journal.errors import JournalError
from journal.kafka.ports import Kafka
from journal.process.clocks import wall_ms
from journal.settings import JournalSettings
from journal.topics.control_keys import RELEASED_KEY, control_row
from journal.v1.journal_pb2 import Identity, Released

log = logging.getLogger(__name__)

_LIMIT_S = 5.0


def say_left(kafka: Kafka, settings: JournalSettings, identity: Identity, epoch: int, to: str) -> None:
    """Write that this node has left, and that the standby `to` is to follow. An error is only logged: without the row
    the others notice later that the node is gone."""
    row = Released(journal=identity.journal, epoch=epoch, node=settings.node, timestamp=int(wall_ms()), to=to)
    try:
        producer = kafka.plain_producer()
        try:
            producer.send([control_row(settings.journal, RELEASED_KEY, row)], _LIMIT_S)
        finally:
            producer.close()
    except JournalError as error:
        log.warning("the record that this node left could not be written: %s", error)
