"""The bounds of everything that can grow, with the relations that must hold between them.

Each bound is a setting; its default value and its reason are here. Sizes are bytes, times milliseconds.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

VIRTUAL_SHARDS = 1024
"""Ids carry a virtual shard in their low 10 bits, so a journal has at most this many shards."""

ID_MAX = 2**63 - 1
SUBJECT_MAX = 2**63 - 1
KIND_MAX = 255
SEQUENCE_MAX = 2**51 - 1
"""The highest sequence of an id that is issued for a record. Higher sequences, up to twice this one, are for things
that are never in the journal; the bit above them marks ids that stores of a chain issue."""

FRAME_OVERHEAD_BYTES = 512
"""An upper bound for the bytes of a frame's header: varints of ten bytes, a uuid, a node name of 200 bytes, and what
stands before each column."""

OPERATION_OVERHEAD_BYTES = 64
"""An upper bound for the bytes of an operation besides its data: its values in all other columns."""

SKIPPED_OVERHEAD_BYTES = 4096
"""An upper bound for the bytes that a `skipped` row adds to the record it keeps: the reason, the operator's name and
host, and the key."""

SKIPPED_REASON_CHARACTERS_MAX = 500
assert 4 * SKIPPED_REASON_CHARACTERS_MAX < SKIPPED_OVERHEAD_BYTES

NODE_BYTES_MAX = 200


class Limits(BaseModel):
    """Bounds of one process. All nodes and workers of a journal must use the same `frame_bytes_max`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    frame_bytes_max: int = Field(default=900_000, ge=4096)
    """The largest size of a frame. All nodes and workers of a journal must have the same. Kafka's usual
    message.max.bytes is 1 MiB, and the largest row must fit it too."""

    data_bytes_max: int = Field(default=512 * 1024, ge=0)
    """The largest size of one operation's data."""

    queue_operations_max: int = Field(default=100_000, ge=1)
    """The largest number of operations that wait for the writer, and of operations in one group."""

    queue_bytes_max: int = Field(default=32 * 1024 * 1024, ge=4096)
    """The largest number of bytes that wait for the writer, and of bytes in one group. Whoever reads a group must hold
    it whole."""

    group_bytes_max: int = Field(default=4 * 1024 * 1024, ge=1)
    """Bytes at which a group is complete and the next one begins. One transaction writes several groups, or as many as
    get through within the time-outs. Operations that must take effect together are in one group, however large it
    becomes."""

    transaction_buffer_operations_max: int = Field(default=2_000, ge=1)
    """A local transaction with more operations than this is staged in the WAL instead of held in memory."""

    transaction_buffer_bytes_max: int = Field(default=4 * 1024 * 1024, ge=1)
    """A local transaction with more bytes than this is staged in the WAL instead of held in memory."""

    transaction_buffers_total_bytes_max: int = Field(default=64 * 1024 * 1024, ge=1)
    """The largest number of bytes that all local transactions together hold in memory. A transaction that would exceed
    it is staged in the WAL."""

    staged_operations_max: int = Field(default=100_000, ge=1)
    """The largest number of staged operations of one transaction, and of all transactions that one group settles,
    because a worker settles them in one Kafka transaction."""

    staged_bytes_max: int = Field(default=80 * 1024 * 1024, ge=1)
    """The largest number of bytes of those staged operations. A large message is one transaction: a body of up to 64
    MiB, and its headers."""

    staged_total_operations_max: int = Field(default=1_000_000, ge=1)
    """The largest number of staged operations of all transactions together; their locks are held in memory."""

    staged_total_bytes_max: int = Field(default=512 * 1024 * 1024, ge=1)
    """The largest number of bytes of the staged operations of all transactions together."""

    transactions_max: int = Field(default=100_000, ge=1)
    """The largest number of open and prepared transactions; workers hold a header of each in memory."""

    updates_row_bytes_max: int = Field(default=4096, ge=0)
    """The largest size of the row that holds a record's updates; further updates get rows of their own."""

    checkpoint_bytes_max: int = Field(default=64 * 1024 * 1024, ge=4096)
    """Bytes of the WAL that a worker gathers for one shard before it checkpoints, even if the interval has not passed.
    Staged operations that commits and rollbacks settle there count too. A group that passes the bound is still gathered
    whole."""

    gathered_bytes_max: int = Field(default=512 * 1024 * 1024, ge=4096)
    """Bytes that a worker gathers for all shards of a journal. Each shard gets an equal part, even if the worker serves
    only some of them."""

    held_bytes_max: int = Field(default=512 * 1024 * 1024, ge=4096)
    """Bytes of rows that a replica holds back until their mark arrives. No copy could read a checkpoint larger than
    this."""

    fetch_bytes_max: int = Field(default=64 * 1024 * 1024, ge=1024 * 1024)
    """Bytes that one of our consumers may buffer."""

    @model_validator(mode="after")
    def _relations_hold(self) -> Limits:
        largest = self.data_bytes_max + OPERATION_OVERHEAD_BYTES + FRAME_OVERHEAD_BYTES
        if largest > self.frame_bytes_max:
            raise ValueError("an operation of data_bytes_max does not fit a frame of frame_bytes_max")
        if self.data_bytes_max + OPERATION_OVERHEAD_BYTES > self.queue_bytes_max:
            raise ValueError("queue_bytes_max is smaller than one operation of data_bytes_max")
        if self.transaction_buffer_operations_max > self.queue_operations_max:
            raise ValueError("a transaction of transaction_buffer_operations_max does not fit the queue")
        if self.transaction_buffer_bytes_max > self.queue_bytes_max:
            raise ValueError("a transaction of transaction_buffer_bytes_max does not fit the queue")
        if self.transaction_buffer_bytes_max > self.transaction_buffers_total_bytes_max:
            raise ValueError("transaction_buffer_bytes_max > transaction_buffers_total_bytes_max")
        if self.staged_operations_max > self.staged_total_operations_max:
            raise ValueError("staged_operations_max > staged_total_operations_max")
        if self.staged_bytes_max > self.staged_total_bytes_max:
            raise ValueError("staged_bytes_max > staged_total_bytes_max")
        # a checkpoint holds its last group whole, with all staged operations that the group settles; the rows of small
        # operations take twice the operations' size
        gathered = self.checkpoint_bytes_max + self.queue_bytes_max + self.staged_bytes_max
        if 2 * gathered > self.held_bytes_max:
            raise ValueError(
                "held_bytes_max is less than twice checkpoint_bytes_max + queue_bytes_max + staged_bytes_max: "
                f"no copy could read the largest checkpoint; make it {2 * gathered} or more"
            )
        return self

    def checkpoint_bytes_of(self, shards: int) -> int:
        """The bytes that a worker gathers for one of `shards` shards before it checkpoints."""
        return min(self.checkpoint_bytes_max, max(1, self.gathered_bytes_max // shards))

    @property
    def message_bytes_max(self) -> int:
        """`max.message.bytes` that the WAL needs: a frame, with the record batch around it."""
        return self.frame_bytes_max + 1024

    @property
    def row_message_bytes_max(self) -> int:
        """`max.message.bytes` that the tables need. A `skipped` row holds a whole WAL record, the reason, and the
        operator's name."""
        return self.message_bytes_max + SKIPPED_OVERHEAD_BYTES
