"""Wrong command lines: what is said of them, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.exceptions import TyperException

USAGE_EXIT_CODE = 2


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a wrong command line into `error: …` on standard error, as every other error is, and exit code 2."""
    try:
        yield
    except TyperException as error:
        _say(error)
        sys.exit(USAGE_EXIT_CODE)
    except typer.Abort:
        from journal.cli.common import print_error

        print_error("Aborted.")
        sys.exit(1)


def _say(error: Any) -> None:
    from journal.cli.common import print_error

    message = error.format_message()
    if not message.strip():  # a group without a command: its help has been printed
        return
    print_error(f"error: {message}")
    if error.ctx is not None:
        print_error(f"{error.ctx.command_path} --help shows what it takes")
