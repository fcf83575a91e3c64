"""The brokers of a command that is given none: the user's embedded Kafka, if it runs."""

from __future__ import annotations

import os
from pathlib import Path

from journal.embedded.cluster import EmbeddedKafka, default_directory
from journal.errors import ConfigError, EmbeddedKafkaError

DIRECTORY_VARIABLE = "KAFKA_JOURNAL_KAFKA_DIR"
"""The variable that names the directory of the embedded Kafka."""


def running_embedded() -> tuple[Path, str] | None:
    """The directory and the bootstrap servers of the user's embedded Kafka; None if it does not run. No broker is
    asked."""
    try:
        named = os.environ.get(DIRECTORY_VARIABLE)
        kafka = EmbeddedKafka(Path(named) if named else default_directory())
        servers = kafka.running_servers()
    except (ConfigError, EmbeddedKafkaError):
        return None
    return (kafka.directory, servers) if servers else None
