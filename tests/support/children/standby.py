"""A standby that a test stops and lets go on. Settings come from the environment.

It tells `fit` whenever that changes, and on `activate` what it then has: whether it was warm, and its records by id, or
the error that it met. It ends with its input. With the argument `unfollowed` its copy is opened and not followed.
"""

from __future__ import annotations

import threading
from contextlib import closing

from journal.activate.copy import TableCopy
from journal.config import load_settings
from journal.errors import OperatingError
from journal.journal import BlockingJournal
from tests.support.children.loaders import KeptState
from tests.support.children.telling import obey, tell

_LOOK_S = 0.02


def main(*words: str) -> None:
    settings, is_followed = load_settings(None), words != ("unfollowed",)
    stop, to_activate = threading.Event(), threading.Event()
    obey({"activate": to_activate.set}, stop)
    told = None
    with closing(TableCopy(settings, copy_name="standby")) as copy:
        copy.open()
        if is_followed:
            copy.follow(KeptState)
        while not stop.is_set():
            fit = copy.fitness().fit
            if fit != told:
                told = fit
                tell("fit", fit=fit)
            if to_activate.wait(_LOOK_S):
                to_activate.clear()
                found = activated(BlockingJournal(settings, copy=copy), None if is_followed else KeptState())
                tell("activated", **found)


def activated(journal: BlockingJournal, loader: KeptState | None) -> dict[str, object]:
    with journal:
        try:
            report = journal.activate(loader)
        except OperatingError as error:
            return {"error": str(error)}
        state = journal.loader
        assert isinstance(state, KeptState)
        return {"warm": report.warm, "records": {str(each): found[1].hex() for each, found in state.records.items()}}
