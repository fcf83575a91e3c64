"""Which brokers a command talks to, and what it says if they are not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from journal.cli.common import print_note, shown_if_long
from journal.errors import ConfigError, EmbeddedKafkaError, KafkaUnavailableError
from journal.process.addresses import parse_addresses, refusals

if TYPE_CHECKING:
    from journal.config import Settings

KNOWN_WITHIN_S = 3.0
"""A command says within this time that nobody listens at any of the brokers' addresses."""

KAFKA_DIRECTORY_VARIABLE = "KAFKA_JOURNAL_KAFKA_DIR"


def embedded_servers() -> str | None:
    """The bootstrap servers of the user's embedded Kafka if it runs. No broker is asked."""
    from journal.embedded.cluster import EmbeddedKafka, default_directory

    try:
        named = os.environ.get(KAFKA_DIRECTORY_VARIABLE)
        kafka = EmbeddedKafka(Path(named) if named else default_directory())
        servers = kafka.running_servers()
    except (ConfigError, EmbeddedKafkaError):
        return None
    if servers:
        print_note(f"no brokers are named (-b), so this uses the embedded Kafka in {kafka.directory}: {servers}")
    return servers


@contextmanager
def first_contact(settings: Settings) -> Iterator[None]:
    """A command's first requests to Kafka; they are shown if they take long. Raises KafkaUnavailableError soon if
    nobody listens at any of the addresses."""
    require_listening(settings)
    with shown_if_long("Kafka"):
        yield


def require_listening(settings: Settings) -> None:
    """Raises KafkaUnavailableError if nobody listens at any of the brokers' addresses."""
    refused = refusals(
        parse_addresses(settings.bootstrap_servers), min(KNOWN_WITHIN_S, settings.request_timeout_ms / 1000)
    )
    if refused:
        raise KafkaUnavailableError("; ".join(refused))
