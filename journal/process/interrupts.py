"""Ctrl-C while the modules of a command are imported: it ends the process without a traceback."""

from __future__ import annotations

import os
import signal

_INTERRUPTED = 130


def end_at_interrupts() -> None:
    """Let Ctrl-C end this process at once. A process that was started with SIGINT ignored goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, because the command is imported and can tidy up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)
