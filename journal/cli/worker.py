"""`kafka-journal worker` and `up`: run the stream processor, and everything together."""

from __future__ import annotations

import time
import uuid
from typing import Annotated

import typer

from journal.cli.common import (
    BootstrapOption,
    ConfigOption,
    JournalOption,
    PropertyOption,
    errors,
    exit_codes,
    settings_from,
)
from journal.config import Settings
from journal.kafka.embedded import EmbeddedKafka, default_directory
from journal.kafka.topics import init_journal
from journal.runtime import kafka_of, wall_ms


def worker(
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    name: Annotated[str | None, typer.Option(help="This worker's name; its local copies are kept under it.")] = None,
    properties: PropertyOption = None,
    config: ConfigOption = None,
) -> None:
    """Run the worker, which applies the WAL to the tables, until SIGTERM or Ctrl-C. Several share the shards."""
    with exit_codes():
        _serve(settings_from(bootstrap, journal, properties, config), name)


def up(
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    shards: Annotated[int | None, typer.Option(help="WAL partitions, for ever.", show_default="8")] = None,
    properties: PropertyOption = None,
    config: ConfigOption = None,
) -> None:
    """Run the embedded broker (unless -b names one), the journal's topics and a worker, until Ctrl-C."""
    with exit_codes():
        if bootstrap is not None:
            _up(settings_from(bootstrap, journal, properties, config, shards=shards))
            return
        with EmbeddedKafka(default_directory(), attached=True) as kafka:
            _up(settings_from(kafka.bootstrap_servers, journal, properties, config, shards=shards))


def _up(settings: Settings) -> None:
    init_journal(
        kafka_of(settings),
        settings,
        lambda: uuid.uuid4().bytes,
        clock=time.monotonic,
        wall_ms=wall_ms,
        timeout_s=settings.request_timeout_ms / 1000,
    )
    errors.print(f"journal {settings.journal} is up at {settings.bootstrap_servers}; Ctrl-C ends it", style="green")
    _serve(settings, None)


def _serve(settings: Settings, name: str | None) -> None:
    # the command line is the one place of `journal` that knows the parts above it
    from streams.service import run_service

    run_service(settings, name)
