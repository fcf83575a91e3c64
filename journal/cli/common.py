"""What every command shares: options, settings, output, exit codes (0 done, 1 the operation failed, 2 usage)."""

from __future__ import annotations

import getpass
import inspect
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from journal.cli.standard_streams import drop_output
from journal.errors import (
    ConfigError,
    FencedError,
    InvalidOperationError,
    JournalError,
    KafkaUnavailableError,
    OutcomeUnknownError,
    OutputError,
)
from journal.words import escaped

if TYPE_CHECKING:
    from journal.config import Settings

BootstrapOption = Annotated[
    str | None, typer.Option("-b", "--bootstrap-servers", help="Kafka brokers, host:port[,host:port].")
]
JournalOption = Annotated[str | None, typer.Option("-j", "--journal", help="The journal's name.")]
PropertyOption = Annotated[
    list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="A Kafka client property; may be repeated.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TakeOverOption = Annotated[bool, typer.Option("--take-over", help="Fence a node that is active, instead of refusing.")]

errors = Console(stderr=True)

PROGRESS_AFTER_S = 2.0
"""A command that takes longer says how far it is."""

_PIPE_WIDTH = 400


def settings_from(
    bootstrap: str | None,
    journal: str | None,
    properties: Sequence[str] | None,
    config: Path | None,
    **flags: Any,
) -> Settings:
    """Settings of a command. Raises ConfigError."""
    # not every command has settings, and what reads them takes a while to import
    from journal.config import load_settings

    parsed: dict[str, str] | None = None
    if properties:
        parsed = {}
        for item in properties:
            key, equals, value = item.partition("=")
            if not equals or not key:
                raise ConfigError(f"-X {item}: expected KEY=VALUE")
            parsed[key] = value
    return load_settings(config, bootstrap_servers=bootstrap, journal=journal, client_properties=parsed, **flags)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options that choose a journal and its brokers: the same for all commands."""

    bootstrap: BootstrapOption = None
    journal: JournalOption = None
    properties: PropertyOption = None
    config: ConfigOption = None

    def settings(self, **flags: Any) -> Settings:
        """Settings of the command, `flags` (those that are not None) first. Raises ConfigError."""
        return settings_from(self.bootstrap, self.journal, self.properties, self.config, **flags)


def journal_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Chosen`, which it is given first, behind its own; errors become exit codes."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = inspect.signature(Chosen, eval_str=True).parameters
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared.values())]

    @wraps(command)
    def run(**given: Any) -> None:
        with exit_codes():
            command(Chosen(**{name: given.pop(name) for name in shared}), **given)

    # what typer reads
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@contextmanager
def ended_by_sigterm_as_by_ctrl_c() -> Iterator[None]:
    """So that a service manager's or a shell's SIGTERM leaves nothing behind either. Only the main thread hears it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code."""
    try:
        yield
    except (ConfigError, InvalidOperationError) as error:
        print_error(f"error: {error}")
        raise typer.Exit(2) from error
    except KafkaUnavailableError as error:
        print_error(f"error: Kafka does not answer: {error}")
        print_error("is it running, and are the brokers right (-b, KAFKA_JOURNAL_BOOTSTRAP_SERVERS)?")
        raise typer.Exit(1) from error
    except FencedError as error:
        print_error(f"error: another node took the journal over (kafka-journal status names it): {error}")
        raise typer.Exit(1) from error
    except OutcomeUnknownError as error:
        print_error(f"error: {error}")
        print_error(
            "the last operations are in the journal as a whole or not at all: kafka-journal dump --now shows which"
        )
        raise typer.Exit(1) from error
    except OutputError:
        raise  # `standard_streams` says so
    except JournalError as error:
        print_error(f"error: {error}")
        raise typer.Exit(1) from error
    except BrokenPipeError:
        # whoever read standard output has enough
        drop_output()
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        errors.print("interrupted", style="yellow")
        raise typer.Exit(130) from None


def print_error(text: str) -> None:
    """What went wrong, on standard error, in one line or several."""
    print_note(text, style="red", kept="\n")


def print_note(text: str, *, style: str = "", kept: str = "") -> None:
    """A line for people on standard error, beside a command's results. Of what is not printable, `kept` stays."""
    errors.print(Text(escaped(text, kept), style), soft_wrap=True)


def print_line(text: str) -> None:
    """A line of a command's results, on standard output."""
    typer.echo(escaped(text))


def confirm(question: str, *, yes: bool) -> None:
    """Ask on standard error, unless `yes`. Ends the command with exit code 1 if the answer is no, or there is none."""
    if not yes:
        typer.confirm(escaped(question), err=True, abort=True)


def operator() -> str:
    """Who runs this command: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, to: Console | None = None
) -> None:
    """A table on standard output, or `to` another place. What is not printable is escaped: a terminal would obey a name
    that a client has chosen."""
    table = Table(show_header=any(columns))
    for column in columns:
        table.add_column(Text(escaped(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(escaped(str(cell))) for cell in row))
    # a file or pipe has no width that a cell would have to be folded into
    console = to or Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    console.print(Text(escaped(title), style="table.title"))
    console.print(table)


def print_facts(title: str, facts: Mapping[str, object], *, to: Console | None = None) -> None:
    """Names and values on standard output, or `to` another place."""
    print_table(title, ("", ""), list(facts.items()), to=to)


class StepProgress:
    """Bars on standard error for steps that take long; nothing where standard error is no terminal."""

    def __init__(self, *, after_s: float = 0.0) -> None:
        """They appear once the command has taken `after_s`."""
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=errors,
            transient=True,
            disable=not errors.is_terminal,
        )
        self._tasks: dict[str, Any] = {}
        self._show_at = time.monotonic() + after_s

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show `done` of `total` (0: not known) of a step."""
        if not self._bars.live.is_started and time.monotonic() >= self._show_at:
            self._bars.start()
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total or None)
        self._bars.update(self._tasks[step], completed=done, total=total or None)

    def hide(self) -> None:
        """For good: from here on the command's own output shows how far it is."""
        self._bars.stop()
        self._show_at = math.inf

    def __enter__(self) -> StepProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


@contextmanager
def shown_if_long(step: str) -> Iterator[None]:
    """A bar for a step that takes long and cannot tell how far it is."""
    with StepProgress() as progress:
        late = threading.Timer(PROGRESS_AFTER_S, progress, (step, 0, 0))
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()
