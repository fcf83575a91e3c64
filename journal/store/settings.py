"""Settings of a message store: bounds of everything that it keeps apart from the queues, with their reasons."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from journal.errors import ConfigError
from journal.limits import OPERATION_OVERHEAD_BYTES, Limits
from journal.patterns import parse_pattern
from journal.process.clocks import AGREEMENT_MS
from journal.store.address_settings import AddressSettings

REFERENCES_IN_MEMORY_MAX = 1_000_000
"""The most references that a node keeps in memory if an index holds the rest: about 250 MB."""

QUEUE_REFERENCES_IN_MEMORY_MAX = 100_000
"""The most ready and scheduled references of one queue among these, so that no queue uses the memory of all others."""

_AROUND_A_BODY = 2
"""The operations in a large message's transaction besides its chunks: its own record and one reference."""

_CHUNK_ID_BYTES = 8

_HEADERS_BYTES = 1024
"""Bytes that are reserved for headers and properties when a body has the largest size."""

_CHANGE_BYTES = 512
"""An upper bound for the bytes of a delete or a release in a group."""


class StoreSettings(BaseModel):
    """One store's settings. Sizes are bytes, times milliseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message_bytes_max: int = Field(default=64 * 1024 * 1024, ge=1)
    """The largest body. A durable one is a staged transaction, so `limits.staged_bytes_max` must be above it. A body
    that a source takes in must also fit one group (`limits.queue_bytes_max`)."""

    inline_bytes_max: int = Field(default=256 * 1024, ge=1)
    """A body up to this size is in its message's record, a larger one in chunks. It must be below
    `limits.data_bytes_max`. If it is above `message_bytes_max`, that bound applies."""

    chunk_bytes: int = Field(default=256 * 1024, ge=1)
    """The size of a chunk of a large body. One chunk is read at a time, and it is well below the size of a frame. It
    must not exceed `limits.data_bytes_max`."""

    cache_bytes_max: int = Field(default=64 * 1024 * 1024, ge=0)
    """Bytes of bodies that are kept until the local copy has them. Bodies that are not durable yet are kept beyond this
    bound."""

    acquire_grace_ms: int = Field(default=30_000, ge=0)
    """How long after an activation a message stays with its earlier holder, if the holder does not come back for it."""

    expiry_agreement_ms: int = Field(default=AGREEMENT_MS, ge=0)
    """How long wall clock and monotonic clock must have agreed before `expired` gives a message. A message that is
    settled as expired does not come back when a wrong clock is corrected."""

    volatile_bytes_max: int = Field(default=64 * 1024 * 1024, ge=0)
    """Bytes in memory of the bodies of messages that are not durable; further bodies are swapped."""

    swap_directory: Path | None = None
    """The directory for swapped bodies of messages that are not durable. Without it such bodies are refused. It is
    emptied at start and at close."""

    swap_file_bytes_max: int = Field(default=16 * 1024 * 1024, ge=1)
    """The size of a swap file. A file is removed when the last message in it is gone."""

    swap_queue_bytes_max: int = Field(default=1024 * 1024 * 1024, ge=1)
    """The size of all swap files of one queue."""

    collect_operations_max: int = Field(default=500, ge=1)
    """The most records in one group when messages are deleted that a destroyed queue or a load has left without
    references."""

    release_operations_max: int = Field(default=50, ge=1)
    """The most messages in one group when a holder releases all it holds. Other callers of the store wait for that
    long."""

    transaction_bodies_bytes_max: int = Field(default=4 * 1024 * 1024, ge=0)
    """Bytes of bodies of one open transaction that are kept in memory; other bodies are read from the local copy once
    it has them."""

    read_timeout_ms: int = Field(default=15_000, ge=1)
    """How long to wait for a body that the local copy does not have yet."""

    address_settings: dict[str, AddressSettings] = Field(default_factory=dict)
    """Settings of the addresses that a pattern matches, by pattern: `[store.address_settings."orders.#"]`. The word `*`
    stands for one word of an address, `#` for any number of words. The most specific pattern that sets a value
    counts."""

    @field_validator("address_settings")
    @classmethod
    def _patterns_are_patterns(cls, value: dict[str, AddressSettings]) -> dict[str, AddressSettings]:
        for pattern in value:
            parse_pattern(pattern)  # pydantic reports a ValueError as an error of the setting
        return value

    @model_validator(mode="after")
    def _relations_hold(self) -> StoreSettings:
        if self.chunk_bytes > self.message_bytes_max:
            raise ValueError("store.chunk_bytes is over store.message_bytes_max: lower chunk_bytes")
        return self

    def require_fit(self, limits: Limits) -> None:
        """Raises ConfigError for records that a journal with these limits would refuse."""
        data_bytes_max = limits.data_bytes_max
        if self.inline_bytes_max >= data_bytes_max:
            raise ConfigError(
                f"store.inline_bytes_max ({self.inline_bytes_max}) must be below limits.data_bytes_max "
                f"({data_bytes_max}): headers and properties are in the same record"
            )
        if self.chunk_bytes > data_bytes_max:
            raise ConfigError(
                f"store.chunk_bytes ({self.chunk_bytes}) is over limits.data_bytes_max ({data_bytes_max}): "
                "a chunk is one record"
            )
        if "message_bytes_max" not in self.model_fields_set:
            return  # a journal with smaller limits than the defaults still takes smaller messages
        body_bytes_max = self.body_bytes_max(limits, _HEADERS_BYTES)
        if self.message_bytes_max > body_bytes_max:
            raise ConfigError(
                f"store.message_bytes_max ({self.message_bytes_max}) is over {body_bytes_max}: more chunks of "
                f"store.chunk_bytes ({self.chunk_bytes}) do not fit a transaction (limits.staged_operations_max), the "
                "group that deletes them (limits.queue_operations_max), or with their ids one record (data_bytes_max)"
            )
        staged_bytes = self.message_bytes_max + limits.data_bytes_max
        staged_bytes += -(-self.message_bytes_max // self.chunk_bytes) * OPERATION_OVERHEAD_BYTES
        if staged_bytes > limits.staged_bytes_max:
            raise ConfigError(
                f"limits.staged_bytes_max ({limits.staged_bytes_max}) is under the {staged_bytes} bytes that a message "
                f"of store.message_bytes_max ({self.message_bytes_max}) takes as one transaction"
            )

    def body_bytes_max(self, limits: Limits, record_bytes: int) -> int:
        """The largest body of a durable message whose record takes `record_bytes` beside the ids of its chunks."""
        chunks = min(
            limits.staged_operations_max - _AROUND_A_BODY,
            limits.queue_operations_max - _AROUND_A_BODY,
            limits.queue_bytes_max // OPERATION_OVERHEAD_BYTES - _AROUND_A_BODY,
            (limits.data_bytes_max - record_bytes) // _CHUNK_ID_BYTES,
        )
        return min(self.message_bytes_max, max(self.inline_bytes_max, chunks * self.chunk_bytes))

    def operations_at_once(self, operations_max: int, limits: Limits) -> int:
        """The number of deletes or releases in one group: `operations_max`, or fewer if the journal takes fewer."""
        return min(operations_max, limits.queue_operations_max, limits.queue_bytes_max // _CHANGE_BYTES)
