"""A standby in a process of its own, which tests stop and let go on: `python -m tests.support.standby_process`.

Settings come from the environment. It tells JSON lines: `{"fit": …}` whenever that changes, and on `activate` (on its
standard input) what it then has: whether it was warm, and its records by id, or the error that it met. It ends with its
input. With the argument `unfollowed` its copy is opened and not followed.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import closing

from journal.activate.copy import TableCopy
from journal.config import load_settings
from journal.errors import OperatingError
from journal.journal import BlockingJournal
from tests.support.followed import KeptState

_LOOK_S = 0.02


def main() -> None:
    settings = load_settings(None)
    words: list[str] = []
    said = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            words.append(line.strip())
            said.set()
        words.append("end")
        said.set()

    threading.Thread(target=listen, daemon=True).start()
    told = None
    with closing(TableCopy(settings, copy_name="standby")) as copy:
        copy.open()
        followed = sys.argv[1:] != ["unfollowed"]
        if followed:
            copy.follow(KeptState)
        while "end" not in words:
            fit = copy.fitness().fit
            if fit != told:
                told = fit
                print(json.dumps({"fit": fit}), flush=True)
            if words:
                words.clear()
                said.clear()
                print(
                    json.dumps(activated(BlockingJournal(settings, copy=copy), None if followed else KeptState())),
                    flush=True,
                )
            said.wait(_LOOK_S)


def activated(journal: BlockingJournal, loader: KeptState | None) -> dict[str, object]:
    with journal:
        try:
            report = journal.activate(loader)
        except OperatingError as error:
            return {"error": str(error)}
        state = journal.loader
        assert isinstance(state, KeptState)
        return {"warm": report.warm, "records": {str(each): found[1].hex() for each, found in state.records.items()}}


if __name__ == "__main__":
    main()
