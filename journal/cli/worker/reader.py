"""The reader process of a worker, which the worker starts: `python -m journal.cli.worker.reader [-v] [--json]
NUMBER`."""

from __future__ import annotations

import signal
import sys

from journal.cli.logs import log_progress, set_up_logging


def reader_command(*, as_json: bool, verbose: bool) -> list[str]:
    """The command line, without the number, of a reader that logs like its worker, to the same standard error."""
    command = [sys.executable, "-m", "journal.cli.worker.reader"]
    if verbose:
        command.append("-v")
    if as_json:
        command.append("--json")
    return command


def main() -> None:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it allows writing to the terminal from the background

    from streams.reading.reader import read_for_parent

    *options, number = sys.argv[1:]
    set_up_logging("-v" in options)
    log_progress(as_json="--json" in options)
    read_for_parent(int(number))


if __name__ == "__main__":
    main()
