"""A command's first requests to Kafka, and what it says if no broker is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from journal.cli.common import shown_if_long
from journal.errors import KafkaUnavailableError
from journal.process.addresses import parse_addresses, refusals

if TYPE_CHECKING:
    from journal.config import Settings

KNOWN_WITHIN_S = 3.0
"""A command says within this time that nobody listens at any of the brokers' addresses."""


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
