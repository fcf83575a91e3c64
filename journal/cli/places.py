"""Where the operations of a command run: on a read-only load, in this process as the active node, or in a running
node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from journal.cli.activating import activated_journal
from journal.cli.common import StepProgress
from journal.cli.control_socket.client import NodeClient, find_node
from journal.cli.operations.acting import JournalActing, Served, StoreActing, give_back_of_the_dead
from journal.cli.operations.looking import LoadedStates, StateLooking
from journal.cli.operations.ports import Acting, ReadingOperations
from journal.cli.queue_loads import queue_loader
from journal.config import Settings
from journal.errors import ConfigError
from journal.limits import ID_MAX
from journal.process.progress import Progress, no_progress
from journal.store.store import MessageStore
from journal.xa.loading import XaLoader

NodeOption = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="[NAME]",
        help="Ask the running node NAME on this machine, or without NAME the only one.",
        show_default=False,
    ),
]


@contextmanager
def looking(settings: Settings, node: str | None) -> Iterator[ReadingOperations]:
    """Where a command looks: at a read-only load of the WAL's committed end, which needs no worker and disturbs nobody,
    or at a running node."""
    if node is not None:
        with _asked(settings, node) as client:
            yield client
    else:
        with StateLooking(settings.journal, LoadedStates(settings)) as looks:
            yield looks


@contextmanager
def acting(settings: Settings, node: str | None, *, take_over: bool, progress: StepProgress) -> Iterator[Acting]:
    """Where a command acts: in a running node, or in this process, which is then the active node with a store of its
    own until the command ends.

    Messages that other holders have stay with them. Raises ActiveNodeError unless `take_over` or `node`.
    """
    if node is not None:
        with _asked(settings, node, take_over=take_over, progress=progress) as client:
            yield client
        return
    store_settings = settings.store.model_copy(update={"acquire_grace_ms": ID_MAX, "swap_directory": None})
    store_settings.require_fit(settings.limits)  # this check comes before anybody is fenced
    with (
        queue_loader(settings.journal) as loader,
        activated_journal(settings, take_over=take_over, progress=progress, loader=loader) as (journal, _),
        MessageStore(journal, store_settings) as store,
    ):
        store.start(loader.loaded)
        give_back_of_the_dead(store)
        yield StoreActing(Served(store, journal, loader.loaded.outcomes), settings.journal, progress)


@contextmanager
def settling(
    settings: Settings, node: str | None, *, of_a_store: bool, take_over: bool, progress: StepProgress
) -> Iterator[Acting | JournalActing]:
    """Where a command settles a transaction. For a message store (`of_a_store`), messages that lose their last
    reference are deleted too; otherwise no store is opened, and the journal may belong to any broker."""
    if of_a_store:
        with acting(settings, node, take_over=take_over, progress=progress) as acts:
            yield acts
        return
    if node is not None:
        with _asked(settings, node, take_over=take_over) as client:
            yield client
        return
    loader = XaLoader()
    with activated_journal(settings, take_over=take_over, progress=progress, loader=loader) as (journal, _):
        yield JournalActing(journal, loader.loaded, settings.journal)


def _asked(settings: Settings, node: str, *, take_over: bool = False, progress: Progress = no_progress) -> NodeClient:
    if take_over:
        raise ConfigError("--node asks the active node, and --take-over fences it: give one of them")
    return find_node(settings, node, progress=progress)
