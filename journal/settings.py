"""Settings of a journal, which appends, topics, tables and activations read. `journal.config` adds the settings of a
process."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from journal.limits import NODE_BYTES_MAX, VIRTUAL_SHARDS, Limits
from journal.process.addresses import parse_addresses
from journal.process.commands import note_servers
from journal.process.directories import STATE, user_directory

PREFIX = "KAFKA_JOURNAL_"
_NAME = re.compile(r"[a-z0-9-]{1,100}")
_TOPIC_PREFIX = re.compile(r"([A-Za-z0-9._-]{0,49}[._])?")

DAY_MS = 24 * 60 * 60 * 1000


class JournalSettings(BaseSettings):
    """The settings of a journal. Times are milliseconds, sizes bytes."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, extra="forbid", validate_default=True
    )

    bootstrap_servers: str = "127.0.0.1:9092"
    """The brokers of the Kafka cluster, host:port[,host:port]."""

    topic_prefix: str = ""
    """The prefix of the name of each topic, consumer group, transactional id and local directory of the journal, as
    `team.`: up to 50 letters, digits, `.`, `_` and `-`, with `.` or `_` at its end. Messages, JSON, metrics and
    archives then call the journal `team.orders`, and commands take either name."""

    journal: str = "journal"
    """The journal's name, 1 to 100 of a-z, 0-9 and -. Its full name, of which all other names are made, has
    `topic_prefix` before it."""

    client_properties: dict[str, str] = Field(default_factory=dict)
    """Properties of librdkafka that every Kafka client gets unchanged."""

    shards: int = Field(default=8, ge=1, le=VIRTUAL_SHARDS)
    """The number of WAL partitions. `init` alone uses it and writes it into the control rows. It never changes once the
    journal has been written to."""

    replication: int = Field(default=1, ge=1)
    """The replication factor of the journal's topics. Use 3 for anything that must survive a broker."""

    min_insync: int = Field(default=0, ge=0)
    """`min.insync.replicas` of the topics; 0 means one less than the replication, at least 1."""

    node: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    """The name of this node in epochs, frames and status. Without it the name is made of the host and the process."""

    directory: Path | None = None
    """The directory of local copies. It may be deleted whenever no process uses it: a worker whose copies are deleted
    ends, and a node builds its own anew. Without it they are in ~/.local/state/kafka-journal ($XDG_STATE_HOME)."""

    transaction_timeout_ms: int = Field(default=10_000, ge=1000)
    """How long a crashed producer may block readers of committed records."""

    fence_check_ms: int = Field(default=3000, ge=100)
    """How often an active node commits at least; an idle one commits twice as often. A node that could not commit for
    this long delivers no messages until it commits again. A WAL that has stood still for twice this time has no active
    node. READY must be answered within it, so a value below what busy brokers take keeps nodes from becoming active."""

    room_timeout_ms: int = Field(default=30_000, ge=0)
    """How long an append of a `BlockingJournal` waits for room in a full queue before it raises FullError."""

    commit_pause_ms: float = Field(default=0.25, ge=0)
    """The pause between two group commits. Without it, librdkafka would wait 20 ms while the broker writes the markers
    of the first commit."""

    commit_pause_max_ms: float = Field(default=4.0, ge=0)
    """The longest value that this pause grows to by itself while brokers take longer to write their markers."""

    group_join_ms: float = Field(default=1.0, ge=0)
    """How long a transaction waits for a second group. librdkafka waits as long before it registers partitions, so this
    costs no time."""

    request_timeout_ms: int = Field(default=15_000, ge=100)
    """The time limit of one Kafka request or transaction."""

    recovery_timeout_ms: int = Field(default=120_000, ge=1000)
    """How long an active node tries to learn the fate of a group before it gives up."""

    gate_timeout_ms: int = Field(default=60_000, ge=100)
    """How long activation waits for the workers, until all shards stand at its epoch."""

    delete_retention_ms: int = Field(default=7 * DAY_MS, ge=60_000)
    """`delete.retention.ms` of the compacted topics; a local copy that was away longer is rebuilt."""

    min_compaction_lag_ms: int = Field(default=10 * 60 * 1000, ge=0)
    """`min.compaction.lag.ms` of the compacted topics. A replica that takes longer to rebuild must capture the end of
    the table again."""

    limits: Limits = Limits()

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers_are_addresses(cls, value: str) -> str:
        parse_addresses(value)  # a ValueError is what pydantic wants
        return value

    @field_validator("topic_prefix")
    @classmethod
    def _prefix_ends_before_the_name(cls, value: str) -> str:
        if not _TOPIC_PREFIX.fullmatch(value):
            raise ValueError("must be up to 50 of a-z, A-Z, 0-9, '.', '_' and '-', and end in '.' or '_', as in team.")
        return value

    @field_validator("journal")
    @classmethod
    def _journal_has_its_full_name(cls, value: str, info: ValidationInfo) -> str:
        prefix: str = info.data.get("topic_prefix", "")
        name = value.removeprefix(prefix)
        if not _NAME.fullmatch(name):
            raise ValueError("must be 1 to 100 of a-z, 0-9 and -; topic_prefix says what stands before it")
        return prefix + name

    @field_validator("directory", mode="before")
    @classmethod
    def _directory_is_named(cls, value: object) -> object:
        if value == "":
            raise ValueError("must not be empty: that would be wherever a process was started")
        return value

    @field_validator("node")
    @classmethod
    def _node_fits_a_frame(cls, value: str) -> str:
        if not value or len(value.encode()) > NODE_BYTES_MAX:
            raise ValueError(f"must be 1 to {NODE_BYTES_MAX} bytes")
        return value

    @model_validator(mode="after")
    def _relations_hold(self) -> Self:
        default = type(self).model_fields["bootstrap_servers"].default
        note_servers(self.journal, "" if self.bootstrap_servers == default else self.bootstrap_servers)
        if self.min_insync > self.replication:
            raise ValueError("min_insync is larger than replication: nothing could be written")
        if self.fence_check_ms >= self.transaction_timeout_ms:
            raise ValueError("fence_check_ms must be below transaction_timeout_ms")
        if max(self.commit_pause_ms, self.commit_pause_max_ms) + self.group_join_ms >= self.fence_check_ms:
            raise ValueError(
                "commit_pause_ms, or commit_pause_max_ms, and group_join_ms must be below fence_check_ms together: "
                "an active node commits that often"
            )
        return self

    @property
    def journal_directory(self) -> Path:
        """Where this journal's local copies are. Raises ConfigError if the user has no directory for them."""
        directory = self.directory or user_directory(STATE, "directory (KAFKA_JOURNAL_DIRECTORY)")
        return directory / self.journal

    @property
    def min_insync_replicas(self) -> int:
        return self.min_insync or max(1, self.replication - 1)
