"""The options of the data source `kafka_journal`: what is read, from where, and how much of it. docs/SPARK.md lists
them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from journal.errors import ConfigError
from loaders.spark.read.schemas import ROW_TABLES, STATE_TABLES
from loaders.spark.read.source import EARLIEST, JournalSource

BEGINNING, EARLIEST_LEFT, LATEST = "beginning", "earliest", "latest"
_CLIENT = "kafka."
_NAMES = frozenset(
    {
        "bootstrap_servers",
        "journal",
        "table",
        "columns",
        "shards",
        "start",
        "end",
        "max_offsets",
        "partitions",
        "timeout_s",
        "filters",
    }
)

Place = str | Mapping[int, int] | datetime
"""A place in each shard: one of the words, offsets by shard, or the first record of this time or later."""


@dataclass(frozen=True)
class ReadOptions:
    """The options, checked as far as that can be done without Kafka."""

    source: JournalSource
    table: str
    columns: tuple[str, ...] | None
    """The wanted columns; None for all."""
    shards: tuple[int, ...] | None
    """The wanted shards; None for all."""
    start: Place
    end: Place
    max_offsets: int | None
    """The most offsets of a micro-batch."""
    filters: bool
    """A batch takes Spark's filters."""
    partitions: int | None
    """The least number of tasks that read a batch, if there are enough records; None for one for each shard."""

    @property
    def topic(self) -> str:
        """The topic that the table is read from."""
        return self.source.table if self.table in {**ROW_TABLES, **STATE_TABLES} else self.source.wal

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises ConfigError for an option that is missing, unknown, or not what it must be."""
        given = dict(options)
        properties = {key.removeprefix(_CLIENT): given.pop(key) for key in [*given] if key.startswith(_CLIENT)}
        servers = properties.pop("bootstrap.servers", None) or given.get("bootstrap_servers", "")
        if unknown := given.keys() - _NAMES:
            raise ConfigError(
                f"kafka_journal has no option {', '.join(sorted(unknown))}: it has {', '.join(sorted(_NAMES))}, and "
                "kafka.… for a property of librdkafka"
            )
        if not servers or not given.get("journal"):
            raise ConfigError("kafka_journal needs the options bootstrap_servers and journal")
        source = JournalSource(servers, given["journal"], properties, _seconds(given.get("timeout_s", "20")))
        table = given.get("table", "operations")
        if table in STATE_TABLES and (bounds := given.keys() & {"start", "end", "partitions", "max_offsets"}):
            raise ConfigError(f"table {table} is a state as of now, and takes no option {', '.join(sorted(bounds))}")
        return cls(
            source,
            table,
            columns=_listed(given.get("columns")),
            shards=_numbers("shards", given.get("shards")),
            start=_place("start", given.get("start", BEGINNING), (BEGINNING, EARLIEST_LEFT, LATEST)),
            end=_place("end", given.get("end", LATEST), (LATEST,)),
            max_offsets=_positive("max_offsets", given.get("max_offsets")),
            filters=given.get("filters", "false").lower() == "true",
            partitions=_positive("partitions", given.get("partitions")),
        )


def offsets_option(offsets: Mapping[int, int]) -> str:
    """Offsets by shard, as the options `start` and `end` take them."""
    return json.dumps({str(shard): offset for shard, offset in sorted(offsets.items())})


def _listed(told: str | None) -> tuple[str, ...] | None:
    return None if told is None else tuple(each.strip() for each in told.split(",") if each.strip())


def _numbers(name: str, told: str | None) -> tuple[int, ...] | None:
    try:
        return None if told is None else tuple(sorted({int(each) for each in told.split(",")}))
    except ValueError:
        raise ConfigError(f"{name} is not a list of numbers like 0,1,5: {told}") from None


def _seconds(told: str) -> float:
    try:
        return float(told)
    except ValueError:
        raise ConfigError(f"timeout_s is not a number of seconds: {told}") from None


def _positive(name: str, told: str | None) -> int | None:
    if told is None:
        return None
    if not told.isdigit() or int(told) < 1:
        raise ConfigError(f"{name} is not a positive number: {told}")
    return int(told)


def _place(name: str, told: str, words: tuple[str, ...]) -> Place:
    if told in words:
        return told
    try:
        if told.startswith("{"):
            offsets = {int(shard): int(offset) for shard, offset in json.loads(told).items()}
            if all(offset >= 0 or offset == EARLIEST for offset in offsets.values()):
                return offsets
        else:
            moment = datetime.fromisoformat(told)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, AttributeError):
        pass
    raise ConfigError(
        f'{name} is {told}: it must be {", ".join(words)}, offsets of all shards like {{"0": 17, "1": 4}}, or a time '
        "like 2026-05-01T12:00:00Z"
    )
