"""The result of a journal's load for a message store. A loader fills it, and `MessageStore.start` takes it over.

It consists of values only. The state includes prepared transactions: their acknowledgements lock references, and their
messages are arriving. The store's other data are in further fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from journal.store.address_settings import KeptSettings
from journal.store.queues.state import QueueState
from journal.v1.journal_pb2 import Operation


class LoadedDuplicate(NamedTuple):
    """An id in the duplicate-detection window of an address."""

    slot: int
    duplicate_id: bytes


class LoadedPrepared(NamedTuple):
    """A transaction in doubt: the bytes of its xid, and its operations in order within each shard."""

    tx: int
    data: bytes
    operations: Sequence[Operation]


class LoadedOutcome(NamedTuple):
    """An OUTCOME record of a global transaction that still has to be confirmed."""

    record_id: int
    data: bytes


@dataclass(slots=True)
class LoadedStore:
    """The result of a load."""

    state: QueueState
    windows: dict[int, list[LoadedDuplicate]] = field(default_factory=dict)
    """Ids of each duplicate-detection window by the id of its ADDRESS record, in the order of entering."""
    prepared: list[LoadedPrepared] = field(default_factory=list)
    outcomes: list[LoadedOutcome] = field(default_factory=list)
    address_settings: list[tuple[int, KeptSettings]] = field(default_factory=list)
    """The settings of addresses that are in the journal, by record id."""
    orphans: list[tuple[int, ...]] = field(default_factory=list)
    """Records without any reference to them: a message without references and its chunks, or the binding of a queue
    that is gone. The store deletes them in its first groups, a message's records in one group."""
    orphaned_messages: int = 0
    """Number of messages among the orphans."""
