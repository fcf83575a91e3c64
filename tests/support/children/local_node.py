"""A node on a `LocalJournal`: appends a seeded workload until it is killed, and writes down what it is told of it.

Arguments: DIRECTORY HISTORY SEED SHARDS.
"""

from __future__ import annotations

from pathlib import Path

from journal.local.journal import LocalJournal
from tests.support.children.appending import Appending
from tests.support.children.loaders import NotingLoader
from tests.support.children.telling import Notes
from tests.support.children.workload import Workload


def main(directory: str, history: str, seed: str, shards: str) -> None:
    notes = Notes(Path(history))
    with LocalJournal(Path(directory), shards=int(shards)) as journal:
        loader = NotingLoader(notes)
        journal.activate(loader)
        appending = Appending(notes, journal, Workload(int(seed), loader.epoch, loader.lines, journal.new_id))
        while True:
            appending.burst()
