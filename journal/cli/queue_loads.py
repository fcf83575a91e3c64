"""A loader for queues with bounded memory, which the commands of the message store share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from journal.cli.reading import ShownLoader, cached_directory, copies_directory
from journal.disk.slots import leaving_nothing_of_no_journal
from journal.errors import RowError
from journal.process.commands import command
from journal.process.progress import Progress
from journal.store.queues.loaded import LoadedStore
from journal.store.queues.rocks_index import RocksReferenceIndex
from journal.store.settings import QUEUE_REFERENCES_IN_MEMORY_MAX, REFERENCES_IN_MEMORY_MAX
from journal.words import called
from loaders.queues import QueueLoader
from loaders.snapshot import SnapshotState


@contextmanager
def tell_queues(journal: str, state: SnapshotState, progress: Progress) -> Iterator[LoadedStore]:
    """The queues of a state. Raises RowError if the state is not a message store's."""
    with queue_loader(journal) as loader:
        try:
            state.tell(ShownLoader(loader, progress))
        except RowError as error:
            raise RowError(
                f"{called(journal)} is not one of a message store, or it is damaged: {error} "
                f"({command('dump', journal=journal)} shows its records, verify checks them)"
            ) from error
        yield loader.loaded


@contextmanager
def queue_loader(journal: str) -> Iterator[QueueLoader]:
    """A loader that keeps a bounded number of references in memory, and the others on disk, in a directory that it
    empties first."""
    copies = copies_directory() / journal
    with (
        leaving_nothing_of_no_journal(copies),
        cached_directory(copies, "references") as directory,
        closing(RocksReferenceIndex(directory)) as index,
    ):
        yield QueueLoader(
            references_in_memory_max=REFERENCES_IN_MEMORY_MAX,
            queue_references_in_memory_max=QUEUE_REFERENCES_IN_MEMORY_MAX,
            index=index,
        )
