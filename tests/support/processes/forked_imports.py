"""What forked processes find imported. There is no terminal, whatever the tests run in."""

from __future__ import annotations

import os

from tests.support.processes.forked import FORKED

for _stream in (1, 2):
    os.dup2(os.open(os.devnull, os.O_WRONLY), _stream)

import streams.reading.app  # noqa: E402, F401  # what it imports looks for a terminal
from journal.cli.main import load_command  # noqa: E402

for _command in (*FORKED, "worker"):
    load_command(_command)
