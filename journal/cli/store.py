"""What the commands of the message store share: its queues, from a read-only load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from journal.cli.common import StepProgress
from journal.cli.reading import ShownLoader, cached_directory, copies_directory, loaded_state
from journal.config import Settings
from journal.errors import QueueMissingError, RowError
from journal.local.references import RocksReferenceIndex
from journal.store.loaded import LoadedStore
from journal.store.queue_entry import QueueEntry
from loaders.queues import QueueLoader
from loaders.snapshot import SnapshotState

REFERENCES_IN_MEMORY_MAX = 1_000_000
"""A quarter of a gigabyte; what is beyond waits in a directory, which goes when the command ends."""


@contextmanager
def loaded_queues(settings: Settings) -> Iterator[tuple[LoadedStore, SnapshotState, StepProgress]]:
    """The queues as of the WAL's committed end, the rows they are of, and the bars for what goes through them."""
    with queue_loader(settings.journal) as loader, loaded_state(settings) as (state, progress):
        try:
            state.tell(ShownLoader(loader, progress))
        except RowError as error:
            raise RowError(
                f"journal {settings.journal} is not one of a message store, or it is damaged: {error} "
                f"(kafka-journal dump -j {settings.journal} shows its records, verify checks them)"
            ) from error
        yield loader.loaded, state, progress


@contextmanager
def queue_loader(journal: str) -> Iterator[QueueLoader]:
    """A loader that takes a bounded part of memory, and a directory for the rest, which it empties."""
    with (
        cached_directory(copies_directory() / journal, "references") as directory,
        closing(RocksReferenceIndex(directory)) as index,
    ):
        yield QueueLoader(
            references_in_memory_max=REFERENCES_IN_MEMORY_MAX,
            queue_references_in_memory_max=REFERENCES_IN_MEMORY_MAX,
            index=index,
        )


def find_queue(loaded: LoadedStore, name: str, journal: str) -> QueueEntry:
    """Raises QueueMissingError, which says where to look."""
    try:
        return loaded.state.queue(name)
    except QueueMissingError as error:
        raise QueueMissingError(f"{error}: kafka-journal queues -j {journal} lists those that there are") from error
