"""A node as a process: a message store that is served through a control socket, until its standard input ends.

Without arguments it activates; `standby NAME` never does, and says that NAME is active. It tells `serving` once it
serves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from journal.cli.control_socket.serving import ServedNode, control_socket
from journal.cli.operations.acting import Served
from journal.config import Settings, load_settings
from journal.journal import BlockingJournal
from journal.limits import ID_MAX
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from loaders.node.roles import Role
from loaders.queues import QueueLoader
from tests.support.children.telling import tell
from tests.support.processes.child import Child, program


def _no_hand_over(to: str) -> Mapping[str, Any]:
    return {"to": to}


def active(settings: Settings, context: ExitStack) -> ServedNode:
    journal = context.enter_context(BlockingJournal(settings, copy_name=settings.node))
    loader = QueueLoader(references_in_memory_max=10**6, queue_references_in_memory_max=10**6)
    report = journal.activate(loader)
    store = context.enter_context(MessageStore(journal, StoreSettings(acquire_grace_ms=ID_MAX)))
    store.start(loader.loaded)
    served = Served(store, journal, loader.loaded.outcomes)
    return ServedNode(lambda: served, lambda: Role.ACTIVE, lambda: {"epoch": report.epoch}, _no_hand_over)


def standby(another: str) -> ServedNode:
    return ServedNode(lambda: None, lambda: Role.STANDBY, dict, _no_hand_over, lambda: another)


def main(*arguments: str) -> None:
    settings = load_settings()
    with ExitStack() as context:
        node = standby(arguments[1]) if arguments else active(settings, context)
        context.enter_context(control_socket(settings, node))
        tell("serving")
        sys.stdin.read()


@contextmanager
def served_node(env: Mapping[str, str], directory: Path, name: str, *arguments: str) -> Iterator[Child]:
    """Such a process, once it serves; it ends cleanly with the context, unless a test has killed it."""
    its = {**os.environ, **env, "KAFKA_JOURNAL_NODE": name}
    with Child(name, program("served", *arguments), directory / f"{name}.log", its, listens=True).start() as node:
        node.wait_for("serving")
        yield node
        if node.running:
            node.stop()
